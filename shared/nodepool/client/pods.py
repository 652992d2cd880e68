"""The Pods of a cluster without Kubernetes: the present Pods, and the events of one Pod."""

from collections.abc import AsyncGenerator, Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from nodepool.client.contents import data_of
from nodepool.client.names import check_name
from nodepool.client.session import Session
from nodepool.contract.keys import name_at, token
from nodepool.contract.log import Entry
from nodepool.nats.log.streams import STREAM

if TYPE_CHECKING:
    from nodepool.contract.events import PodChanged, PreemptionPending

CHANGES_MAX: Final = 200_000
"""The most changes of Pods to read: the newest."""
HALVINGS_MAX: Final = 64
"""The most steps of a binary search in the log: more than the bits of a position."""


class ListedPod(NamedTuple):
    """A Pod after its newest change.

    pool, node: its NodePool, and the Node that it is bound to; empty while it is Pending.
    phase: `Pending`, `Running` or `Terminating`.
    gpus, accelerators: the numbers of devices that it requests.
    grace_s: its grace period in seconds.
    reason, message: why the Pod ends, if it ends.
    created: when the first change of the Pod that was read was stored.
    """

    name: str
    pool: str
    node: str
    phase: str
    gpus: int
    accelerators: int
    grace_s: int
    reason: str
    message: str
    created: datetime


class ListedPods(NamedTuple):
    """The Pods of a cluster.

    pods: the Pods that are not gone, ordered by NodePool and name.
    since: the time of the oldest change that was read; None if there are no older changes.
    """

    pods: list[ListedPod]
    since: datetime | None


async def list_pods(session: Session) -> ListedPods:
    """Return the Pods of the cluster from the newest `CHANGES_MAX` changes in the log."""
    session.require_bus("list Pods")
    subject = f"np.evt.fleet.{session.org}.{session.cluster}.*.PodChanged"
    start, last = await session.bounds()
    found, oldest = _Found(), None
    for _ in range(HALVINGS_MAX):
        async with session.reader(STREAM, [subject], start=start) as reader:
            if reader.pending > CHANGES_MAX and start < last:
                start += (last - start + 1) // 2
                continue
            while reader.pending:
                entries = await session.read(reader, endless=False)
                oldest = oldest or entries[0].time
                found.read(entries)
            break
    if oldest is None and (entry := await session.message_at(start)) is not None:
        oldest = entry.time
    return ListedPods(found.in_order(), oldest if start > 1 else None)


class PodEvent(NamedTuple):
    """An event about a Pod, or about a Node of its NodePool.

    time: when the event was stored in the log.
    """

    event: "PodChanged | PreemptionPending"
    time: datetime


async def watch_pod(
    session: Session, pool: str, name: str, *, after: int
) -> AsyncGenerator[PodEvent, None]:
    """Yield changes of a Pod, and preemptions of Nodes of its NodePool, without end.

    Events that are stored while the server cannot be reached follow once it can be reached.

    after: only the events that lie in the log after this position.
    """
    session.require_bus("follow a Pod")
    # Imported here, because the models of all events load slowly.
    from nodepool.contract.decode import decode
    from nodepool.contract.events import PodChanged, PreemptionPending
    from nodepool.contract.messages import Envelope

    kinds: dict[str, type[PodChanged] | type[PreemptionPending]]
    kinds = {kind.__name__: kind for kind in (PodChanged, PreemptionPending)}
    path = f"{session.org}.{session.cluster}.{token(check_name('name', pool))}"
    filters = [f"np.evt.{kind.speaker}.{path}.{event}" for event, kind in kinds.items()]
    async with session.reader(STREAM, filters, start=after + 1) as reader:
        while True:
            for entry in await reader.next():
                kind = kinds[entry.subject.rpartition(".")[2]]
                envelope = decode(kind, entry.subject, entry.content, {}, entry.position)
                if not isinstance(envelope, Envelope):
                    continue
                event = envelope.data
                if not isinstance(event, PodChanged) or event.name == name:
                    yield PodEvent(event, entry.time)


class _Found:
    """The Pods that are found while the log is read."""

    def __init__(self) -> None:
        self._pods: dict[tuple[str, str], tuple[int, ListedPod]] = {}

    def read(self, entries: Iterable[Entry]) -> None:
        """Take changes in the order of the log; skip content that is no change of a Pod."""
        for entry in entries:
            fields = data_of(entry)
            name, phase, number = (fields.get(key, 0) for key in ("name", "phase", "number"))
            if not (isinstance(name, str) and isinstance(phase, str) and isinstance(number, int)):
                continue
            pool = name_at(entry.subject.split(".")[-2])
            before = self._pods.get((pool, name))
            is_same = before is not None and before[0] == number
            if phase == "Gone":
                if is_same:
                    del self._pods[pool, name]
                continue
            created = before[1].created if before is not None and is_same else entry.time
            pod = ListedPod(
                name,
                pool,
                _text(fields, "node"),
                phase,
                _number(fields, "gpus"),
                _number(fields, "accelerators"),
                _number(fields, "graceS"),
                _text(fields, "reason"),
                _text(fields, "message"),
                created,
            )
            self._pods[pool, name] = (number, pod)

    def in_order(self) -> list[ListedPod]:
        """Return the Pods by NodePool and name."""
        return [self._pods[key][1] for key in sorted(self._pods)]


def _text(fields: Mapping[str, object], name: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) else ""


def _number(fields: Mapping[str, object], name: str) -> int:
    value = fields.get(name)
    return value if isinstance(value, int) else 0
