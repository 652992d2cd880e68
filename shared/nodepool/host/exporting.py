"""Where the OpenTelemetry spans of a process are sent, and how the process is identified in them.

Sampling, the interval of exports and their destination are set by the standard variables of
OpenTelemetry, see
https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/.
"""

import logging
import sys
from threading import Thread
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from opentelemetry.context import Context
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from nodepool.host.settings import SettingsError, Traces
from nodepool.host.version import version_of

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

SCHEMA: Final = "https://opentelemetry.io/schemas/1.43.0"
"""The release of the semantic conventions that names and attributes follow."""
SYSTEM: Final = "nats"
"""The value of `messaging.system`."""
CLOSE_S: Final = 3.0
"""How long an ending process waits until its last spans are received, in seconds."""


class Ids(IdGenerator):
    """Gives the next span the ids that were set before.

    trace: the trace id for a span without a parent. span: the id of the span itself.
    """

    def __init__(self) -> None:
        self.trace = self.span = 0

    def generate_trace_id(self) -> int:
        """Return the id of the trace that a span without a parent begins."""
        return self.trace

    def generate_span_id(self) -> int:
        """Return the id of the next span."""
        return self.span


class Exporting:
    """Makes the tracer of a process, and sends its spans in the background.

    At most `OTEL_BSP_MAX_QUEUE_SIZE` spans wait to be sent, 2048 by default; beyond that, the
    oldest span is lost. Only `close` waits for the receiver, for a few seconds.

    provider: for a program whose libraries make spans. tracer: for spans of this project.

    Raises SettingsError if a package that it needs is not installed.
    """

    def __init__(self, service: str, traces: Traces, ids: IdGenerator | None = None) -> None:
        self.provider = TracerProvider(
            resource=_resource(service), id_generator=ids, shutdown_on_exit=False
        )
        self.provider.add_span_processor(BatchSpanProcessor(_exporter(traces)))
        self.tracer: Tracer = self.provider.get_tracer("nodepool", version_of(), SCHEMA)

    def close(self) -> None:
        """Send the remaining spans, if the receiver takes them in time."""
        # The exporter's own shutdown waits much longer for a receiver that does not respond.
        closing = Thread(target=self.provider.shutdown, daemon=True)
        closing.start()
        closing.join(CLOSE_S)


def context_of(traceparent: str | None, tracestate: str | None) -> Context | None:
    """Return the span that a `traceparent` names; None if it is missing or malformed."""
    if traceparent is None:
        return None
    carrier = {"traceparent": traceparent}
    if tracestate is not None:
        carrier["tracestate"] = tracestate
    return _PROPAGATOR.extract(carrier) or None


_PROPAGATOR: Final = TraceContextTextMapPropagator()


def _resource(service: str) -> Resource:
    """Return who makes the spans; `OTEL_RESOURCE_ATTRIBUTES` may set all but the service name."""
    given = OTELResourceDetector().detect()
    own = {
        "service.namespace": "nodepool",
        "service.version": version_of(),
        "service.instance.id": str(uuid4()),
    }
    return Resource.create(own).merge(given).merge(Resource({"service.name": service}))


def _exporter(traces: Traces) -> SpanExporter:
    if traces == "console":
        return ConsoleSpanExporter(
            out=sys.stderr, formatter=lambda span: f"{span.to_json(indent=None)}\n"
        )
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        # It quotes a header that it cannot read, which may be a password.
        logging.getLogger("opentelemetry.util.re").disabled = True
    except ImportError:
        text = "NODEPOOL_TRACES is 'otlp', which needs more packages: pip install 'nodepool[otlp]'"
        raise SettingsError(text) from None
    return OTLPSpanExporter()
