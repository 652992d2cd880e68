"""Spans: one for each processed input, which its outputs name as their parent."""

import json
from dataclasses import replace

import pytest

from nodepool.contract.events import Wake
from nodepool.contract.log import LogId
from nodepool.engine.proposal import Proposal
from nodepool.host.exporting import context_of
from nodepool.host.spans import Spans
from quota import Hears
from quota.state import State
from support.proposals import proposed, wake_entry

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT_SPAN = "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{PARENT_SPAN}-01"
NOT_SAMPLED = f"00-{TRACE}-{PARENT_SPAN}-00"
MALFORMED = (
    "nonsense",
    "",
    "---",
    f"00-{'z' * 32}-{PARENT_SPAN}-01",
    f"00-{TRACE}-1-01",
    f"00-{'0' * 32}-{PARENT_SPAN}-01",
    f"00-{TRACE}-{'0' * 16}-01",
    f"ff-{TRACE}-{PARENT_SPAN}-01",
    f"00-{TRACE.upper()}-{PARENT_SPAN}-01",
    f"00-{TRACE}-{PARENT_SPAN}-01-more",
)
LOG = LogId("a log")


def stored(spans: Spans, proposal: Proposal[State, Hears]) -> Proposal[State, Hears]:
    """A proposal with spans, which was stored."""
    spans.begin(LOG)
    traced = spans.trace_proposal(proposal)
    spans.end_spans(traced.processed)
    return traced


def traceparents(proposal: Proposal[State, Hears]) -> set[str | None]:
    return {output.traceparent for item in proposal.processed for output in item.envelopes}


def exported(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    """The spans that were written since."""
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def part(span: dict[str, object], name: str) -> dict[str, object]:
    value = span[name]
    assert isinstance(value, dict)
    return value


def on_console() -> Spans:
    """A service that makes spans, and writes them to standard error."""
    return Spans("quota", "console")


@pytest.mark.parametrize("trace", [PARENT, None, *MALFORMED])
def test_with_traces_outputs_name_the_span_of_their_command(
    capsys: pytest.CaptureFixture[str], trace: str | None
) -> None:
    # given a service that makes spans
    console = on_console()

    # when it processes a command: with a trace, without one, with a malformed one
    named = traceparents(stored(console, proposed(trace)))
    console.close()

    # then there is one span of the command, and the outputs name it as their parent
    (span,) = exported(capsys)
    trace_id, span_id = (str(part(span, "context")[key])[2:] for key in ("trace_id", "span_id"))
    assert named == {f"00-{trace_id}-{span_id}-01"}

    # and it is part of the command's trace, where there is a proper one
    assert (trace_id == TRACE) == (trace == PARENT)
    assert span["parent_id"] == (f"0x{PARENT_SPAN}" if trace == PARENT else None)


def test_a_span_has_the_attributes_of_the_messaging_conventions(
    capsys: pytest.CaptureFixture[str],
) -> None:
    # given a service that makes spans
    console = on_console()

    # when it processes a command
    proposal = proposed(PARENT)
    stored(console, proposal)
    console.close()

    # then its span says what of, by the names that such spans have everywhere
    (span,) = exported(capsys)
    assert span["name"] == "process np.cmd.{org}._._.SetQuota"
    assert span["kind"] == "SpanKind.CONSUMER"
    assert span["attributes"] == {
        "messaging.system": "nats",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "np.cmd.acme._._.SetQuota",
        "messaging.destination.template": "np.cmd.{org}._._.SetQuota",
        "messaging.consumer.group.name": "quota",
        "messaging.message.id": "c7",
        "messaging.message.conversation_id": "c7",
        "messaging.message.body.size": len(proposal.processed[0].input.entry.content),
        "nodepool.position": 7,
        "nodepool.outputs": ["CommandAccepted", "QuotaSet"],
    }
    resource = part(part(span, "resource"), "attributes")
    assert (resource["service.name"], resource["service.namespace"]) == ("quota", "nodepool")
    assert resource["service.version"]
    assert resource["service.instance.id"]


def test_the_span_of_a_failed_input_is_an_error_that_names_field_and_cause(
    capsys: pytest.CaptureFixture[str],
) -> None:
    # given a service that makes spans
    console = on_console()

    # when it processes a command that it cannot read
    stored(console, proposed(content=b'{"zone": "Z"}'))
    console.close()

    # then the span says what is wrong
    (span,) = exported(capsys)
    status = {"status_code": "ERROR", "description": "instanceType: is required"}
    assert span["status"] == status
    assert part(span, "attributes")["error.type"] == "unreadable"


def test_spans_change_nothing_but_the_traceparent() -> None:
    # given what a service proposes
    console = on_console()
    plain = proposed(PARENT)

    # when spans are made of it
    traced = stored(console, plain)
    console.close()

    # then everything is the same but the traceparent of each output
    for before, after in zip(plain.processed, traced.processed, strict=True):
        bare = tuple(e.model_copy(update={"traceparent": PARENT}) for e in after.envelopes)
        assert bare == before.envelopes
    assert replace(traced, processed=plain.processed) == plain


def test_a_command_that_is_not_sampled_has_no_span_and_neither_has_what_follows(
    capsys: pytest.CaptureFixture[str],
) -> None:
    # given a command whose sender has decided that its trace is not sampled
    console = on_console()
    # when it is processed
    named = traceparents(stored(console, proposed(NOT_SAMPLED)))
    console.close()

    # then there is no span, and the outputs say the same to the next service
    assert exported(capsys) == []
    (traceparent,) = named
    assert str(traceparent).startswith(f"00-{TRACE}-")
    assert str(traceparent).endswith("-00")


def test_the_sampler_of_every_opentelemetry_program_is_honoured(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a service whose environment says that nothing is sampled that is not already
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_always_off")
    spans = on_console()

    # when it processes a command without a trace, and one with a sampled one
    stored(spans, proposed())
    stored(spans, proposed(PARENT))
    spans.close()

    # then there is a span of the latter
    assert [span["parent_id"] for span in exported(capsys)] == [f"0x{PARENT_SPAN}"]


def test_a_commit_that_was_refused_leaves_no_span(capsys: pytest.CaptureFixture[str]) -> None:
    # given a batch with spans that was not stored, since another replica was quicker
    console = on_console()
    console.begin(LOG)
    console.trace_proposal(proposed(PARENT))

    # when the next batch is
    stored(console, proposed(position=9))
    console.close()

    # then there is no span of the first: the other replica makes one
    assert [part(span, "attributes")["nodepool.position"] for span in exported(capsys)] == [9]


def test_a_commit_in_doubt_that_was_stored_has_the_spans_that_its_outputs_name(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a clock, and a batch of a command and of a `Wake` from which something follows
    times = iter([1_000_000_000, 2_000_000_000, 3_000_000_000])
    monkeypatch.setattr("nodepool.host.spans.time_ns", lambda: next(times))
    console = on_console()
    (command,) = proposed(PARENT).processed
    (wake,) = proposed(content=b"", also=[wake_entry(8)]).processed[1:]
    outputs = tuple(each.model_copy(update={"id": f"8{each.id}"}) for each in command.envelopes)
    proposal = replace(proposed(), processed=(command, wake._replace(envelopes=outputs)))

    # when it is decided on in the first second, again in the second, and then known to be stored
    named = []
    for _ in range(2):
        console.begin(LOG)
        named.append(traceparents(console.trace_proposal(proposal)))
    console.end_spans(console.trace_proposal(proposal).processed)
    console.close()

    # then there is one span of each, which began when it was decided on for the first time
    spans = exported(capsys)
    ids = {str(part(span, "context")["span_id"])[2:] for span in spans}
    assert named == [{f"00-{TRACE}-{id}-01" for id in ids}] * 2
    assert len(spans) == len(ids) == 2
    assert {(span["start_time"], span["end_time"]) for span in spans} == {
        ("1970-01-01T00:00:01.000000Z", "1970-01-01T00:00:03.000000Z")
    }
    assert [part(span, "attributes")["nodepool.outputs"] for span in spans] == [
        ["CommandAccepted", "QuotaSet"]
    ] * 2


def test_the_same_input_makes_the_same_span_whatever_processes_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    # given two replicas of a service that make spans
    # when both process the same command, which has no trace
    for _ in range(2):
        spans = on_console()
        stored(spans, proposed())
        spans.close()

    # then their spans have the same ids
    first, second = exported(capsys)
    assert first["context"] == second["context"]


def test_a_wake_from_which_nothing_follows_has_no_span(capsys: pytest.CaptureFixture[str]) -> None:
    # given a batch of a command, and of a `Wake` before its time
    console = on_console()
    proposal = proposed(PARENT, also=[wake_entry(8)])
    assert isinstance(proposal.processed[1].input.message, Wake)

    # when it is processed
    stored(console, proposal)
    console.close()

    # then there is one span, of the command
    assert [part(span, "attributes")["nodepool.position"] for span in exported(capsys)] == [7]


def test_a_span_lasts_from_the_decision_until_the_batch_is_stored(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a clock
    console = on_console()
    times = iter([1_000_000_000, 3_000_000_000])
    monkeypatch.setattr("nodepool.host.spans.time_ns", lambda: next(times))

    # when a batch is decided on in the first second, and stored in the third
    stored(console, proposed(PARENT))
    console.close()

    # then the span lasts from the one to the other
    (span,) = exported(capsys)
    assert (span["start_time"], span["end_time"]) == (
        "1970-01-01T00:00:01.000000Z",
        "1970-01-01T00:00:03.000000Z",
    )


def test_the_span_of_an_input_without_a_trace_goes_on_with_the_trace_of_its_outputs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    # given an input without a trace, and outputs in the trace of the object that they are about
    console = on_console()
    proposal = proposed()
    (item,) = proposal.processed
    outputs = tuple(each.model_copy(update={"traceparent": PARENT}) for each in item.envelopes)

    # when it is processed
    item = item._replace(envelopes=outputs)
    named = traceparents(stored(console, replace(proposal, processed=(item,))))
    console.close()

    # then it has one span, in that trace, which the outputs name
    (span,) = exported(capsys)
    assert span["parent_id"] == f"0x{PARENT_SPAN}"
    assert named == {f"00-{TRACE}-{str(part(span, 'context')['span_id'])[2:]}-01"}


@pytest.mark.parametrize("traceparent", [None, *MALFORMED])
def test_a_malformed_traceparent_has_no_parent(traceparent: str | None) -> None:
    # given a traceparent that does not follow the standard
    # when it is read
    # then there is no parent
    assert context_of(traceparent, None) is None
