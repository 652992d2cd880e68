"""The objects of an organisation, kept current in memory, from which pages are made."""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Final, TypeVar

from console.host.newest import Newest
from console.host.noting import noted
from console.host.pace import PacedAsker
from console.view.model import Fleet, Happening, Member, Place, Pool, build_pool
from console.view.nodes import build_member
from console.view.pools import Line, make_line
from console.view.standing import Group
from nodepool.client import Client
from nodepool.client.gateway_objects import GatewayObjects
from nodepool.client.objects import Document, Listed, Object
from nodepool.contract.buckets import Bucket
from nodepool.contract.documents import text

_K = TypeVar("_K")
_V = TypeVar("_V")
READY_S: Final = 8.0
"""How long a page waits until everything has been read, in seconds."""
BUCKETS: Final[tuple[Bucket, ...]] = ("clusters", "quotas", "nodepools", "nodes")
EVERYWHERE: Final[tuple[Bucket, ...]] = ("nodepools", "nodes")
"""The buckets whose objects are those of all clusters."""


class Mirror:
    """The objects and newest events of an organisation.

    revision: grows with each change. position: the newest position of the log that it shows.
    Pages read the mirror through methods that note what they return.
    """

    def __init__(self, org: str) -> None:
        self.org = org
        self.revision, self.position = 0, 0
        self._fault, self._fault_since = "not connected yet", datetime.now(UTC)
        self.happenings = Newest()
        self.explanations: dict[Place, Document] = {}
        self.unexplained: dict[Place, None] = {}
        self._pools: dict[Place, Document] = {}
        self._nodes: dict[Place, Member] = {}
        self._members: dict[Place, dict[Place, None]] = {}
        self._zones: dict[str, str] = {}
        self._quotas: dict[str, Document] = {}
        self._built: dict[Place, Pool] = {}
        self._lines: dict[Place, Line] = {}
        self._counts: tuple[int, int] | None = None
        self._unread = set(BUCKETS)
        self._changed = asyncio.Event()

    # Reading.

    @noted
    def read_everything(self) -> int:
        """Return the revision, for pages that any change may change."""
        return self.revision

    @property
    @noted
    def fault(self) -> str:
        """Return why the mirror is not current; empty while it is."""
        return self._fault

    @property
    @noted
    def fault_since(self) -> datetime:
        """Return since when the mirror is not current, or was not current last."""
        return self._fault_since

    @property
    @noted
    def clusters(self) -> tuple[str, ...]:
        """Return the clusters of the organisation, sorted by name."""
        return tuple(sorted(self._zones))

    @noted
    def fleet(self) -> Fleet:
        """Return all that the organisation has now."""
        for place in self._pools:
            self.pool(place)
        quotas = [self._quotas[key] for key in sorted(self._quotas)]
        return Fleet(self.org, dict(self._built), dict(self._zones), quotas)

    @noted
    def counts(self) -> tuple[int, int]:
        """Return how many NodePools are not well, and how many Nodes are being preempted."""
        if self._counts is None:
            lines = self.lines()
            troubled = sum(line.standing.group is not Group.WELL for line in lines)
            self._counts = troubled, sum(line.preempted for line in lines)
        return self._counts

    @noted
    def lines(self) -> Sequence[Line]:
        """Return the lines of the list of NodePools, each made once for each change."""
        for place in self._pools.keys() - self._lines.keys():
            if (pool := self.pool(place)) is not None:
                self._lines[place] = make_line(pool)
        return list(self._lines.values())

    @noted
    def pool(self, place: Place) -> Pool | None:
        """Return a NodePool with its Nodes; None if there is no such NodePool."""
        document = self._pools.get(place)
        if document is None:
            return None
        built = self._built.get(place)
        if built is None:
            cluster = place.cluster
            nodes = [self._nodes[node] for node in self._members.get(place, ())]
            known = self.explanations.get(place)
            built = build_pool(place, self._zones.get(cluster, ""), document, nodes, known)
            self._built[place] = built
            if nodes:
                # Nodes that are nearly in order are soon in order again.
                self._members[place] = dict.fromkeys(member.place for member in built.members)
        return built

    @noted
    def pool_of(self, node: Place) -> Pool | None:
        """Return the NodePool that a Node is in; None if there is no such Node."""
        member = self._nodes.get(node)
        return self.pool(Place(node.cluster, member.pool)) if member is not None else None

    @property
    @noted
    def is_read(self) -> bool:
        """Return whether all objects were read once, so that a missing object does not exist."""
        return not self._unread

    def note_all_read(self) -> None:
        """Note that everything has been read, including data outside this mirror."""
        self._unread.clear()
        self._fault = ""
        self.note_change()

    async def wait_until_read(self) -> bool:
        """Return whether everything has been read once, after some seconds at most."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + READY_S
        while self._unread and loop.time() < ends:
            await self.wait_for_change(self.revision, ends - loop.time())
        return self.is_read

    async def wait_for_change(self, revision: int, timeout_s: float) -> bool:
        """Return whether there is another revision than this one, after a timeout at most."""
        if self.revision != revision:
            return True
        try:
            async with asyncio.timeout(max(timeout_s, 0)):
                await self._changed.wait()
        except TimeoutError:
            return False
        return True

    # Changing.

    def note_fault(self, fault: str) -> None:
        """Note why the mirror is not current; an empty text says that it is current again."""
        if fault and not self._fault:
            self._fault_since = datetime.now(UTC)
        if fault != self._fault:
            self._fault = fault
            self.note_change()

    def note_change(self) -> None:
        """Wake each task that waits for a change."""
        self.revision += 1
        self._changed.set()
        self._changed = asyncio.Event()

    def add(self, happening: Happening) -> None:
        """Add a new event."""
        self.happenings.add(happening)
        self.position = max(self.position, happening.position)
        self.note_change()

    def explain(self, place: Place, explanation: Document | None) -> None:
        """Store the explanation of a NodePool; None if it is unknown."""
        if self.explanations.get(place) == explanation:
            return
        if explanation is None:
            self.explanations.pop(place, None)
        else:
            self.explanations[place] = explanation
        self._drop(place)
        self.note_change()

    async def follow(self, client: Client) -> None:
        """Keep all objects current until the connection fails."""
        objects = GatewayObjects(client.session, PacedAsker(client.session))
        async with asyncio.TaskGroup() as group:
            for bucket in BUCKETS:
                group.create_task(self._follow(objects, bucket))

    async def _follow(self, objects: GatewayObjects, bucket: Bucket) -> None:
        unseen = self._known(bucket)
        async with aclosing(objects.follow_all(bucket, everywhere=bucket in EVERYWHERE)) as changes:
            async for change in changes:
                if isinstance(change, Listed):
                    for key in unseen:
                        self._take(bucket, Object(key, None, 0))
                    unseen.clear()
                    self._unread.discard(bucket)
                    if not self._unread:
                        self.note_fault("")
                else:
                    unseen.discard(change.key)
                    self._take(bucket, change)
                self.note_change()

    def fill(self, bucket: Bucket, objects: Iterable[Object]) -> None:
        """Take all objects of a bucket, which do not change."""
        for each in objects:
            self._take(bucket, each)

    def _known(self, bucket: Bucket) -> set[str]:
        """Return the keys that were known before, as the client writes them."""
        if bucket == "clusters":
            return set(self._zones)
        if bucket == "quotas":
            return set(self._quotas)
        places = self._pools if bucket == "nodepools" else self._nodes
        return {f"{self.org}.{place.cluster}.{place.name}" for place in places}

    def _take(self, bucket: Bucket, change: Object) -> None:
        document = change.document
        version = text(document, "metadata", "resourceVersion")
        self.position = max(self.position, int(version) if version.isdecimal() else 0)
        match bucket:
            case "clusters":
                self._take_cluster(change.key, document)
            case "quotas":
                _put(self._quotas, change.key, document)
                self.unexplained.update(dict.fromkeys(self._pools))
            case "nodepools":
                self._take_pool(_place(change.key), document)
            case "nodes":
                self._take_node(_place(change.key), document)

    def _take_cluster(self, name: str, document: Document | None) -> None:
        _put(self._zones, name, text(document, "spec", "zone") if document else None)
        self._built.clear()
        self._lines.clear()
        self._counts = None

    def _take_pool(self, place: Place, document: Document | None) -> None:
        _put(self._pools, place, document)
        self._forget(place)
        if document is None:
            self.explanations.pop(place, None)
            self.unexplained.pop(place, None)

    def _take_node(self, place: Place, document: Document | None) -> None:
        before = self._nodes.get(place)
        after = build_member(place.cluster, document) if document is not None else None
        for each in (before, after):
            if each is not None:
                pool = Place(place.cluster, each.pool)
                members = self._members.setdefault(pool, {})
                if each is after:
                    members[place] = None
                else:
                    members.pop(place, None)
                if not members:
                    del self._members[pool]
                self._forget(pool)
        _put(self._nodes, place, after)

    def _forget(self, pool: Place) -> None:
        """Make and explain a NodePool again when it is needed next."""
        self._drop(pool)
        self.unexplained[pool] = None

    def _drop(self, pool: Place) -> None:
        self._built.pop(pool, None)
        self._lines.pop(pool, None)
        self._counts = None

    def list_pools(self) -> Sequence[Place]:
        """Return where the NodePools are."""
        return list(self._pools)


def _put(values: dict[_K, _V], key: _K, value: _V | None) -> None:
    if value is None:
        values.pop(key, None)
    else:
        values[key] = value


def _place(key: str) -> Place:
    """Return the place in a key, `<organisation>.<cluster>.<name>`."""
    _, cluster, name = key.split(".", 2)
    return Place(cluster, name)
