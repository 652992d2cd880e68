"""How many empty Nodes of one type the waiting Pods would fill."""

from collections.abc import Mapping
from dataclasses import dataclass

from nodepool.contract.pods import PODS_MAX, Shape
from nodepool.state.values import replace


@dataclass(frozen=True, slots=True)
class _Nodes:
    """A number of Nodes with the same room: the free GPUs and the free Pod slots of each Node."""

    count: int
    gpus: int
    accelerators: int
    slots: int

    def room(self, shape: Shape) -> int:
        """Return how many Pods of this shape each of them can take."""
        return shape.room(self.gpus, self.accelerators, self.slots)

    def with_each(self, shape: Shape, pods: int, count: int) -> "_Nodes":
        """So many of them, each with so many more Pods of this shape."""
        return _Nodes(
            count,
            self.gpus - pods * shape.gpus,
            self.accelerators - pods * shape.accelerators,
            self.slots - pods * shape.slots,
        )


def nodes_needed(waiting: Mapping[Shape, int], gpus: int, most: int) -> int:
    """Return how many empty Nodes with so many GPUs take these Pods, at most `most`.

    The Pods that ask for most come first, and each goes to the first Node that has room for it. A
    Pod that fits no empty Node is passed over.

    waiting: how many Pods of each shape there are.
    gpus: how many GPUs a Node has, under either name.
    """
    empty = _Nodes(1, gpus, gpus, PODS_MAX)
    nodes: list[_Nodes] = []
    for shape in sorted(waiting, reverse=True):
        room = empty.room(shape)
        if not room:
            continue
        nodes, left = _place_pods(nodes, shape, waiting[shape])
        if left:
            nodes += _place_pods([replace(empty, count=-(-left // room))], shape, left)[0]
        if sum(each.count for each in nodes) >= most:
            return most
    return sum(each.count for each in nodes)


def _place_pods(nodes: list[_Nodes], shape: Shape, pods: int) -> tuple[list[_Nodes], int]:
    """Return the Nodes with these Pods, each on the first with room, and the count of Pods left."""
    placed: list[_Nodes] = []
    for each in nodes:
        room = each.room(shape)
        full = min(each.count, pods // room) if room else 0
        rest = pods - full * room if room and full < each.count else 0
        pods -= full * room + rest
        untouched = each.count - full - (rest > 0)
        placed += [
            each.with_each(shape, number, count)
            for number, count in ((room, full), (rest, int(rest > 0)), (0, untouched))
            if count
        ]
    return placed, pods
