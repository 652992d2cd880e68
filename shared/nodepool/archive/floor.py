"""Where the log may be trimmed: at its floor; pure.

The floor is the first position that somebody needs; whatever lies before it may go. Each holder
needs the log from a position on. Two have no row of their own. The ids of commands that a service
remembers are part of its snapshot, so a command may go once a snapshot has its outcome. The read
model, agents, the gateway and the readers of processes keep no position: they begin with the read
model or at the end of the log, and say so if they ask for messages that are gone.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from nodepool.archive.manifests import SnapshotSet

SETS_KEPT: Final = 2
"""The log goes back to this many snapshot sets: if the newest is damaged, there is one before."""
SETS: Final = "snapshot set"
"""The name of the holder for snapshot sets."""
SETS_SHARE: Final = 4
"""Sets may hold this part of the kept bytes beyond what all others need: a quarter."""
KEEP_S: Final = 2_592_000
KEEP_BYTES: Final = 1_000_000_000
"""What is kept at least: the messages of thirty days, and the newest gigabyte."""
ABSENT: Final = 500_000
"""A service that may be absent, and has not committed for this many positions, is. An idle service
commits, and saves a snapshot, after 50,000 each."""
DELAY_S: Final = 600
"""How long a floor is known before anything goes, so that no reader is cut off that is at work."""


@dataclass(frozen=True, slots=True)
class Extent:
    """The log: the positions of its first and its last message, and the size of its messages."""

    first: int
    last: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Standing:
    """What the bus has of a service.

    commit: the position of its newest commit record; 0 for none.
    snapshot: up to which position its snapshot goes; None for none.
    is_optional: whether it may be absent, because something else may be in its place.
    """

    commit: int = 0
    snapshot: int | None = None
    is_optional: bool = False

    def is_absent(self, last: int) -> bool:
        """Return whether the service is not at work here, and does not have to be.

        last: the last position of the log. A service at work commits long before ABSENT positions.
        """
        return self.is_optional and last - self.commit > ABSENT


@dataclass(frozen=True, slots=True)
class Facts:
    """What the floor follows from.

    read_back: up to which position the archive was read back without a fault.
    sets: the newest snapshot sets that were read back, at most SETS_KEPT.
    services: what the bus has of each service.
    young: the first position that is not older than what is kept; after the last one if none is.
    """

    log: Extent
    read_back: int
    sets: Sequence[SnapshotSet]
    services: Mapping[str, Standing]
    young: int


@dataclass(frozen=True, slots=True)
class Keep:
    """What is kept at least."""

    seconds: int = KEEP_S
    bytes: int = KEEP_BYTES


class Holder(NamedTuple):
    """Who needs the log from a position on, and why, as one line."""

    name: str
    first: int
    why: str


def list_holders(facts: Facts, keep: Keep) -> Sequence[Holder]:
    """Return every holder; none needs more than the log has."""
    found = (
        Holder("archive", facts.read_back + 1, f"read back up to {facts.read_back}"),
        _of_sets(facts),
        *list_services(facts.services, facts.log.last),
        Holder("age", facts.young, f"what is not older than {_period(keep.seconds)} is kept"),
        Holder("size", _first_kept(facts.log, keep.bytes), f"the newest {keep.bytes} bytes stay"),
    )
    return [each._replace(first=max(each.first, facts.log.first)) for each in found]


def find_floor(holders: Iterable[Holder]) -> Holder:
    """Return the holder that needs the log from the earliest position on: there is the floor."""
    return min(holders, key=lambda each: each.first)


def is_set_due(holders: Iterable[Holder], log: Extent, keep: Keep) -> bool:
    """Return whether sets alone hold so much of the log that another set is due early."""
    every = list(holders)
    others = find_floor(each for each in every if each.name != SETS).first
    held = measure(log, others).bytes - measure(log, find_floor(every).first).bytes
    return held > keep.bytes // SETS_SHARE


class Outcome(NamedTuple):
    """What would go: how many messages, and about how many bytes."""

    messages: int
    bytes: int


def measure(log: Extent, floor: int) -> Outcome:
    """Return what goes if the log is trimmed at a floor; the size is by the average message."""
    messages = max(0, floor - log.first)
    return Outcome(messages, messages * log.bytes // max(1, log.last - log.first + 1))


def _of_sets(facts: Facts) -> Holder:
    name = SETS
    if not facts.sets:
        return Holder(name, 0, "no set was read back yet")
    needed = [
        (snapshot.committed if (snapshot := each.snapshots.get(service)) else 0, service, each)
        for each in facts.sets
        for service, standing in facts.services.items()
        if not standing.is_absent(facts.log.last)
    ]
    committed, service, found = min(needed, key=lambda each: each[0])
    if not committed:
        return Holder(name, 0, f"the set of {found.made[:16]} has no snapshot of {service}")
    return Holder(name, committed + 1, f"{service} begins there in the set of {found.made[:16]}")


def list_services(services: Mapping[str, Standing], last: int) -> Iterator[Holder]:
    """Yield what each service needs: its newest commit record, and what follows its snapshot.

    last: the last position of the log.

    The record is its fence: without it, any replica could commit anything. A replica that starts
    now reads what follows the snapshot.
    """
    for name, standing in services.items():
        if standing.is_absent(last):
            continue
        if not standing.commit:
            yield Holder(name, 0, "it has never committed")
        elif standing.snapshot is None:
            yield Holder(name, 0, "it has no snapshot on the bus yet")
        else:
            first = min(standing.snapshot + 1, standing.commit)
            why = f"its snapshot ends at {standing.snapshot}, its commits at {standing.commit}"
            yield Holder(name, first, why)


def _first_kept(log: Extent, kept: int) -> int:
    """Return the first of the newest messages that have so many bytes together, by the average."""
    count = log.last - log.first + 1
    excess = log.bytes - kept
    return log.first + count * excess // log.bytes if excess > 0 else log.first


def _period(seconds: int) -> str:
    return f"{seconds // 86_400} days" if seconds >= 2 * 86_400 else f"{seconds} s"


@dataclass(frozen=True, slots=True)
class Patience:
    """A floor that waits until the log is trimmed there.

    floor: its position; 0 while none waits.
    since: when it became known, in seconds of a monotonic clock.
    """

    floor: int = 0
    since: float = 0.0

    def wait(self, floor: int, now: float, delay_s: float) -> "tuple[Patience, int]":
        """Return what waits after a look at the floor, and where to trim now; 0 for nowhere.

        A floor that moves on meanwhile waits in its turn. One that has gone back, as after a fault
        of the archive, waits anew.
        """
        if not self.floor or floor < self.floor:
            return Patience(floor, now), 0
        if now - self.since < delay_s:
            return self, 0
        return Patience(floor, now), self.floor if self.floor > 1 else 0
