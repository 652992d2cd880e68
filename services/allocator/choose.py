"""Which Nodes leave when a NodePool shrinks, and which leaving Nodes stay if it grows again.

Nodes leave in racks. In a type that does not come in racks, each Node is a rack of one: Nodes that
have not joined leave first, then idle Nodes, then active Nodes, of each the cordoned Nodes first,
then the newest (`place`). In a type that comes in racks, the target of a valid NodePool is always
whole racks.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from allocator.members import Member
from nodepool.contract.model import RemovalReason, ScaleDownStrategy
from nodepool.placement.racks import count_surplus

Nodes = list[tuple[str, Member]]
"""Nodes with their names."""
Place = tuple[int, int, str]
"""The place of a Node among a NodePool's Nodes that may leave; the lowest place leaves first."""


class Surplus(NamedTuple):
    """The surplus racks: how many Nodes they have, and the Nodes that can leave now."""

    nodes: int
    leaving: list[str]


def surplus_racks(
    members: Iterable[tuple[str, Member]], size: int, wanted: int, strategy: ScaleDownStrategy
) -> Surplus:
    """Return the racks to remove until `wanted` racks stay, the least useful first.

    Nodes that leave already, such as Nodes that are preempted, count as removed and are not chosen
    again. Racks with the fewest Nodes come first, then racks with the least to lose,
    then the newest racks, then racks by domain. A rack leaves as a whole. With IdleOnly, a rack
    leaves once all its Nodes are idle; no larger rack leaves in the place of a smaller rack that
    still waits for that, because more Nodes would leave than are too many.
    """
    staying = ((node, member) for node, member in members if member.removal is None)
    racks = [rack for nodes in _domains(staying) for rack in _least_useful_first(nodes, size)]
    surplus = count_surplus(map(len, racks), wanted)
    is_any = strategy is ScaleDownStrategy.PREFER_IDLE
    free_to_go = (rack for rack in racks if is_any or not any(each.active for _, each in rack))
    leaving: list[str] = []
    left = Counter(surplus)
    for rack in sorted(free_to_go, key=_usefulness):
        if left[len(rack)]:
            left[len(rack)] -= 1
            leaving += (node for node, _ in rack)
    return Surplus(sum(surplus.elements()), leaving)


def reprieved_racks(
    members: Iterable[tuple[str, Member]], size: int, wanted: int, leaving: frozenset[str]
) -> Iterator[str]:
    """Yield the Nodes that are leaving for a scale-down and may stay.

    leaving: the Nodes that are to leave from now on.

    Nodes whose rack stays in part come first. Then come as many racks as are wanted and do not stay
    yet: racks with the most Nodes first, then the most useful racks, then the oldest.
    """
    racks: list[Nodes] = []
    missing = wanted
    for nodes in _domains(members):
        stay = sum(each.removal is None and node not in leaving for node, each in nodes)
        spareable = spareable_nodes(nodes)
        completing = -stay % size
        yield from (node for node, _ in spareable[:completing])
        missing -= -(-stay // size)
        racks += _chunks(spareable[completing:], size)
    racks.sort(key=_usefulness, reverse=True)
    yield from (node for rack in racks[: max(0, missing)] for node, _ in rack)


def complete_racks(
    members: Iterable[tuple[str, Member]], size: int, kept: Iterable[str]
) -> Iterator[str]:
    """Yield the leaving Nodes that have to stay, so that the racks of kept Nodes are whole.

    kept: the names of the leaving Nodes that stay from now on.
    """
    names = frozenset(kept)
    for nodes in _domains(members):
        stay = sum(each.removal is None or node in names for node, each in nodes)
        others = (node for node, _ in spareable_nodes(nodes) if node not in names)
        yield from islice(others, -stay % size)


def exchanged_racks(
    members: Iterable[tuple[str, Member]], size: int
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the Nodes of idle racks that leave, and of racks with busy victims that stay.

    Only whole racks are exchanged: a rack that has lost a Node, or loses an idle one, goes on.
    """
    idle: list[Nodes] = []
    busy: list[Nodes] = []
    for nodes in _domains(members):
        staying = [each for each in nodes if each[1].removal is None]
        leaving = [each for each in nodes if each[1].removal is RemovalReason.SCALE_DOWN]
        idle += [rack for rack in _chunks(staying, size) if _is_whole(rack, size, is_busy=False)]
        busy += [rack for rack in _chunks(leaving, size) if _is_whole(rack, size, is_busy=True)]
    count = min(len(idle), len(busy))
    idle.sort(key=_usefulness)
    busy.sort(key=_usefulness, reverse=True)
    return _names(idle[:count]), _names(busy[:count])


def spareable_nodes(nodes: Iterable[tuple[str, Member]]) -> Nodes:
    """Return the Nodes that are leaving for a scale-down, the most useful first."""
    leaving = [each for each in nodes if each[1].removal is RemovalReason.SCALE_DOWN]
    return sorted(leaving, key=place, reverse=True)


def place(each: tuple[str, Member]) -> Place:
    """Return the place of a Node: by what is lost with it, then the newest batch, then the name."""
    node, member = each
    return cost(member), -member.batch, node


def cost(member: Member) -> int:
    """Return how much is lost with a Node.

    The levels: 0 not registered, 1 idle and cordoned, 2 idle, 3 active and cordoned, 4 active.
    """
    if not member.registered:
        return 0
    return 1 + 2 * member.active + (not member.cordoned)


def _is_whole(rack: Nodes, size: int, *, is_busy: bool) -> bool:
    """Return whether a rack lacks no Node, and runs workloads if and only if `is_busy`."""
    return len(rack) == size and any(member.active for _, member in rack) is is_busy


def _names(racks: list[Nodes]) -> tuple[str, ...]:
    return tuple(node for rack in racks for node, _ in rack)


def _domains(members: Iterable[tuple[str, Member]]) -> Iterator[Nodes]:
    """Yield the Nodes of each NVLink domain, the least useful first, in order of the domains."""
    domains: defaultdict[str, Nodes] = defaultdict(list)
    for node, member in members:
        domains[member.domain].append((node, member))
    for domain in sorted(domains):
        yield sorted(domains[domain], key=place)


def _least_useful_first(nodes: Nodes, size: int) -> Iterator[Nodes]:
    """Yield the racks that these Nodes form; the first rack may lack Nodes."""
    part = len(nodes) % size
    if part:
        yield nodes[:part]
    yield from _chunks(nodes[part:], size)


def _chunks(nodes: Nodes, size: int) -> Iterator[Nodes]:
    return (nodes[first : first + size] for first in range(0, len(nodes), size))


def _usefulness(rack: Nodes) -> tuple[int, list[int], int, str]:
    """Return the place of a rack among the racks that may leave, the least useful first."""
    costs = sorted((cost(member) for _, member in rack), reverse=True)
    newest = max(member.batch for _, member in rack)
    return len(rack), costs, -newest, rack[0][1].domain
