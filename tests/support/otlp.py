"""A receiver of OpenTelemetry spans over HTTP, see https://opentelemetry.io/docs/specs/otlp/."""

import gzip
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan

KINDS = {
    WireSpan.SPAN_KIND_PRODUCER: "producer",
    WireSpan.SPAN_KIND_CONSUMER: "consumer",
}


class Span(NamedTuple):
    """A span that was received; ids in hexadecimal digits, times in nanoseconds."""

    service: str
    name: str
    kind: str
    trace: str
    id: str
    parent: str
    start: int
    end: int
    attributes: Mapping[str, object]
    resource: Mapping[str, object]
    schema: str


class Receiver:
    """The spans that were received so far, and the path of every request."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.paths: set[str] = set()
        self.endpoint = ""

    def take(self, path: str, body: bytes) -> None:
        """Decodes one request."""
        self.paths.add(path)
        for group in ExportTraceServiceRequest.FromString(body).resource_spans:
            resource = _values(group.resource.attributes)
            for scope in group.scope_spans:
                self.spans += [_span(each, resource, scope.schema_url) for each in scope.spans]


@contextmanager
def receiving() -> Iterator[Receiver]:
    """A receiver on a free port of this machine."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            is_packed = self.headers.get("Content-Encoding") == "gzip"
            receiver.take(self.path, gzip.decompress(body) if is_packed else body)
            content = ExportTraceServiceResponse().SerializeToString()
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: the spans are what is looked at."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        receiver.endpoint = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield receiver
        server.shutdown()
        thread.join()


def _span(span: WireSpan, resource: Mapping[str, object], schema: str) -> Span:
    return Span(
        service=str(resource["service.name"]),
        name=span.name,
        kind=KINDS.get(span.kind, str(span.kind)),
        trace=span.trace_id.hex(),
        id=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        start=span.start_time_unix_nano,
        end=span.end_time_unix_nano,
        attributes=_values(span.attributes),
        resource=resource,
        schema=schema,
    )


def _values(attributes: Iterable[KeyValue]) -> Mapping[str, object]:
    return {each.key: _value(each.value) for each in attributes}


def _value(value: AnyValue) -> object:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(each) for each in value.array_value.values]
    return getattr(value, str(kind))
