"""Spans: one for each processed input, which its outputs name as their parent."""

import json
from dataclasses import replace

import pytest

from nodepool.host.settings import Settings
from nodepool.host.spans import Spans, parent_context
from support.proposals import proposed

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT_SPAN = "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{PARENT_SPAN}-01"
MALFORMED = ("nonsense", f"00-{'z' * 32}-{'0' * 16}-01", f"00-{TRACE}-1-01", "", "---")


def traceparents(spans: Spans, trace: str | None) -> set[str | None]:
    """The `traceparent` of every output to a command."""
    traced = spans.traced(proposed(trace))
    return {output.traceparent for item in traced.processed for output in item.envelopes}


@pytest.mark.parametrize("trace", [PARENT, None])
def test_without_traces_outputs_carry_the_trace_of_their_command(trace: str | None) -> None:
    # given a service that makes no spans
    spans = Spans("quota", Settings(traces="off"))

    # when it processes a command, with a trace or without one
    # then the outputs carry that very trace
    assert traceparents(spans, trace) == {trace}
    spans.close()


@pytest.mark.parametrize("trace", [PARENT, None, *MALFORMED])
def test_with_traces_outputs_name_the_span_of_their_command(
    capsys: pytest.CaptureFixture[str], trace: str | None
) -> None:
    # given a service that makes spans
    spans = Spans("quota", Settings(traces="console"))

    # when it processes a command: with a trace, without one, with a malformed one
    named = traceparents(spans, trace)
    spans.close()

    # then there is one span of the command
    (span,) = map(json.loads, capsys.readouterr().err.splitlines())
    assert span["name"] == "process SetQuota"
    assert span["attributes"]["messaging.message.id"] == "c7"
    assert span["attributes"]["nodepool.position"] == 7
    assert span["resource"]["attributes"]["service.name"] == "quota"

    # and the outputs name it as their parent
    trace_id, span_id = (span["context"][key][2:] for key in ("trace_id", "span_id"))
    assert named == {f"00-{trace_id}-{span_id}-01"}

    # and it is part of the command's trace, where there is a proper one
    assert (trace_id == TRACE) == (trace == PARENT)
    assert span["parent_id"] == (f"0x{PARENT_SPAN}" if trace == PARENT else None)


def test_the_span_of_a_failed_input_has_an_event_with_field_and_cause(
    capsys: pytest.CaptureFixture[str],
) -> None:
    # given a service that makes spans
    spans = Spans("quota", Settings(traces="console"))

    # when it processes a command that it cannot read
    spans.traced(proposed(content=b'{"zone": "Z"}'))
    spans.close()

    # then the span says what is wrong
    (span,) = map(json.loads, capsys.readouterr().err.splitlines())
    (event,) = span["events"]
    assert event["name"] == "failure"
    assert event["attributes"] == {"field": "instanceType", "cause": "is required"}


def test_spans_change_nothing_but_the_traceparent(capsys: pytest.CaptureFixture[str]) -> None:
    # given what a service proposes
    plain = proposed(PARENT)
    spans = Spans("quota", Settings(traces="console"))

    # when spans are made of it
    traced = spans.traced(plain)
    spans.close()
    capsys.readouterr()

    # then everything is the same but the traceparent of each output
    for before, after in zip(plain.processed, traced.processed, strict=True):
        bare = tuple(e.model_copy(update={"traceparent": PARENT}) for e in after.envelopes)
        assert bare == before.envelopes
    assert replace(traced, processed=plain.processed) == plain


@pytest.mark.parametrize("traceparent", [None, *MALFORMED])
def test_a_malformed_traceparent_has_no_parent(traceparent: str | None) -> None:
    # given a traceparent that does not follow the standard
    # when it is read
    # then there is no parent
    assert parent_context(traceparent) is None
