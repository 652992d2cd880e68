"""What the bus says about the cluster, and which comparisons a change there requires; no I/O."""

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from agent.host.work import WAITING, Key, node_key, pool_key
from agent.nodes.objects import Reported, WantedNode, wanted_node
from agent.pools.objects import Log, WantedPool, wanted_pool
from agent.reading import Document, version_number

if TYPE_CHECKING:
    from nodepool.contract.events import PodsWaitingReported

Wake = Callable[[Key], None]
GONE_MAX: Final = 100_000
"""How many deletions of Nodes are remembered; beyond that, the oldest are forgotten."""


class BusModel:
    """The NodePools and Nodes of one cluster in the read model.

    log: the log from which the read model is built; None while it is not known.
    pools, nodes: the NodePools and the Nodes, by name.
    reported: what was last reported of each Node.
    waiting: the last report about waiting Pods, by NodePool.
    """

    def __init__(self, wake: Wake) -> None:
        self.log: Log | None = None
        self.pools: dict[str, WantedPool] = {}
        self.nodes: dict[str, WantedNode] = {}
        self._members: dict[str, dict[str, None]] = {}
        self.reported: dict[str, Reported] = {}
        self.waiting: dict[str, PodsWaitingReported] = {}
        self._gone: dict[str, int] = {}
        self._wake = wake

    def clear(self) -> None:
        """Forget everything: what is read next is of another log, or of another connection."""
        self.log = None
        self.pools.clear()
        self.nodes.clear()
        self._members.clear()
        self.reported.clear()
        self.waiting.clear()
        self._gone.clear()

    def caught_up(self, position: int) -> None:
        """Note that the objects read so far show the log up to this position."""
        if self.log is not None:
            self.log = replace(self.log, start=position, end=max(self.log.end, position))

    def note_end(self, position: int) -> None:
        """Note that the log has messages up to this position."""
        if self.log is not None:
            self.log = replace(self.log, end=max(self.log.end, position))

    def is_gone(self, node: str, version: int) -> bool:
        """Whether the read model says that a Node was deleted after this position of the log.

        That it lacks a Node does not say so: it may just be built anew.
        """
        return self._gone.get(node, -1) >= version

    def note_gone(self, node: str, version: int) -> None:
        """Note that the read model marks a Node as deleted at this position of the log."""
        self._gone.pop(node, None)
        self._gone[node] = version
        if len(self._gone) > GONE_MAX:
            del self._gone[next(iter(self._gone))]

    def members(self, pool: str) -> Collection[str]:
        """Return the names of the Nodes of a NodePool."""
        return self._members.get(pool, {}).keys()

    def take_pool(self, name: str, document: Document | None) -> None:
        """Store a NodePool of the read model; None removes the NodePool.

        Raise ValueError if the document is no NodePool.
        """
        if document is None:
            self.pools.pop(name, None)
            self.waiting.pop(name, None)
        else:
            new = self.pools[name] = wanted_pool(document, name)
            self._note_version(version_number(new.version))
        self._wake(pool_key(name))
        self._wake(WAITING)

    def _note_version(self, version: int) -> None:
        """Note a version: objects come in the order of their changes, so all up to it is shown."""
        log = self.log
        if log is not None and version > log.start > 0:
            self.log = replace(log, start=version, end=max(log.end, version))

    def take_node(self, name: str, document: Document | None) -> None:
        """Store a Node of the read model; None removes the Node.

        Raise ValueError if the document is no Node.
        """
        old = self.nodes.pop(name, None)
        if old is not None:
            members = self._members.get(old.pool, {})
            members.pop(name, None)
            if not members:
                self._members.pop(old.pool, None)
        if document is not None:
            new = self.nodes[name] = wanted_node(document, name)
            self._members.setdefault(new.pool, {})[name] = None
        self._wake(node_key(name))
        self._wake(WAITING)
