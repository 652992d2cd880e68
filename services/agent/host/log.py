"""Asks the log: the newest events about a NodePool, and which stays of Nodes have ended."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from agent.pools.sides import Deletion, Origin
from nodepool.client.accepted import DELETED, DELETING, VALIDATED, Accepted, accepted_by
from nodepool.client.mirror import Mirror
from nodepool.contract.decode import decode
from nodepool.contract.events import (
    CWNodeDeleted,
    CWNodePoolDeleted,
    CWNodeRegistrationFailed,
    NodePoolValidated,
)
from nodepool.contract.log import Entry
from nodepool.contract.messages import Envelope
from nodepool.nats.wire.errors import InDoubt

if TYPE_CHECKING:
    from nodepool.nats.log.pages import Page

CREATED: Final = "CWNodePoolCreated"
ORIGINS_MAX: Final = 32
"""How many states of a NodePool to read after an agreement, in addition to the newest."""
FRESH_S: Final = 2.0
"""How long the last read counts as complete."""
ENDS: Final[Mapping[str, type[CWNodeDeleted | CWNodeRegistrationFailed]]] = {
    "CWNodeDeleted": CWNodeDeleted,
    "CWNodeRegistrationFailed": CWNodeRegistrationFailed,
}
"""The events that end the stay of a Node."""


class LogReader:
    """Asks the log about one cluster.

    Without a connection or a reply, the methods raise an error of the bus.
    """

    def __init__(self) -> None:
        self._mirror: Mirror | None = None
        self._turn = asyncio.Lock()
        self.end()

    def begin(self, mirror: Mirror) -> None:
        """Ask with this mirror from now on."""
        # A read with an earlier mirror may have ended after `end`.
        self.end()
        self._mirror = mirror

    def end(self) -> None:
        """Forget the mirror, and what was read with it."""
        self._mirror = None
        self._begins: Page | None = None
        self._ended: dict[str, int] = {}
        self._from = self._to = 0
        self._fresh_until = float("-inf")

    async def newest_position(self) -> int:
        """Return the position of the newest message of the log."""
        return (await self._require_mirror().find_state()).end

    async def deletion_of(self, pool: str) -> Deletion:
        """Return the last deletion of a NodePool of this name in the log."""
        entry = await self._newest(DELETED[1], pool)
        if entry is None:
            return Deletion()
        read = decode(CWNodePoolDeleted, entry.subject, entry.content, {}, entry.position)
        return Deletion(entry.position, read.data.uid if isinstance(read, Envelope) else "")

    async def accepted(self, pool: str) -> Accepted | None:
        """Return what the log says of a NodePool; None if the NodePool never existed."""
        names = [name for _, name in (VALIDATED, DELETING, DELETED)]
        page = await self._require_mirror().newest(names, pool)
        found = {each.subject.rpartition(".")[2]: each for each in page.entries}
        return accepted_by(*map(found.get, names))

    async def origins_of(self, pool: str, agreed: int) -> Sequence[Origin]:
        """Return the states of a NodePool after a position of the log, the oldest first.

        That is the first of them and the newest; of a NodePool that changes often, those in between
        are left out: a command that was sent after an agreement follows it soon.

        agreed: the position; 0 for the creation of the NodePool.
        """
        if not agreed:
            created = await self._newest(CREATED, pool)
            agreed = created.position if created is not None else 0
        names = [VALIDATED[1]]
        page = await self._require_mirror().read(names, pool=pool, after=agreed, limit=ORIGINS_MAX)
        self._begins = page
        entries = {entry.position: entry for entry in page.entries}
        newest = await self._newest(VALIDATED[1], pool)
        if newest is not None:
            entries[newest.position] = newest
        return [origin_in(entry) for _, entry in sorted(entries.items())]

    def check_reaches(self, position: int) -> None:
        """Raise HeadMissing if the log, when last asked, lacked some of what follows a position."""
        if self._begins is not None:
            self._begins.check_reaches(position)

    async def _newest(self, name: str, pool: str) -> Entry | None:
        """Return the newest event of a name about a NodePool; None without an event."""
        page = await self._require_mirror().newest([name], pool)
        return next(iter(page.entries), None)

    def _require_mirror(self) -> Mirror:
        if self._mirror is None:
            raise InDoubt("the bus is not connected")
        return self._mirror

    async def has_ended(
        self, node: str, assignment: int, since: int, oldest: Callable[[], int]
    ) -> bool:
        """Return whether the log says after the position `since` that a stay of a Node has ended.

        The log is asked if the read model has no deletion mark of a Node: marks expire, and the
        read model may be rebuilt. Thousands of questions at the same time cause one read, only as
        far back as needed.

        oldest: from where to read, if anything has to be; raises an error of the bus.

        Raises HeadMissing if that cannot be said, because the log was trimmed beyond `since`.
        """
        mirror = self._require_mirror()
        async with self._turn:
            clock = asyncio.get_running_loop().time
            if not self._from or since < self._from:
                first = max(1, min(since, oldest()))
                await self._read(mirror, first)
                self._from, self._fresh_until = first, clock() + FRESH_S
            elif clock() >= self._fresh_until:
                await self._read(mirror, self._to + 1)
                self._fresh_until = clock() + FRESH_S
        if self._ended.get(node, 0) >= assignment:
            return True
        self.check_reaches(since)
        return False

    async def _read(self, mirror: Mirror, first: int) -> None:
        """Read from a position to the current end of the log."""
        after, at_end = first - 1, False
        while not at_end:
            page = self._begins = await mirror.read(ENDS.keys(), after=after)
            for entry in page.entries:
                self._take(entry)
            after, at_end = page.after, page.at_end
        self._to = after

    def _take(self, entry: Entry) -> None:
        kind = ENDS[entry.subject.rpartition(".")[2]]
        envelope = decode(kind, entry.subject, entry.content, {}, entry.position)
        if isinstance(envelope, Envelope):
            node, assignment = envelope.data.node, envelope.data.assignment
            self._ended[node] = max(assignment, self._ended.get(node, 0))


def origin_in(entry: Entry) -> Origin:
    """Return what an event says of its NodePool; no more than the position if it is unreadable."""
    read = decode(NodePoolValidated, entry.subject, entry.content, {}, entry.position)
    if not isinstance(read, Envelope):
        return Origin("", entry.position)
    return Origin(read.correlationid or "", entry.position, read.data.uid)
