"""The Nodes of a NodePool, reduced to what determines the right number of Nodes."""

from dataclasses import dataclass
from datetime import datetime

from immutables import Map

from nodepool.state.queue import Queue
from nodepool.state.values import replace


@dataclass(frozen=True, slots=True)
class Node:
    """A Node, from its assignment to its end.

    assignment: the number of the stay of its machine.
    since: when the Node was assigned or joined, or when it last became active or idle; later if the
        Node got this time from another idle Node that was removed.
    active: whether workloads run on the Node.
    held: whether the Node is there and holds its place in the NodePool.
    replaced: whether the Node, as it is unhealthy, holds its place until its Pods have ended.
    coming: whether the Node is on its way: it boots, reboots, or is verified.
    usable: whether new Pods can be scheduled on the Node.
    reserved: whether the Node is reserved for the control plane, so that its NodePool does not
        count the Node.
    """

    assignment: int
    since: datetime
    active: bool = False
    held: bool = True
    coming: bool = False
    usable: bool = True
    reserved: bool = False
    replaced: bool = False

    @property
    def is_idle(self) -> bool:
        """Return whether the Node is there for its NodePool and nothing runs on the Node."""
        return self.held and not self.active and not self.reserved

    @property
    def is_ready(self) -> bool:
        """Return whether the Node is empty and takes Pods."""
        return self.is_idle and self.usable


@dataclass(frozen=True, slots=True)
class Nodes:
    """The Nodes of one NodePool by name; the other fields are derived from these Nodes.

    held: how many Nodes are there and hold their places.
    leaving: how many of these are replaced once the Pods that run there have ended.
    coming: how many more Nodes are on their way.
    ready: how many Nodes are empty and take Pods.
    reserved: how many other Nodes are reserved for the control plane.
    idle: the Nodes that nothing runs on; the Node that has been idle longest comes first.
    """

    nodes: Map[str, Node] = Map()
    held: int = 0
    coming: int = 0
    ready: int = 0
    reserved: int = 0
    idle: Queue[str] = Queue()
    leaving: int = 0

    @property
    def billable(self) -> int:
        """Return how many Nodes count against the limit."""
        return len(self.nodes) - self.reserved

    @property
    def kept(self) -> int:
        """How many Nodes the NodePool has and wants to keep, including the Nodes on their way."""
        return self.held + self.coming

    def get(self, name: str, assignment: int) -> Node | None:
        """Return the Node of this name, if it is in this stay."""
        node = self.nodes.get(name)
        return node if node is not None and node.assignment == assignment else None

    def put(self, name: str, node: Node) -> "Nodes":
        """Return the Nodes with this Node, in place of what was known of the Node."""
        return self._recount(name, node, self.nodes.set(name, node))

    def drop(self, name: str) -> "Nodes":
        """Return the Nodes without this Node."""
        return self._recount(name, None, self.nodes.delete(name))

    def begin_removal(self, name: str, node: Node) -> "Nodes":
        """Return the Nodes with this idle Node leaving, because the NodePool has too many.

        Which of them leaves is not decided by how long each has been idle, but how many may leave
        is: the one that was idle longest has been idle as long as this one from now on.
        """
        longest, since = next(iter(self.idle)), self.nodes[name].since
        if longest == name:
            return self.put(name, node)
        nodes = self.nodes.set(longest, replace(self.nodes[longest], since=since))
        idle = self.idle.drop(longest).replace(name, longest)
        return replace(self, nodes=nodes, idle=idle).put(name, node)

    def _recount(self, name: str, after: Node | None, nodes: Map[str, Node]) -> "Nodes":
        before, idle = self.nodes.get(name), self.idle
        was_held, was_coming, was_ready, was_reserved, was_leaving = _marks(before)
        is_held, is_coming, is_ready, is_reserved, is_leaving = _marks(after)
        is_idle = after is not None and after.is_idle
        if before is None or after is None or before.since != after.since or not is_idle:
            idle = idle.drop(name)
        return Nodes(
            nodes,
            self.held + is_held - was_held,
            self.coming + is_coming - was_coming,
            self.ready + is_ready - was_ready,
            self.reserved + is_reserved - was_reserved,
            idle.put(name) if is_idle else idle,
            self.leaving + is_leaving - was_leaving,
        )


def _marks(node: Node | None) -> tuple[bool, bool, bool, bool, bool]:
    """Return whether a Node counts as held, as coming, as ready, as reserved and as leaving."""
    if node is None or node.reserved:
        return False, False, False, node is not None, False
    is_leaving = node.held and node.replaced and node.active
    return node.held, node.coming, node.is_ready, False, is_leaving
