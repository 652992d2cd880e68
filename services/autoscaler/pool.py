"""A NodePool as the autoscaler knows it: its target, its Nodes, and the Pods that wait."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from immutables import Map

from autoscaler.needed import nodes_needed
from autoscaler.nodes import Nodes
from nodepool.contract.catalog import INSTANCE_TYPES, InstanceType
from nodepool.contract.keys import LedgerKey, PoolKey
from nodepool.contract.model import NodePoolSpec
from nodepool.contract.pods import Pod, Shape, WaitingPods
from nodepool.contract.production import production_taints
from nodepool.state.values import replace

NO_LEDGER: Final = LedgerKey("")


@dataclass(frozen=True, slots=True)
class WaitingPod:
    """A Pod that waits for a Node.

    number: distinguishes the Pod from other Pods of the same name.
    pod: the requests and tolerations of the Pod.
    fits: whether an empty Node of its NodePool could take it.
    """

    number: int
    pod: Pod
    fits: bool

    @property
    def shape(self) -> Shape:
        """The requests of the Pod."""
        return Shape(self.pod.gpus, self.pod.accelerators)


@dataclass(frozen=True, slots=True)
class Waiting:
    """The Pods that wait for a Node of a NodePool.

    pods: the simulated Pods, by name; none in a Kubernetes cluster, whose agent only counts Pods.
    shapes: the number of Pods of each shape that fits on an empty Node.
    count: the total number of these Pods.
    """

    pods: Map[str, WaitingPod] = Map()
    shapes: Map[Shape, int] = Map()
    count: int = 0

    def put(self, pod: WaitingPod) -> "Waiting":
        """Return the Pods with this Pod, in place of another Pod of its name."""
        left, name, shape = self._without(pod.pod.name), pod.pod.name, pod.shape
        pods = left.pods.set(name, pod)
        if not pod.fits:
            return Waiting(pods, left.shapes, left.count)
        shapes = left.shapes.set(shape, left.shapes.get(shape, 0) + 1)
        return Waiting(pods, shapes, left.count + 1)

    def drop(self, name: str, number: int) -> "Waiting":
        """Return the Pods without the Pod of this name and number."""
        pod = self.pods.get(name)
        return self._without(name) if pod is not None and pod.number == number else self

    def refit(self, fits: Callable[[Pod], bool]) -> "Waiting":
        """Return the Pods with each simulated Pod checked again; an agent repeats its report."""
        waiting = Waiting() if self.pods else self
        for each in self.pods.values():
            waiting = waiting.put(replace(each, fits=fits(each.pod)))
        return waiting

    def _without(self, name: str) -> "Waiting":
        pod = self.pods.get(name)
        if pod is None:
            return self
        pods = self.pods.delete(name)
        if not pod.fits:
            return Waiting(pods, self.shapes, self.count)
        left = self.shapes[pod.shape] - 1
        shapes = self.shapes.set(pod.shape, left) if left else self.shapes.delete(pod.shape)
        return Waiting(pods, shapes, self.count - 1)


class Loss(NamedTuple):
    """Nodes that a NodePool came to lack within the same minute, and when it lost the last of them.

    Nodes that are lost together, for example to a preemption, are mostly given up together.
    """

    since: datetime
    nodes: int


@dataclass(frozen=True, slots=True)
class Pool:
    """A NodePool, whether autoscaled or not: its autoscaling may be turned on at any time.

    uid, generation, spec: these fields of the stored NodePool.
    valid: whether the NodePool is valid and is not being deleted.
    commanded: when a command last changed the target; None if no command has changed it.
    raised: when the autoscaler last raised the target.
    proposed: whether a target for this generation was published and has not taken effect yet.
    short_since: since when it has fewer Nodes than its target; None if it has enough. A Node that
        leaves counts until it has left.
    full_since: since when the waiting Pods need more Nodes than the target, or than quota allows;
        None while they do not.
    nodes: the Nodes of the NodePool.
    waiting: the Pods that wait for a Node of the NodePool.
    ledger: the limit that the NodePool counts against.
    granted, beyond: how many Nodes quota grants, and how many Nodes the control plane gave back
        beyond its grant, as last published.
    is_over: whether the target was above the limit when quota checked this generation.
    asked: the target that the autoscaler has requested; 0 once quota has checked the target.
    losses: the missing Nodes that it came to lack after `short_since`, in the order of their
        losses. A Node that comes is in the place of the Node that was lost last.
    """

    key: PoolKey
    uid: str
    generation: int
    spec: NodePoolSpec
    valid: bool
    commanded: datetime | None = None
    raised: datetime | None = None
    proposed: bool = False
    short_since: datetime | None = None
    full_since: datetime | None = None
    nodes: Nodes = Nodes()  # noqa: RUF009  # `Nodes` is immutable.
    waiting: Waiting = Waiting()
    ledger: LedgerKey = NO_LEDGER
    granted: int = 0
    is_over: bool = False
    asked: int = 0
    losses: tuple[Loss, ...] = ()
    beyond: int = 0

    @property
    def counted(self) -> int:
        """Return how many Nodes quota allows: the granted Nodes, or the existing Nodes."""
        return max(self.granted, self.nodes.billable - self.beyond)

    @property
    def own_room(self) -> int:
        """Return how many Nodes it still has beyond its grant; they count against the limit."""
        return max(0, min(self.beyond, self.nodes.billable - self.granted))

    @property
    def missing(self) -> int:
        """Return how many Nodes fewer than its target the NodePool has."""
        return max(0, self.spec.target - self.nodes.billable)

    @property
    def surplus(self) -> int:
        """Return how many idle Nodes leave for the target; Nodes that leave anyway count first."""
        return max(0, self.nodes.kept - self.nodes.leaving - self.spec.target)

    @property
    def unjudged(self) -> int:
        """Return how many more Nodes were requested that quota has not checked yet."""
        return max(0, self.asked - self.counted)

    @property
    def is_full(self) -> bool:
        """Return whether Pods wait for more Nodes than the target, or than quota allows."""
        if not self.waiting.count:
            return False
        return self.is_over or self.needed > self.spec.target

    @property
    def instance(self) -> InstanceType | None:
        """The instance type of the Nodes; None for an unknown type."""
        return INSTANCE_TYPES.get(self.spec.instance_type)

    def fits(self, pod: Pod) -> bool:
        """Return whether an empty Node of it could take this Pod."""
        instance = self.instance
        if instance is None or max(pod.gpus, pod.accelerators) > instance.gpus:
            return False
        taints = production_taints(instance, self.spec.node_taints)
        return pod.find_repelling_taint(taints, "NoSchedule", "NoExecute") is None

    def replace_waiting(self, waiting: Iterable[WaitingPods]) -> "Pool":
        """Return the NodePool with the waiting Pods that the agent of its cluster has counted."""
        gpus, shapes = self.instance.gpus if self.instance else 0, dict[Shape, int]()
        for each in waiting:
            shape = Shape(each.gpus, each.accelerators, each.slots)
            if shape.room(gpus, gpus):
                shapes[shape] = shapes.get(shape, 0) + each.count
        return replace(self, waiting=Waiting(shapes=Map(shapes), count=sum(shapes.values())))

    def refit(self) -> "Pool":
        """Return the NodePool with each waiting Pod checked again, after its taints changed."""
        return replace(self, waiting=self.waiting.refit(self.fits))

    @property
    def is_autoscaled(self) -> bool:
        """Whether the autoscaler may set the target; it never does for Nodes that come in racks."""
        if not (self.valid and self.spec.autoscaling):
            return False
        instance = self.instance
        return instance is not None and not instance.rack_size

    @property
    def bounds(self) -> tuple[int, int]:
        """The minimum and the maximum target that the autoscaler may set."""
        target = self.spec.target
        least, most = self.spec.min_nodes, self.spec.max_nodes
        return (target if least is None else least), (target if most is None else most)

    @property
    def needed(self) -> int:
        """Return how many Nodes the running and the waiting Pods need, up to the maximum target.

        Nodes that are ready, or on their way, count as room for the waiting Pods.
        """
        (_, most), instance = self.bounds, self.instance
        busy = self.nodes.held - self.nodes.ready
        gpus = instance.gpus if instance is not None else 0
        return min(most, busy + nodes_needed(self.waiting.shapes, gpus, max(0, most - busy)))

    def update_moments(self, before: "Pool | None", now: datetime) -> "Pool":
        """Return the NodePool with the moments from which it lacks Nodes, or room, up to date.

        before: the NodePool before the change; None for a new NodePool.
        """
        short, losses = self._date_missing(before, now)
        full = (self.full_since or now) if self.is_full else None
        if (short, full, losses) == (self.short_since, self.full_since, self.losses):
            return self
        return replace(self, short_since=short, full_since=full, losses=losses)

    def count_missing(self, moment: datetime) -> int:
        """Return how many Nodes it has lacked from this moment on, or for longer."""
        if self.short_since is None or self.short_since > moment:
            return 0
        return self.missing - sum(loss.nodes for loss in self.losses if loss.since > moment)

    def _date_missing(
        self, before: "Pool | None", now: datetime
    ) -> tuple[datetime | None, tuple[Loss, ...]]:
        """Return since when it has lacked Nodes, and the later losses.

        A lower target gives up the Nodes that were lost first.
        """
        if not self.missing:
            return None, ()
        if before is None or self.short_since is None:
            return now, ()
        known = before.missing - sum(loss.nodes for loss in self.losses)
        first = min(before.missing, max(0, before.spec.target - self.spec.target))
        new = max(0, self.missing + first - before.missing)
        end, start, kept = first + self.missing, 0, list[Loss]()
        for since, nodes in (Loss(self.short_since, known), *self.losses, Loss(now, new)):
            count = min(end, start + nodes) - max(first, start)
            start += nodes
            if count <= 0:
                continue
            if kept and _minute_of(kept[-1].since) == _minute_of(since):
                count += kept.pop().nodes
            kept.append(Loss(since, count))
        return kept[0].since, tuple(kept[1:])


def _minute_of(moment: datetime) -> datetime:
    return moment.replace(second=0, microsecond=0)
