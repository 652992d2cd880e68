"""The trace that a program which uses OpenTelemetry gives its commands."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click
import pytest
from opentelemetry import trace
from opentelemetry.context import attach, detach
from opentelemetry.sdk.trace import TracerProvider

from nodepool.cli.tracing import trace_messages
from nodepool.client.tracing import sending
from nodepool.contract.commands import ScaleNodePool
from nodepool.host.exporting import context_of

COMMAND = ScaleNodePool(org="acme", cluster="prod", pool="train", target_nodes=5)
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@contextmanager
def within(traceparent: str) -> Iterator[None]:
    """The span of this name is the current one."""
    context = context_of(traceparent, None)
    assert context is not None
    token = attach(context)
    yield
    detach(token)


def test_a_command_goes_on_with_the_span_that_a_program_is_in() -> None:
    # given a program without exporters, in a span that began elsewhere
    with within(PARENT), sending(COMMAND, "c1") as sent:
        # when it sends a command
        # then that has the trace
        assert sent == {"traceparent": PARENT}


def test_a_command_has_no_trace_where_nothing_would_show_its_beginning() -> None:
    # given a program that makes no spans
    # when it sends a command
    with sending(COMMAND, "c1") as sent:
        # then that has no trace
        assert sent == {}


def test_a_command_names_the_span_of_its_sending(monkeypatch: pytest.MonkeyPatch) -> None:
    # given a program that makes spans
    provider = TracerProvider(shutdown_on_exit=False)
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)

    # when it sends a command within a span
    with within(PARENT), sending(COMMAND, "c1") as sent:
        span = trace.get_current_span().get_span_context()

    # then the command names another span of the same trace
    assert sent == {"traceparent": f"{PARENT[:36]}{span.span_id:016x}-01"}
    assert sent["traceparent"] != PARENT


def test_a_program_without_opentelemetry_does_not_load_it() -> None:
    # given a program that uses the client
    program = (
        "import sys;"
        "from nodepool.client.tracing import sending;"
        "from nodepool.contract.commands import DeleteNodePool;"
        "command = DeleteNodePool(org='a', cluster='b', pool='c');"
        "sent = sending(command, 'c1').__enter__();"
        "sys.exit(bool(sent) or 'opentelemetry' in sys.modules)"
    )

    # when it sends a command
    done = subprocess.run([sys.executable, "-c", program], check=False)

    # then OpenTelemetry, which takes its time to load, is not loaded
    assert done.returncode == 0


def test_the_command_line_goes_on_with_the_trace_in_its_environment() -> None:
    # given the environment that a build system has set
    with trace_messages({"TRACEPARENT": PARENT}), sending(COMMAND, "c1") as sent:
        # when a command is sent
        # then it has that trace
        assert sent == {"traceparent": PARENT}

    # and it has none afterwards
    with sending(COMMAND, "c2") as after:
        assert after == {}


@pytest.mark.parametrize("traceparent", ["nonsense", "", PARENT.upper()])
def test_a_malformed_trace_in_the_environment_is_ignored(traceparent: str) -> None:
    with trace_messages({"TRACEPARENT": traceparent}), sending(COMMAND, "c1") as sent:
        assert sent == {}


def test_a_wrong_choice_is_a_usage_error_that_names_the_right_ones() -> None:
    text = "NODEPOOL_TRACES is 'jaeger'; it must be off or console or otlp"
    with pytest.raises(click.UsageError, match=text), trace_messages({"NODEPOOL_TRACES": "jaeger"}):
        pass
