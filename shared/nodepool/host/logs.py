"""The log of a service: one JSON object per line, to standard output or files of limited size."""

import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from nodepool.contract.decode import Unreadable
from nodepool.contract.events import Wake
from nodepool.contract.events.kubernetes import KubernetesEvent
from nodepool.contract.keys import path_text
from nodepool.contract.log import Entry
from nodepool.contract.messages import Envelope, Message, OfNode
from nodepool.engine.proposal import Processed
from nodepool.host.lines import line_of
from nodepool.host.output import Immediate, open_output
from nodepool.host.repeats import Repeats
from nodepool.host.settings import Settings
from nodepool.nats.wire.postponed import postpone
from nodepool.service import I

# Where rich is installed, structlog imports it to draw the tracebacks that a terminal shows.
with postpone("rich"):
    import structlog
    from structlog.typing import EventDict

TEXT_MAX = 1_000
"""The longest text in a line, in characters."""
OUTPUTS_SHOWN = 100
"""The most outputs that the line of an input names; the line says how many more there are."""
MESSAGES_SHOWN = 8
"""For how many outputs the line of an input contains the sentence that users see."""
FRAMES_MAX = 30
"""The most frames that are shown of each exception in a chain."""
Logger = structlog.typing.FilteringBoundLogger

LIMITED = frozenset({"warning", "error"})
"""The levels at which repeated lines are limited, see `Repeats`."""

_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


class SpanIds(NamedTuple):
    """The trace id and the span id of a span, in hexadecimal digits."""

    trace: str
    span: str


def _json(fields: EventDict, **_settings: object) -> str:
    return line_of(fields)


_RENDERER = structlog.processors.JSONRenderer(serializer=_json)
# Without local variables, which include addresses with passwords.
_EXCEPTIONS = structlog.processors.ExceptionRenderer(
    structlog.tracebacks.ExceptionDictTransformer(show_locals=False, max_frames=FRAMES_MAX)
)


class Folded:
    """The inputs of a batch that a service only folds: they had no output and did not fail.

    inputs: how many inputs of each type. first, last: their first and their last position.
    oldest: when the log stored the first of them.
    """

    def __init__(self) -> None:
        self.inputs = Counter[str]()
        self.first = self.last = 0
        self.oldest: datetime | None = None

    def add(self, name: str, entry: Entry) -> None:
        """Add an input, given by the name on its subject and its place in the log."""
        self.inputs[name] += 1
        self.last = entry.position
        if self.oldest is None:
            self.first, self.oldest = entry.position, entry.time


class ServiceLog:
    """The log of one service: `logger` for single lines, `message` and `batch` for its inputs.

    A single line is flushed at once. If a warning or an error repeats an earlier line word for
    word, it is logged only at growing intervals; `left_out` says how many repeats were left out.

    Raises SettingsError if the log file cannot be opened.
    """

    def __init__(self, service: str, settings: Settings) -> None:
        self._service = service
        self._output = open_output(settings.log_file)
        self._repeats = Repeats()
        level = _LEVELS[settings.log_level]
        self.logger: Logger = structlog.wrap_logger(
            Immediate(self._output),
            processors=[
                structlog.processors.add_log_level,
                _EXCEPTIONS,
                _cut_fields,
                self._limit,
                _add_timestamp,
                _RENDERER,
            ],
            wrapper_class=structlog.make_filtering_bound_logger(level),
        ).bind(service=service)
        self.shows_messages = level <= _LEVELS["info"]
        self.shows_folded = level <= _LEVELS["debug"]

    def _limit(self, _logger: object, _name: str, fields: EventDict) -> EventDict:
        """Drop a warning that was written lately; add to others how many were dropped."""
        if fields["level"] in LIMITED:
            left_out = self._repeats.left_out(_json(fields), time.monotonic())
            if left_out is None:
                raise structlog.DropEvent
            if left_out:
                fields["left_out"] = left_out
        return fields

    def message(
        self,
        item: Processed[I],
        name: str,
        outcome: str,
        age: float,
        time: str,
        span: SpanIds | None = None,
    ) -> None:
        """Write the line of one processed input.

        name: the input's type. age: seconds since the log stored it. time: now, in ISO 8601.
        span: its span, if traces are on.
        """
        envelope = item.input.envelope
        fields: dict[str, object] = {
            "service": self._service,
            "position": item.input.entry.position,
            "id": envelope.id,
            "about": _about(envelope),
            "outcome": outcome,
            "outputs": [output.type for output in item.envelopes[:OUTPUTS_SHOWN]],
            "age_ms": round(age * 1e3, 1),
            "timestamp": time,
        }
        if envelope.correlationid:
            fields["correlation"] = envelope.correlationid
        if isinstance(envelope, Envelope) and isinstance(envelope.data, OfNode):
            fields["node"] = envelope.data.node
        if messages := _messages(item.envelopes):
            fields["messages"] = messages
        fields |= _trace(envelope, span)
        if len(item.envelopes) > OUTPUTS_SHOWN:
            fields["outputs_left_out"] = len(item.envelopes) - OUTPUTS_SHOWN
        if item.failure is not None:
            fields |= {"field": _cut(item.failure.field), "cause": _cut(item.failure.cause)}
        fields["event"] = name
        fields["level"] = "info" if item.failure is None else "warning"
        # Straight to the renderer: other processors would add nothing to this line.
        self._output.msg(str(_RENDERER(None, "info", fields)))

    def batch(self, folded: Folded, outcome: str, now: datetime) -> None:
        """Write the line of the inputs that the service has only folded; there is at least one."""
        assert folded.oldest is not None, "the line of a batch without inputs"
        fields = {
            "service": self._service,
            "first": folded.first,
            "last": folded.last,
            "inputs": dict(folded.inputs),
            "outcome": outcome,
            "age_ms": round((now - folded.oldest).total_seconds() * 1e3, 1),
            "timestamp": now.isoformat(),
            "event": "batch",
            "level": "info",
        }
        self._output.msg(str(_RENDERER(None, "info", fields)))

    def flush(self) -> None:
        """Write the lines of a batch."""
        self._output.flush()

    def close(self) -> None:
        """Write the last lines, and close the file if there is one."""
        self._output.close()


def _messages(outputs: Sequence[Envelope[Message]]) -> list[str]:
    """Return the messages that users are shown of an input's outputs."""
    return [
        _cut(output.data.message)
        for output in outputs[:MESSAGES_SHOWN]
        if isinstance(output.data, KubernetesEvent)
    ]


def _trace(envelope: Envelope[I | Wake] | Unreadable, span: SpanIds | None) -> dict[str, object]:
    if span is not None:
        return {"trace_id": span.trace, "span_id": span.span}
    if envelope.traceparent:
        return {"trace_id": envelope.traceparent[3:35]}
    return {}


def _about(envelope: Envelope[I | Wake] | Unreadable) -> str:
    if isinstance(envelope, Envelope):
        return path_text(envelope.data.path)
    return path_text(envelope.address.path)


def _cut_fields(_logger: object, _name: str, fields: EventDict) -> EventDict:
    return {name: _cut(each) if isinstance(each, str) else each for name, each in fields.items()}


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}…"


def _add_timestamp(_logger: object, _name: str, fields: EventDict) -> EventDict:
    fields["timestamp"] = datetime.now(UTC).isoformat()
    return fields
