"""OpenTelemetry spans: one for each processed input, which its outputs name as their parent.

Names and attributes follow https://opentelemetry.io/docs/specs/semconv/messaging/messaging-spans/.

A span begins when its input is first decided on, and ends when the outputs are stored. Without
outputs, it ends when the input is folded. So neither a refused commit nor a replay makes a span.
Ids derive from the log, the service and the position. So a span that is made twice has the same
ids, for example if a commit in doubt is made again or turns out to be stored.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from hashlib import blake2b
from time import time_ns

from opentelemetry.trace import (
    Span,
    SpanKind,
    Status,
    StatusCode,
    format_span_id,
    format_trace_id,
)

from nodepool.contract.events import Wake
from nodepool.contract.log import NO_ID, LogId
from nodepool.contract.messages import Envelope
from nodepool.contract.subjects import template_of
from nodepool.engine.correlation import Correlation, correlation_of
from nodepool.engine.proposal import Processed, Proposal
from nodepool.host.exporting import SYSTEM, Exporting, Ids, context_of
from nodepool.host.logs import OUTPUTS_SHOWN, SpanIds
from nodepool.host.settings import Traces
from nodepool.service import I, S


class Spans:
    """Makes the spans of one service.

    The order of calls: `begin`, then `trace_proposal` if the batch must be stored, then `end_spans`
    once the batch is known to be stored. If a batch in doubt turns out to be stored,
    `trace_proposal` is called again before `end_spans`.
    """

    def __init__(self, service: str, traces: Traces) -> None:
        self._service = service
        self._ids = Ids()
        self._exporting = Exporting(service, traces, self._ids)
        self._log = NO_ID
        self._began = 0
        self._starts: dict[int, int] = {}
        self._open: dict[int, Mapping[str | None, Span]] = {}

    def begin(self, log: LogId) -> None:
        """Begin to process the next batch of inputs of this log now."""
        if log != self._log:
            self._starts = {}
        self._log, self._began = log, time_ns()

    def trace_proposal(self, proposal: Proposal[S, I]) -> Proposal[S, I]:
        """Return the proposal with a span begun for each input, which its outputs name."""
        self._open.clear()
        before, positions = self._starts, (each.input.entry.position for each in proposal.processed)
        self._starts = {position: before.get(position, self._began) for position in positions}
        return replace(proposal, processed=tuple(map(self._trace_input, proposal.processed)))

    def end_spans(self, processed: Iterable[Processed[I]]) -> Mapping[int, SpanIds]:
        """End the spans of processed inputs; return the ids of one span per input, by position."""
        ids: dict[int, SpanIds] = {}
        now = time_ns()
        for item in processed:
            position = item.input.entry.position
            spans = self._open.pop(position, None)
            for span in (self._begun(item) if spans is None else spans).values():
                span.end(now)
                if position not in ids:
                    ids[position] = _ids(span)
        return ids

    def close(self) -> None:
        """Send the remaining spans."""
        self._exporting.close()

    def _trace_input(self, item: Processed[I]) -> Processed[I]:
        spans = self._open[item.input.entry.position] = self._begun(item)
        named = {traceparent: _build_attributes(span) for traceparent, span in spans.items()}
        outputs = tuple(
            output.model_copy(update=named[output.traceparent]) for output in item.envelopes
        )
        return item._replace(envelopes=outputs)

    def _begun(self, item: Processed[I]) -> Mapping[str | None, Span]:
        """Return the spans of an input, by the `traceparent` that its outputs came with.

        An input has one span. A `Wake` has a span in each trace that it continues.
        """
        return {parent.traceparent: self._span(item, parent) for parent in _parents(item)}

    def _span(self, item: Processed[I], parent: Correlation) -> Span:
        position = item.input.entry.position
        origin = f"{self._log}/{self._service}/{position}/{parent.traceparent or ''}"
        digest = blake2b(origin.encode(), digest_size=24).digest()
        self._ids.trace = int.from_bytes(digest[:16])
        self._ids.span = int.from_bytes(digest[16:])
        template, id = _message(item)
        span = self._exporting.tracer.start_span(
            f"process {template}",
            context=context_of(parent.traceparent, parent.tracestate),
            kind=SpanKind.CONSUMER,
            start_time=self._starts.get(position, self._began) or None,
        )
        # Most spans are not recorded if few are sampled.
        if span.is_recording():
            self._describe(span, item, parent, template, id)
        return span

    def _describe(
        self, span: Span, item: Processed[I], parent: Correlation, template: str, id: str
    ) -> None:
        entry = item.input.entry
        attributes: dict[str, str | int | list[str]] = {
            "messaging.system": SYSTEM,
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.destination.name": entry.subject,
            "messaging.destination.template": template,
            "messaging.consumer.group.name": self._service,
            "messaging.message.id": id,
            "messaging.message.body.size": len(entry.content),
            "nodepool.position": entry.position,
            "nodepool.outputs": [
                output.type
                for output in item.envelopes[:OUTPUTS_SHOWN]
                if output.traceparent == parent.traceparent
            ],
        }
        correlation = _correlation(item)
        if correlation:
            attributes["messaging.message.conversation_id"] = correlation
        failure = item.failure
        if failure is not None:
            place = f"{failure.field}: " if failure.field else ""
            span.set_status(Status(StatusCode.ERROR, f"{place}{failure.cause}"))
            attributes["error.type"] = "bug" if failure.is_bug else "unreadable"
        span.set_attributes(attributes)


def _parents(item: Processed[I]) -> tuple[Correlation, ...]:
    """Return the correlations that the spans of an input continue.

    They are the correlations of the input's outputs. For an event without a trace, such as an
    agent's event, that is the trace of the object that the event is about. A `Wake` belongs to no
    trace: its outputs continue the trace of each object, and a `Wake` without outputs has no span.
    """
    envelope = item.input.envelope
    traces = {output.traceparent: correlation_of(output) for output in item.envelopes}
    if not (isinstance(envelope, Envelope) and isinstance(envelope.data, Wake)):
        return tuple(traces.values()) or (correlation_of(envelope),)
    if item.failure is not None:
        traces.setdefault(None, Correlation())
    return tuple(traces.values())


def _message(item: Processed[I]) -> tuple[str, str]:
    """Return the template of an input's subject, and its id."""
    envelope = item.input.envelope
    if isinstance(envelope, Envelope):
        return template_of(type(envelope.data)), envelope.id
    name = item.input.entry.subject.rpartition(".")[2]
    return f"np.cmd.*.*.*.{name}", envelope.id


def _correlation(item: Processed[I]) -> str | None:
    """Return the command that an input follows from; by default that of its first output."""
    own = item.input.envelope.correlationid
    return own or next((each.correlationid for each in item.envelopes if each.correlationid), None)


def _build_attributes(span: Span) -> dict[str, str | None]:
    """Return the attributes of a message whose parent is this span."""
    context = span.get_span_context()
    return {
        "traceparent": f"00-{'-'.join(_ids(span))}-{context.trace_flags:02x}",
        "tracestate": context.trace_state.to_header() or None,
    }


def _ids(span: Span) -> SpanIds:
    context = span.get_span_context()
    return SpanIds(format_trace_id(context.trace_id), format_span_id(context.span_id))
