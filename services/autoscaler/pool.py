"""A NodePool as the autoscaler knows it: what is wanted, what is there, and what waits."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from immutables import Map

from autoscaler.needed import nodes_needed
from autoscaler.nodes import Nodes
from nodepool.contract.catalog import INSTANCE_TYPES, InstanceType
from nodepool.contract.keys import LedgerKey, PoolKey
from nodepool.contract.model import NodePoolSpec
from nodepool.contract.pods import Pod, Shape, WaitingPods
from nodepool.contract.production import production_taints

NO_LEDGER: Final = LedgerKey("")


@dataclass(frozen=True, slots=True)
class WaitingPod:
    """A Pod that waits for a Node.

    number: distinguishes it from others of its name.
    pod: what it asks for, and tolerates.
    fits: whether an empty Node of its NodePool could take it.
    """

    number: int
    pod: Pod
    fits: bool

    @property
    def shape(self) -> Shape:
        """What it asks for."""
        return Shape(self.pod.gpus, self.pod.accelerators)


@dataclass(frozen=True, slots=True)
class Waiting:
    """The Pods that wait for a Node of a NodePool.

    pods: the simulated ones, by name; none in a cluster of Kubernetes, whose agent only counts.
    shapes: how many there are of each shape that an empty Node takes.
    count: how many these are.
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

    def refitted(self, fits: Callable[[Pod], bool]) -> "Waiting":
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


@dataclass(frozen=True, slots=True)
class Pool:
    """A NodePool, whether it is autoscaled or not: it may be from the next moment on.

    uid, generation, spec: as it is stored.
    valid: whether it is valid and stays.
    commanded: when a command changed its target last; None where none did since it was created.
    raised: when the autoscaler raised its target last.
    proposed: whether a target for this generation was said, of which nothing has come yet.
    short_since: since when it has fewer Nodes than it wants; None while it has them.
    full_since: since when the Pods that wait need more Nodes than it wants, or may have; None while
        they do not.
    nodes: its Nodes.
    waiting: the Pods that wait for a Node of it.
    ledger: the limit that it counts against.
    granted: how many Nodes quota grants it, as published last.
    is_over: whether its target did not fit its limit when quota checked this generation.
    asked: the target that the autoscaler has asked for; 0 once quota has judged it.
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
    nodes: Nodes = Nodes()  # noqa: RUF009  # It is immutable.
    waiting: Waiting = Waiting()
    ledger: LedgerKey = NO_LEDGER
    granted: int = 0
    is_over: bool = False
    asked: int = 0

    @property
    def counted(self) -> int:
        """Return how many of its Nodes count against its limit, granted or there."""
        return max(self.granted, self.nodes.billable)

    @property
    def unjudged(self) -> int:
        """Return how many Nodes more it has asked for, of which quota has not judged yet."""
        return max(0, self.asked - self.counted)

    @property
    def is_full(self) -> bool:
        """Return whether Pods wait that its target has no Nodes for, or quota has none."""
        if not self.waiting.count:
            return False
        return self.is_over or self.needed > self.spec.target

    @property
    def instance(self) -> InstanceType | None:
        """The type of its Nodes; None for one that is not known."""
        return INSTANCE_TYPES.get(self.spec.instance_type)

    def fits(self, pod: Pod) -> bool:
        """Whether an empty Node of it could take this Pod."""
        instance = self.instance
        if instance is None or max(pod.gpus, pod.accelerators) > instance.gpus:
            return False
        taints = production_taints(instance, self.spec.node_taints)
        return pod.repelled(taints, "NoSchedule", "NoExecute") is None

    def reported(self, waiting: Iterable[WaitingPods]) -> "Pool":
        """Return the NodePool with the waiting Pods that the agent of its cluster has counted."""
        gpus, shapes = self.instance.gpus if self.instance else 0, dict[Shape, int]()
        for each in waiting:
            shape = Shape(each.gpus, each.accelerators, each.slots)
            if shape.room(gpus, gpus):
                shapes[shape] = shapes.get(shape, 0) + each.count
        return replace(self, waiting=Waiting(shapes=Map(shapes), count=sum(shapes.values())))

    def refitted(self) -> "Pool":
        """Return the NodePool with each waiting Pod checked again, after its taints changed."""
        return replace(self, waiting=self.waiting.refitted(self.fits))

    @property
    def is_autoscaled(self) -> bool:
        """Whether the autoscaler may set its target; Nodes that come in racks it leaves alone."""
        if not (self.valid and self.spec.autoscaling):
            return False
        instance = self.instance
        return instance is not None and not instance.rack_size

    @property
    def bounds(self) -> tuple[int, int]:
        """The least and the most Nodes that the autoscaler may want."""
        target = self.spec.target
        least, most = self.spec.min_nodes, self.spec.max_nodes
        return (target if least is None else least), (target if most is None else most)

    @property
    def needed(self) -> int:
        """How many Nodes hold what runs and what waits, as far as it may want them.

        One that is ready, or on its way, is there for what waits.
        """
        (_, most), instance = self.bounds, self.instance
        busy = self.nodes.held - self.nodes.ready
        gpus = instance.gpus if instance is not None else 0
        return min(most, busy + nodes_needed(self.waiting.shapes, gpus, max(0, most - busy)))

    def observed(self, now: datetime) -> "Pool":
        """Return the NodePool with the moments from which it lacks Nodes, or room, up to date."""
        is_short = self.nodes.kept < self.spec.target
        short = (self.short_since or now) if is_short else None
        full = (self.full_since or now) if self.is_full else None
        if (short, full) == (self.short_since, self.full_since):
            return self
        return replace(self, short_since=short, full_since=full)
