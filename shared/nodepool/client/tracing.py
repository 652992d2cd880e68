"""The span of a command that a program sends, where the program uses OpenTelemetry.

It follows https://opentelemetry.io/docs/specs/semconv/messaging/messaging-spans/. A program that
does not use OpenTelemetry sends no trace context, because nothing would export the trace's first
span. In this case, the first service that has tracing on begins the trace.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from nodepool.contract.messages import Command
from nodepool.contract.subjects import subject_of, template_of

_USED: Final = "opentelemetry.trace"
"""The module that every program that creates spans has imported."""


@contextmanager
def sending(command: Command, id: str) -> Iterator[Mapping[str, str]]:
    """Start the span of sending a command; yield its `traceparent` and `tracestate`, if any."""
    if _USED not in sys.modules:
        yield {}
        return
    from opentelemetry import trace
    from opentelemetry.trace import SpanKind
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    template = template_of(type(command))
    attributes = {
        "messaging.system": "nats",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": subject_of(command, ""),
        "messaging.destination.template": template,
        "messaging.message.id": id,
        "messaging.message.conversation_id": id,
    }
    # This uses the program's tracer provider. If the program has set none, the span only carries
    # the current context.
    with trace.get_tracer("nodepool").start_as_current_span(
        f"send {template}", kind=SpanKind.PRODUCER, attributes=attributes
    ):
        carrier: dict[str, str] = {}
        TraceContextTextMapPropagator().inject(carrier)
        yield carrier
