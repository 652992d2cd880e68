"""What a service shows of itself: a log line for each message, metrics, spans, health.

Decisions know nothing of this: the runtime tells it what was read, processed and stored.
"""

import logging
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from typing import TextIO, TypeVar
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import structlog
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
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, make_wsgi_app
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from pydantic_core import to_json
from structlog.typing import EventDict

from nodepool.contract.events import Wake
from nodepool.contract.messages import Envelope, Message
from nodepool.engine.replica import Processed, Proposal
from nodepool.host.settings import Settings, SettingsError

S = TypeVar("S")
LOG_FILE_BYTES = 16 << 20
LOG_FILES_KEPT = 2
_NO_ROOM = (OSError, ValueError)
"""A full disk, a reader that went away, a file that could not be opened again."""
_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
Logger = structlog.typing.FilteringBoundLogger
Sample = tuple[str, Mapping[str, str], float]
"""A gauge at the moment of a scrape: name, labels, value."""
Samples = Callable[[], Iterable[Sample]]


class Telemetry:
    """One service's log, metrics and spans."""

    def __init__(self, service: str, settings: Settings, samples: Samples | None = None) -> None:
        self.service = service
        self._out = _output(settings)
        self.log = _logger(service, settings, self._out)
        self._lines = _LEVELS[settings.log_level] <= _LEVELS["info"]
        self.registry = CollectorRegistry()
        self._children: dict[tuple[object, ...], Counter] = {}
        self._metrics()
        if samples is not None:
            self.registry.register(_Sampled(samples))
        self._tracing = _tracing(service, settings)
        self._tracer: Tracer | None = (
            self._tracing.get_tracer("nodepool") if self._tracing else None
        )
        self._server: WSGIServer | None = None
        self.ready: Callable[[], bool] = bool
        self.alive: Callable[[], bool] = lambda: True

    def _metrics(self) -> None:
        def counter(name: str, told: str, *labels: str) -> Counter:
            return Counter(f"nodepool_{name}", told, labels, registry=self.registry)

        def gauge(name: str, told: str) -> Gauge:
            return Gauge(f"nodepool_{name}", told, ["service"], registry=self.registry)

        self._handled = counter(
            "messages_handled", "Questions processed.", "service", "message", "outcome"
        )
        self._said = counter("messages_said", "Answers stored.", "service", "message")
        self._commits = counter("commits", "Commits by what became of them.", "service", "result")
        self._dead = counter("dead_letters", "Questions parked unanswered.", "service")
        self.reconnects = counter("reconnects", "Times the bus was found again.", "service").labels(
            self.service
        )
        self._age = Histogram(
            "nodepool_message_age_seconds",
            "From the log's time of an input to its output being stored.",
            ["service"],
            registry=self.registry,
            buckets=(0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 60),
        ).labels(self.service)
        self._commit_s = Histogram(
            "nodepool_commit_seconds",
            "How long the bus took to store a commit.",
            ["service"],
            registry=self.registry,
            buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1, 5),
        ).labels(self.service)
        self.position = gauge("settled_position", "All inputs up to here are committed.").labels(
            self.service
        )
        self.pending = gauge("pending_messages", "Messages not yet looked at.").labels(self.service)
        self.leading = gauge("leading", "1 while this replica outputs.").labels(self.service)

    def handled(self, processed: Iterable[Processed[S]], outcome: str) -> None:
        """Counts and logs each message once it is committed: `outcome` is `stored` or `quiet`."""
        now = datetime.now(UTC)
        stamp = now.isoformat()
        for one in processed:
            envelope = one.input.envelope
            if envelope is None:
                continue
            name = _name(one)
            result = "failure" if one.failure is not None else outcome
            self._child(self._handled, name, result).inc()
            age = (now - one.input.entry.time).total_seconds()
            if one.envelopes:
                self._age.observe(max(0.0, age))
            for said in one.envelopes:
                self._child(self._said, said.type).inc()
            if one.failure is not None:
                self._dead.labels(self.service).inc()
            if self._lines:
                self._line(one, name, result, age, stamp)
        self._out.flush()

    def _child(self, counter: Counter, *labels: str) -> Counter:
        """The counter of these labels; looked up once, for that takes longer than to count."""
        key = (counter, *labels)
        child = self._children.get(key)
        if child is None:
            child = self._children[key] = counter.labels(self.service, *labels)
        return child

    def _line(self, one: Processed[S], name: str, result: str, age: float, stamp: str) -> None:
        envelope = one.input.envelope
        fields: dict[str, object] = {
            "service": self.service,
            "position": one.input.entry.position,
            "id": envelope.id if envelope is not None else "",
            "about": _about(envelope),
            "outcome": result,
            "outputs": [said.type for said in one.envelopes],
            "age_ms": round(age * 1e3, 1),
            "timestamp": stamp,
        }
        if isinstance(envelope, Envelope):
            if envelope.correlationid:
                fields["correlation"] = envelope.correlationid
            if envelope.traceparent:
                fields["trace"] = envelope.traceparent[3:35]
        if one.failure is not None:
            fields |= {"field": one.failure.field, "cause": one.failure.cause}
        fields["event"] = name
        fields["level"] = "info" if one.failure is None else "warning"
        # Straight to the renderer: the logger's other processors would add nothing to this line.
        self._out.msg(str(_RENDERER(None, "info", fields)))

    def committed(self, seconds: float, result: str) -> None:
        """Counts one commit and how long it took."""
        self._commits.labels(self.service, result).inc()
        self._commit_s.observe(seconds)

    def traced(self, proposal: Proposal[S]) -> Proposal[S]:
        """The proposal with a span for each message, which its outputs name as their parent."""
        tracer = self._tracer
        if tracer is None:
            return proposal
        processed = tuple(self._span(tracer, one) for one in proposal.processed)
        return replace(proposal, processed=processed)

    def _span(self, tracer: Tracer, one: Processed[S]) -> Processed[S]:
        envelope = one.input.envelope
        if envelope is None:
            return one
        parent = envelope.traceparent if isinstance(envelope, Envelope) else None
        name = _name(one)
        span = tracer.start_span(
            f"process {name}",
            context=_context(parent),
            kind=SpanKind.CONSUMER,
            attributes={
                "messaging.system": "nats",
                "messaging.operation.type": "process",
                "messaging.destination.name": one.input.entry.subject,
                "messaging.message.id": envelope.id,
                "nodepool.position": one.input.entry.position,
                "nodepool.outputs": [said.type for said in one.envelopes],
            },
        )
        if one.failure is not None:
            span.add_event("failure", {"field": one.failure.field, "cause": one.failure.cause})
        span.end()
        context = span.get_span_context()
        trace = f"00-{format_trace_id(context.trace_id)}-{format_span_id(context.span_id)}-01"
        # An output to the clock goes on with the trace of what it is about, where that is known.
        said = tuple(
            e
            if name == Wake.__name__ and e.traceparent
            else e.model_copy(update={"traceparent": trace})
            for e in one.envelopes
        )
        return one._replace(envelopes=said)

    def serve(self, settings: Settings) -> int:
        """Serves /metrics, /livez and /readyz; the port, -1 where none is wanted.

        Raises SettingsError where nobody can listen there, as on a port that is taken.
        """
        host, port = settings.metrics_host, settings.metrics_port
        if port < 0:
            return -1
        try:
            self._server = make_server(host, port, self._page, handler_class=_Silent)
        except OSError as error:
            reason = error.strerror or str(error)
            raise SettingsError(f"cannot serve metrics on {host}:{port}: {reason}") from error
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self._server.server_port

    def _page(self, environ: dict[str, object], start: Callable[..., object]) -> Iterable[bytes]:
        match environ.get("PATH_INFO"):
            case "/metrics":
                pages: Iterable[bytes] = make_wsgi_app(self.registry)(environ, start)
                return pages
            case "/livez":
                good = self.alive()
            case "/readyz":
                good = self.ready()
            case _:
                start("404 Not Found", [("Content-Type", "text/plain")])
                return [b"see /metrics, /livez, /readyz\n"]
        start("200 OK" if good else "503 Service Unavailable", [("Content-Type", "text/plain")])
        return [b"ok\n" if good else b"not now\n"]

    def close(self) -> None:
        """Ends the page and sends what spans are left."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
        if self._tracing is not None:
            self._tracing.shutdown()
        self._out.close()


class _Silent(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """A scrape is nothing to log."""


class _Sampled(Collector):
    def __init__(self, samples: Samples) -> None:
        self._samples = samples

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The gauges of this moment, a family for each name."""
        families: dict[str, GaugeMetricFamily] = {}
        for name, labels, value in self._samples():
            if name not in families:
                families[name] = GaugeMetricFamily(name, _GAUGES[name], labels=list(labels))
            families[name].add_metric(list(labels.values()), value)
        yield from families.values()


_GAUGES = {
    "nodepool_target_nodes": "Nodes a NodePool wants.",
    "nodepool_current_nodes": "Nodes of a NodePool registered and not deleted.",
    "nodepool_in_progress_nodes": "Nodes of a NodePool assigned and not yet registered.",
    "nodepool_status_condition": "1 for the status and reason that a condition has now.",
    "nodepool_quota_limit_nodes": "Nodes an organisation may hold.",
    "nodepool_quota_used_nodes": "Nodes an organisation is granted.",
    "nodepool_machines": "Machines by what they are doing.",
}


def _name(one: Processed[S]) -> str:
    envelope = one.input.envelope
    return (
        envelope.type
        if isinstance(envelope, Envelope)
        else (envelope.address.name if envelope is not None else "")
    )


def _about(envelope: object) -> str:
    match envelope:
        case Envelope(data=Message() as message):
            return "/".join(message.path)
        case None:
            return ""
    address = getattr(envelope, "address", None)
    return "/".join(address.path) if address is not None else ""


def _output(settings: Settings) -> "_Output":
    if not settings.log_file:
        return _Output(sys.stdout)
    try:
        return _Rotating(settings.log_file)
    except OSError as error:
        reason = error.strerror or str(error)
        raise SettingsError(f"cannot write a log to {settings.log_file}: {reason}") from error


class _Output:
    """Where log lines go; flushed once a batch."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def msg(self, line: str) -> None:
        """Takes one line; one that cannot be kept is lost, which is no reason to stop."""
        with suppress(*_NO_ROOM):
            self._stream.write(f"{line}\n")

    def flush(self) -> None:
        """Hands over what was taken."""
        with suppress(*_NO_ROOM):
            self._stream.flush()

    def close(self) -> None:
        """Hands over the last lines."""
        self.flush()

    log = debug = info = warning = error = critical = exception = msg


class _Rotating(_Output):
    """A log file of bounded size, with the ones before it kept beside it."""

    def __init__(self, path: str) -> None:
        self._handler = RotatingFileHandler(
            path, maxBytes=LOG_FILE_BYTES, backupCount=LOG_FILES_KEPT, delay=False
        )
        super().__init__(self._opened())

    def _opened(self) -> TextIO:
        stream = self._handler.stream
        assert stream is not None, "a handler without a delay opens its file at once"
        return stream

    def flush(self) -> None:
        """Hands over what was taken, to a new file once this one is full."""
        super().flush()
        with suppress(*_NO_ROOM):
            if self._stream.tell() > LOG_FILE_BYTES:
                self._handler.doRollover()
                self._stream = self._opened()

    def close(self) -> None:
        """Hands over the last lines, and lets go of the file."""
        super().flush()
        with suppress(*_NO_ROOM):
            self._handler.close()

    log = debug = info = warning = error = critical = exception = _Output.msg


def _logger(service: str, settings: Settings, out: _Output) -> Logger:
    logger: Logger = structlog.wrap_logger(
        out,
        processors=[
            structlog.processors.add_log_level,
            _stamped,
            structlog.processors.dict_tracebacks,
            _RENDERER,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[settings.log_level]),
    ).bind(service=service)
    return logger


def _stamped(_logger: object, _name: str, fields: EventDict) -> EventDict:
    # The lines of one batch share a moment; whoever has none gets this one.
    if "timestamp" not in fields:
        fields["timestamp"] = datetime.now(UTC).isoformat()
    return fields


def _json(fields: EventDict, **_settings: object) -> str:
    return to_json(fields, fallback=str).decode()


_RENDERER = structlog.processors.JSONRenderer(serializer=_json)


def _tracing(service: str, settings: Settings) -> TracerProvider | None:
    if settings.traces == "off":
        return None
    provider = TracerProvider(resource=Resource.create({"service.name": service}))
    provider.add_span_processor(BatchSpanProcessor(_exporter(settings)))
    return provider


def _exporter(settings: Settings) -> SpanExporter:
    if settings.traces == "console":
        return ConsoleSpanExporter(
            out=sys.stderr, formatter=lambda span: f"{span.to_json(indent=None)}\n"
        )
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter()


def _context(parent: str | None) -> Context | None:
    parts = (parent or "").split("-")
    if len(parts) != 4 or len(parts[1]) != 32 or len(parts[2]) != 16:
        return None
    try:
        trace, span = int(parts[1], 16), int(parts[2], 16)
    except ValueError:
        return None
    found = SpanContext(trace, span, is_remote=True, trace_flags=TraceFlags(1))
    return set_span_in_context(NonRecordingSpan(found))


logging.getLogger("opentelemetry").setLevel(logging.ERROR)
