"""Records events of the log in the cluster as Kubernetes Events."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from agent.actions import Place, RecordEvent
from agent.host.model import BusModel
from agent.host.view import ClusterView
from agent.pools.objects import Log
from nodepool.client.backend import Heard
from nodepool.client.events import KINDS, ObjectEvent, object_events
from nodepool.client.mirror import LogState, Mirror
from nodepool.host.logs import Logger
from nodepool.kube.failures import ApiFailure, ApiUnreachable
from nodepool.nats.wire.waiting import cancel

HISTORY: Final = timedelta(minutes=50)
"""How far back to begin: the API server keeps Events for an hour, so none is recorded twice."""
OBJECT_S: Final = 5.0
"""How long to wait for the object of an event; then the Event is recorded without its uid."""
LOOK_S: Final = 0.1
RETRY_S: Final = 1.0
WAITING_MAX: Final = 1_000
"""How many events may wait before the recorder pauses reading."""
IN_FLIGHT_MAX: Final = 4
"""How many Events are recorded at the same time."""
COMPONENT: Final = "nodepool"
WINDOW_S: Final = 2.0
WINDOW: Final = timedelta(seconds=WINDOW_S) // timedelta(microseconds=1)
"""The time, in seconds and microseconds, in which similar events of a NodePool are one Event."""
OF_NODES: Final = frozenset(
    kind.reason for kind in KINDS.values() if "assignment" in kind.model_fields
)
"""The reasons of events about one stay of a Node."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def log_key(position: int, moment: datetime, kind: str) -> str:
    """Return the key of an event of the log: its position, its moment and the kind of its object.

    A log that was restored from a backup has other events at the positions that it has lost.
    """
    return f"{position:x}.{microseconds(moment):x}.{'n' if kind == 'Node' else 'p'}"


def microseconds(moment: datetime) -> int:
    """Return a moment in microseconds since 1970."""
    return (moment - _EPOCH) // timedelta(microseconds=1)


@dataclass(slots=True, eq=False)
class _Waiting:
    """An event, or similar events of one window, that one Event will show.

    since: the position of the first event of that window.
    due: when the window is over; 0 for an event that is shown alone.
    until: until when it waits for its object to appear.
    last, count: the last of the events, and how many they are.
    """

    event: ObjectEvent
    since: int
    due: float
    until: float
    last: ObjectEvent
    count: int = 1


class _Noted(NamedTuple):
    """The position up to which all events are recorded, and the time of the newest message read."""

    position: int
    read_to: int


class EventRecorder:
    """Records events, roughly in the order of the log.

    recorded: the position in a log up to which all events are recorded, and when the newest message
      that was read was stored, as `log:position:microseconds since 1970`; empty at first.
    fault: why no event can be recorded, as one line; empty if events can be recorded.
    """

    def __init__(
        self,
        place: Place,
        model: BusModel,
        view: ClusterView,
        record: Callable[[RecordEvent], Coroutine[None, None, None]],
        log: Logger,
        recorded: str = "",
    ) -> None:
        self.recorded = recorded
        self.fault = ""
        self._place, self._model, self._view = place, model, view
        self._record = record
        self._log = log
        self._waiting: list[_Waiting] = []
        self._similar: dict[tuple[str, str], _Waiting] = {}
        self._window = self._since = 0

    async def follow(self, mirror: Mirror, log: Log, state: LogState) -> None:
        """Record the events of this log until the task is cancelled."""
        self._waiting.clear()
        self._similar.clear()
        self._window = 0
        if not await self._is_of(mirror, log):
            self._log.info("log restored from a backup", log=log.id, recorded=self.recorded)
            self.recorded = ""
        after = max(self._parse_recorded(log).position, await _position_before(mirror, state))
        async with mirror.follow(KINDS.keys(), after) as heard:
            await self._read(heard, log)

    def _parse_recorded(self, log: Log) -> _Noted:
        id, *numbers = self.recorded.rsplit(":", 2)
        if id != log.id or len(numbers) != 2 or not all(each.isdecimal() for each in numbers):
            return _Noted(0, 0)
        return _Noted(*map(int, numbers))

    async def _is_of(self, mirror: Mirror, log: Log) -> bool:
        """Return whether what is noted is of the history that a log has.

        A log that is restored from an older backup keeps its identity. What came since lies beyond
        the position, unless the log was set back to a backup.
        """
        noted = self._parse_recorded(log)
        if noted.position > log.end:
            return False
        if not noted.position:
            return True
        since = _EPOCH + timedelta(microseconds=noted.read_to + 1)
        after, is_over = 0, False
        while not is_over:
            page = await mirror.read(KINDS.keys(), since=since, after=after, limit=1)
            if page.entries:
                return page.entries[0].position > noted.position
            after, is_over = page.after, page.at_end or page.after >= noted.position
        return True

    async def _read(self, heard: Heard, log: Log) -> None:
        clock = asyncio.get_running_loop().time
        read_to, moment = self._parse_recorded(log)
        reading = asyncio.ensure_future(heard.next())
        try:
            while True:
                # While events wait, nothing more is taken once they are too many.
                timeout_s = LOOK_S if self._waiting else None
                await asyncio.wait((reading,), timeout=timeout_s)
                if reading.done() and len(self._waiting) < WAITING_MAX:
                    for entry in reading.result():
                        # Do not wait for the object of an old event: it may be long gone.
                        until = clock() + (OBJECT_S if entry.position > log.end else 0.0)
                        for event in object_events(entry):
                            self._add(event, clock(), until)
                        read_to, moment = entry.position, microseconds(entry.time)
                    reading = asyncio.ensure_future(heard.next())
                elif reading.done():
                    await asyncio.sleep(LOOK_S)
                if self._view.pools.fault or self._view.nodes.fault or not self._model.log:
                    await asyncio.sleep(LOOK_S)
                    continue
                await self._record_ready(clock())
                oldest = min((each.since for each in self._waiting), default=read_to + 1)
                self.recorded = f"{log.id}:{min(read_to, oldest - 1)}:{moment}"
        finally:
            await cancel(reading)

    def _add(self, event: ObjectEvent, now: float, until: float) -> None:
        """Add an event; of the same reason about Nodes of a NodePool, one window is one Event.

        The windows are those of the log, and `recorded` stays before an open one: so a process that
        reads a window again makes the same Events of it, under the same names.
        """
        window = microseconds(event.time) // WINDOW
        if window != self._window:
            self._window, self._since = window, event.position
            self._similar.clear()
        is_similar = (event.kind, event.severity) == ("NodePool", "Normal")
        if not is_similar or event.reason not in OF_NODES:
            self._waiting.append(_Waiting(event, self._since, 0.0, until, event))
            return
        similar = self._similar.get((event.name, event.reason))
        if similar is not None and now < similar.due:
            similar.last, similar.count = event, similar.count + 1
            return
        similar = _Waiting(event, self._since, now + WINDOW_S, until, event)
        self._similar[event.name, event.reason] = similar
        self._waiting.append(similar)

    async def _record_ready(self, now: float) -> None:
        """Record each event whose object is known, or that has waited for it long enough."""
        ready = [
            each
            for each in self._waiting
            if now >= each.due and (self._uid(each.event) or now >= each.until)
        ]
        for first in range(0, len(ready), IN_FLIGHT_MAX):
            some = ready[first : first + IN_FLIGHT_MAX]
            results = await asyncio.gather(
                *(self._record(self._event_of(each)) for each in some), return_exceptions=True
            )
            for each, result in zip(some, results, strict=True):
                if isinstance(result, ApiUnreachable) or _is_passing(result):
                    self.fault = f"cannot record Events: {result}"
                    await asyncio.sleep(RETRY_S)
                    return
                if isinstance(result, BaseException) and not isinstance(result, ApiFailure):
                    raise result
                if isinstance(result, ApiFailure):
                    self._log.warning("event not recorded", cause=result.message)
                self.fault = ""
                with suppress(ValueError):
                    self._waiting.remove(each)

    def _uid(self, event: ObjectEvent) -> str:
        if event.kind == "NodePool":
            return self._view.pool_uid(event.name)
        node = self._view.nodes.store.get(event.name)
        return "" if node is None else node.uid

    def _event_of(self, waiting: _Waiting) -> RecordEvent:
        event = waiting.event
        # For a missing Node, use its name as the uid, as kubelets do: `kubectl describe` shows it.
        absent = event.name if event.kind == "Node" else ""
        return RecordEvent(
            kind="Node" if event.kind == "Node" else "NodePool",
            name=event.name,
            uid=self._uid(event) or absent,
            severity=event.severity,
            reason=event.reason,
            message=waiting.last.message,
            key=log_key(event.position, event.time, event.kind),
            time=event.time,
            component=COMPONENT,
            last=waiting.last.time,
            count=waiting.count,
        )


def _is_passing(result: object) -> bool:
    """Whether another try may succeed: the API server is overloaded, or the right is missing."""
    if not isinstance(result, ApiFailure):
        return False
    return result.lacks_right or result.code == 429 or result.code >= 500


async def _position_before(mirror: Mirror, state: LogState) -> int:
    """Return the position before the first event within `HISTORY`, by the clock of the log."""
    page = await mirror.read(KINDS.keys(), since=state.time - HISTORY, limit=1)
    return page.entries[0].position - 1 if page.entries else page.after
