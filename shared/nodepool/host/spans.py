"""OpenTelemetry spans: one for each processed input, which its outputs name as their parent.

The attributes follow https://opentelemetry.io/docs/specs/semconv/messaging/messaging-spans/, the
`traceparent` of a message follows https://www.w3.org/TR/trace-context/.
"""

import logging
import sys
from dataclasses import replace

from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    TraceFlags,
    Tracer,
    format_span_id,
    format_trace_id,
    set_span_in_context,
)

from nodepool.contract.decode import Unreadable
from nodepool.contract.events import Wake
from nodepool.contract.messages import Envelope
from nodepool.engine.proposal import Processed, Proposal
from nodepool.host.settings import Settings
from nodepool.service import I, S


class Spans:
    """Makes the spans of one service; none where traces are off."""

    def __init__(self, service: str, settings: Settings) -> None:
        self._provider: TracerProvider | None = None
        self._tracer: Tracer | None = None
        if settings.traces != "off":
            self._provider = TracerProvider(resource=Resource.create({"service.name": service}))
            self._provider.add_span_processor(BatchSpanProcessor(_exporter(settings)))
            self._tracer = self._provider.get_tracer("nodepool")

    def traced(self, proposal: Proposal[S, I]) -> Proposal[S, I]:
        """The proposal with a span for each input; unchanged where traces are off."""
        tracer = self._tracer
        if tracer is None:
            return proposal
        processed = tuple(_traced(tracer, item) for item in proposal.processed)
        return replace(proposal, processed=processed)

    def close(self) -> None:
        """Sends the spans that are left."""
        if self._provider is not None:
            self._provider.shutdown()


def _traced(tracer: Tracer, item: Processed[I]) -> Processed[I]:
    envelope = item.input.envelope
    if envelope is None:
        return item
    traceparent = _span(tracer, item, envelope)
    # The outputs of a `Wake` go on with the trace of the object they are about, where it is known.
    keeps_own = isinstance(envelope, Envelope) and envelope.type == Wake.__name__
    outputs = tuple(
        output
        if keeps_own and output.traceparent
        else output.model_copy(update={"traceparent": traceparent})
        for output in item.envelopes
    )
    return item._replace(envelopes=outputs)


def _span(tracer: Tracer, item: Processed[I], envelope: Envelope[I | Wake] | Unreadable) -> str:
    """Makes the span of an input; its `traceparent`."""
    if isinstance(envelope, Envelope):
        name, traceparent = envelope.type, envelope.traceparent
    else:
        name, traceparent = envelope.address.name, None
    span = tracer.start_span(
        f"process {name}",
        context=parent_context(traceparent),
        kind=SpanKind.CONSUMER,
        attributes={
            "messaging.system": "nats",
            "messaging.operation.type": "process",
            "messaging.destination.name": item.input.entry.subject,
            "messaging.message.id": envelope.id,
            "nodepool.position": item.input.entry.position,
            "nodepool.outputs": [output.type for output in item.envelopes],
        },
    )
    if item.failure is not None:
        span.add_event("failure", {"field": item.failure.field, "cause": item.failure.cause})
    span.end()
    context = span.get_span_context()
    return f"00-{format_trace_id(context.trace_id)}-{format_span_id(context.span_id)}-01"


def parent_context(traceparent: str | None) -> Context | None:
    """The span that a `traceparent` names; None where it is missing or malformed."""
    parts = (traceparent or "").split("-")
    if len(parts) != 4 or len(parts[1]) != 32 or len(parts[2]) != 16:
        return None
    try:
        trace, span = int(parts[1], 16), int(parts[2], 16)
    except ValueError:
        return None
    parent = SpanContext(trace, span, is_remote=True, trace_flags=TraceFlags(1))
    return set_span_in_context(NonRecordingSpan(parent))


def _exporter(settings: Settings) -> SpanExporter:
    if settings.traces == "console":
        return ConsoleSpanExporter(
            out=sys.stderr, formatter=lambda span: f"{span.to_json(indent=None)}\n"
        )
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter()


# The exporter's own log would mix with the service's.
logging.getLogger("opentelemetry").setLevel(logging.ERROR)
