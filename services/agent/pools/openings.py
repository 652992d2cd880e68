"""Decides for which autoscaled NodePool each waiting Pod counts."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from math import floor
from typing import Final

from agent.actions import Place, ReportWaiting
from agent.nodes.conditions import status_of
from agent.nodes.creation import KUBELET_LABELS
from agent.nodes.objects import WantedNode
from agent.pods.waiting import Demand, Requests
from agent.pools.objects import SpecFault, WantedPool, read_spec
from agent.reading import parts
from nodepool.contract.catalog import INSTANCE_TYPES, ZONES, InstanceType
from nodepool.contract.events import PodsWaitingReported
from nodepool.contract.events.agent import SHAPES_MAX
from nodepool.contract.keys import CONTROL_PLANE, pool_key
from nodepool.contract.model import RESERVED, NodePhase, NodePoolSpec, Taint
from nodepool.contract.pods import PODS_MAX, Shape, WaitingPods
from nodepool.contract.production import production_labels, production_taints

PAIRS_MAX: Final = 10_000
"""The most comparisons of a kind of Pods with a NodePool at a time; all of them take a third of a
second. The remaining kinds wait until there are fewer kinds."""
_COMING: Final = (NodePhase.BOOTING, NodePhase.VERIFYING, NodePhase.REBOOTING)


@dataclass(frozen=True, slots=True)
class Opening:
    """An autoscaled NodePool, and what an empty Node of it offers.

    name, uid, generation: from the NodePool on the bus.
    instance_type, labels, taints: the same for all its Nodes.
    free: how many empty Nodes it has, will soon have, or may still ask for.
    """

    name: str
    uid: str
    generation: int
    instance_type: InstanceType
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    free: int

    def takes(self, demand: Demand) -> bool:
        """Return whether an empty Node of it could take a Pod that asks for this."""
        return (
            demand.accepts(self.labels)
            and not demand.is_repelled(self.taints, "NoSchedule", "NoExecute")
            and self.room(demand.requests) > 0
        )

    def room(self, requests: Requests) -> int:
        """Return how many Pods that ask for so much an empty Node of it takes."""
        kind, rooms = self.instance_type, [PODS_MAX]
        if requests.cpu:
            rooms.append(int(kind.vcpu / requests.cpu))
        if requests.memory:
            rooms.append(int(kind.memory_ki * 1024 / requests.memory))
        return Shape(requests.gpus, requests.accelerators).room(kind.gpus, kind.gpus, min(rooms))

    def shape(self, requests: Requests) -> Shape:
        """Return the shape of a Pod with these requests, of which an empty Node takes at least one.

        Its slots are rounded down, so that a NodePool rather grows twice than too far.
        """
        others = self.room(requests._replace(gpus=0, accelerators=0))
        return Shape(requests.gpus, requests.accelerators, PODS_MAX // others)


def opening(
    wanted: WantedPool, object_uid: str, nodes: Iterable[WantedNode], place: Place
) -> Opening | None:
    """Return a NodePool with its Nodes, as the bus has them; None if it does not grow by itself.

    object_uid: the uid of its object in the cluster, which its Nodes are labelled with; empty
      where it has none.
    """
    is_autoscaled = wanted.spec.get("autoscaling") is True
    if wanted.deleting or not is_autoscaled or _is_invalid(wanted):
        return None
    spec = read_spec(wanted.spec)
    if isinstance(spec, SpecFault):
        return None
    kind, zone = INSTANCE_TYPES.get(spec.instance_type), ZONES.get(place.zone)
    if kind is None or zone is None or kind.rack_size:
        return None
    key = pool_key(place.org, place.cluster, wanted.name)
    uid = object_uid or wanted.uid
    return Opening(
        name=wanted.name,
        uid=wanted.uid,
        generation=wanted.generation,
        instance_type=kind,
        labels={
            **KUBELET_LABELS,
            **spec.node_labels,
            **production_labels(key, uid, kind, zone, spec.compute_class),
        },
        taints=production_taints(kind, spec.node_taints),
        free=_free(wanted, spec, nodes),
    )


def _is_invalid(wanted: WantedPool) -> bool:
    return any(
        (each.get("type"), each.get("status")) == ("Validated", "False")
        for each in parts(wanted.status, "conditions")
    )


def _free(wanted: WantedPool, spec: NodePoolSpec, nodes: Iterable[WantedNode]) -> int:
    """Return the count of Nodes that a NodePool may still ask for, or has empty or on their way.

    A Node that was asked for and has no machine yet counts only if machines are available. A Node
    that is reserved for the control plane does not count at all.
    """
    most = spec.target if spec.max_nodes is None else spec.max_nodes
    states = [
        node.phase in _COMING or _is_empty(node)
        for node in nodes
        if node.labels.get(RESERVED) != CONTROL_PLANE
    ]
    there = states.count(True)
    if _has_capacity(wanted):
        there = max(there, spec.target - states.count(False))
    return max(0, min(most, most - spec.target + there))


def _has_capacity(wanted: WantedPool) -> bool:
    """Whether there are machines for all that a NodePool wants, and its quota allows them."""
    status = {each.get("type"): each.get("status") for each in parts(wanted.status, "conditions")}
    return (status.get("Capacity"), status.get("Quota")) == ("True", "True")


def _is_empty(node: WantedNode) -> bool:
    """Return whether a Node takes Pods, and none runs there."""
    if node.phase is not NodePhase.PRODUCTION or node.unschedulable:
        return False
    return any(
        each.get("type") == "CWActive" and status_of(each) == "False" for each in node.conditions
    )


def shared_out(
    demands: Mapping[Demand, int], openings: Sequence[Opening]
) -> Mapping[str, Mapping[Shape, int]]:
    """How many Pods of each shape count for each NodePool, by its name; each Pod for one at most.

    The Pods that ask for most come first, then those that fewest NodePools could take. Each counts
    for the first NodePool by name that could take it and has a Node free for it; those that its
    Nodes would rather not have (`PreferNoSchedule`) come last. Where none has a Node free, it
    counts for the first.
    """
    by_name = {each.name: each for each in openings}
    free = {each.name: Fraction(each.free) for each in openings}
    shares = {name: Counter[Shape]() for name in by_name}
    for (requests, names), count in sorted(_alike(demands, openings).items(), key=_precedence):
        left = count
        for name in names:
            room = by_name[name].room(requests)
            taken = min(left, floor(free[name] * room))
            free[name] -= Fraction(taken, room)
            shares[name][by_name[name].shape(requests)] += taken
            left -= taken
        shares[names[0]][by_name[names[0]].shape(requests)] += left
    return {name: {shape: n for shape, n in each.items() if n} for name, each in shares.items()}


_Alike = tuple[Requests, tuple[str, ...]]


def _alike(demands: Mapping[Demand, int], openings: Collection[Opening]) -> Counter[_Alike]:
    """How many Pods ask for the same of the same NodePools, which are in order of preference."""
    alike: Counter[_Alike] = Counter()
    for demand, count in islice(demands.items(), PAIRS_MAX // max(len(openings), 1)):
        fitting = sorted(
            (demand.is_repelled(each.taints, "PreferNoSchedule"), each.name)
            for each in openings
            if each.takes(demand)
        )
        if fitting:
            alike[demand.requests, tuple(name for _, name in fitting)] += count
    return alike


def _precedence(item: tuple[_Alike, int]) -> tuple[object, ...]:
    (requests, names), _ = item
    return tuple(-each for each in requests), len(names), names


def missing_reports(
    demands: Mapping[Demand, int],
    openings: Sequence[Opening],
    reported: Mapping[str, PodsWaitingReported],
    place: Place,
) -> Iterator[ReportWaiting]:
    """Yield the report on each autoscaled NodePool that differs from the last report.

    reported: what was said of each last, by its name.
    """
    shares = shared_out(demands, openings)
    for each in openings:
        largest = sorted(shares[each.name].items(), reverse=True)[:SHAPES_MAX]
        event = PodsWaitingReported(
            org=place.org,
            cluster=place.cluster,
            pool=each.name,
            uid=each.uid,
            generation=each.generation,
            waiting=tuple(WaitingPods(**shape._asdict(), count=count) for shape, count in largest),
        )
        if reported.get(each.name) != event:
            yield ReportWaiting(event)
