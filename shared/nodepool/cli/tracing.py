"""The trace of one command line, if its environment turns tracing on."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import cast, get_args

import click


@contextmanager
def trace_messages(environment: Mapping[str, str] = os.environ) -> Iterator[None]:
    """Trace the messages that are sent in this context, and send the spans at the end.

    `NODEPOOL_TRACES` says where the spans go, as it does for a service. `TRACEPARENT` and
    `TRACESTATE` name the span that goes on here, as build systems set them, see
    https://opentelemetry.io/docs/specs/otel/context/env-carriers/. Without either nothing is done.
    """
    traces = environment.get("NODEPOOL_TRACES", "off")
    parent = environment.get("TRACEPARENT")
    if traces == "off" and not parent:
        yield
        return
    from opentelemetry import trace
    from opentelemetry.context import attach, detach

    from nodepool.host.exporting import Exporting, context_of
    from nodepool.host.settings import SettingsError, Traces

    if traces not in get_args(Traces):
        choices = " or ".join(get_args(Traces))
        raise click.UsageError(f"NODEPOOL_TRACES is {traces!r}; it must be {choices}")
    exporting: Exporting | None = None
    try:
        if traces != "off":
            exporting = Exporting("nodepool-cli", cast("Traces", traces))
            trace.set_tracer_provider(exporting.provider)
    except SettingsError as error:
        raise click.UsageError(str(error)) from None
    context = context_of(parent, environment.get("TRACESTATE"))
    token = attach(context) if context is not None else None
    try:
        yield
    finally:
        if token is not None:
            detach(token)
        if exporting is not None:
            exporting.close()
