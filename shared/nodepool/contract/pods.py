"""Pods: how they may be interrupted, what they ask for, and which taints they tolerate."""

from collections.abc import Iterable
from datetime import datetime
from functools import lru_cache
from hashlib import sha256
from typing import Annotated, Final, Literal, NamedTuple

from pydantic import Field

from nodepool.contract.model import CPU_TAINT, RESERVED, Taint, Value
from nodepool.contract.timetable import GRACE_MAX_S
from nodepool.contract.words import Word

GPU: Final = "nvidia.com/gpu"
"""The name under which Pods ask for GPUs, and under which a Node has them."""
ACCELERATOR: Final = "sunk.coreweave.com/accelerator"
"""The other name of the same GPUs, under which Slurm's Pods ask for them.

Kubernetes counts each name for itself; see
https://docs.coreweave.com/products/cks/clusters/scheduling/workload-scheduling.
"""
PODS_MAX: Final = 110
"""The most Pods on a Node, as in https://kubernetes.io/docs/setup/best-practices/cluster-large/."""
TOLERATIONS_MAX: Final = 16
"""The most tolerations of a Pod; so what is observed of a Node full of Pods fits one message."""
GPUS_MAX: Final = 1_024
"""The most GPUs that a Pod can ask for; no instance type has so many."""

Seconds = Annotated[int, Field(ge=0, le=GRACE_MAX_S)]
"""A grace period."""
Gpus = Annotated[int, Field(ge=0, le=GPUS_MAX)]
"""A number of GPUs."""


class PodClass(Word):
    """How a Pod may be interrupted.

    See https://docs.coreweave.com/products/cks/clusters/scheduling/workload-scheduling.
    """

    BLOCKING = "blocking"
    INTERRUPTABLE = "interruptable"
    GRACEFUL = "graceful"


class Toleration(Value):
    """Which taints a Pod tolerates.

    See https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/. There is no
    `tolerationSeconds`: what is tolerated is tolerated for ever.

    key: of the taints; empty for all, which needs the operator Exists.
    operator: whether the value must be the same, or any will do.
    value: of the taints.
    effect: of the taints; empty for all.
    """

    key: str = ""
    operator: Literal["Equal", "Exists"] = "Equal"
    value: str = ""
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = ""

    def matches(self, taint: Taint) -> bool:
        """Return whether the toleration tolerates this taint."""
        return (
            self.effect in ("", taint.effect)
            and (self.key == taint.key or (not self.key and self.operator == "Exists"))
            and (self.operator == "Exists" or self.value == taint.value)
        )


NO_GPU: Final = Toleration(key=CPU_TAINT.key, operator="Exists", effect="NoSchedule")
"""The toleration that the platform gives to each Pod that asks for no GPU."""


@lru_cache(maxsize=1_024)
def reserved_taint(value: str) -> Taint:
    """Return the taint of a Node that is reserved, by the value of its label `RESERVED`.

    If the value is an organisation, the platform gives each Pod of the organisation a toleration of
    the taint.
    """
    digest = sha256(value.encode()).hexdigest()
    return Taint(key=RESERVED, value=digest[:10], effect="NoExecute")


def find_repelling_taint(
    taints: Iterable[Taint], effects: Iterable[str], tolerations: Iterable[Toleration]
) -> Taint | None:
    """Return the first taint that has one of the effects and is not tolerated, if any."""
    effects, tolerations = tuple(effects), tuple(tolerations)
    return next(
        (
            taint
            for taint in taints
            if taint.effect in effects and not any(each.matches(taint) for each in tolerations)
        ),
        None,
    )


class Shape(NamedTuple):
    """What a Pod asks of its Node.

    gpus: how many of `nvidia.com/gpu`.
    accelerators: how many of `sunk.coreweave.com/accelerator`, which are counted separately.
    slots: how many of the PODS_MAX Pods of a Node it takes the place of, by its CPU and memory.
    """

    gpus: int
    accelerators: int
    slots: int = 1

    def room(self, gpus: int, accelerators: int, slots: int = PODS_MAX) -> int:
        """Return how many Pods of this shape fit into this room of a Node."""
        rooms = [slots // self.slots]
        if self.gpus:
            rooms.append(gpus // self.gpus)
        if self.accelerators:
            rooms.append(accelerators // self.accelerators)
        return min(rooms)


class Pod(Value):
    """A Pod, as far as it decides where it runs and when its Node may leave.

    name: its name.
    daemon_set: whether it belongs to a DaemonSet.
    verification: whether it checks the Node's health.
    interruption: how it may be interrupted.
    grace_s: its termination grace period, in seconds.
    terminating: whether it is in its grace period.
    gpus: how many `nvidia.com/gpu` it asks for.
    accelerators: how many `sunk.coreweave.com/accelerator`.
    tolerations: the taints that it tolerates.
    """

    name: str
    daemon_set: bool = False
    verification: bool = False
    interruption: PodClass = PodClass.BLOCKING
    grace_s: Seconds = 30
    terminating: bool = False
    gpus: Gpus = 0
    accelerators: Gpus = 0
    tolerations: Annotated[tuple[Toleration, ...], Field(max_length=TOLERATIONS_MAX)] = ()

    @property
    def counts_as_work(self) -> bool:
        """Return whether it makes its Node active; DaemonSet and verification Pods do not."""
        return not (self.daemon_set or self.verification)

    @property
    def _tolerated(self) -> tuple[Toleration, ...]:
        own = () if self.gpus or self.accelerators else (NO_GPU,)
        return (*self.tolerations, *own)

    def tolerates(self, taint: Taint) -> bool:
        """Return whether the Pod tolerates this taint of a Node."""
        return any(toleration.matches(taint) for toleration in self._tolerated)

    def find_repelling_taint(self, taints: Iterable[Taint], *effects: str) -> Taint | None:
        """Return the first taint that has one of the effects and is not tolerated, if any."""
        return find_repelling_taint(taints, effects, self._tolerated)


class WaitingPods(Value):
    """Pods that wait for a Node and ask for the same.

    gpus, accelerators: what each of them asks for, as in `Pod`.
    slots: how many of the PODS_MAX Pods of a Node each takes the place of, by its CPU and memory.
    count: how many they are.
    """

    gpus: Gpus = 0
    accelerators: Gpus = 0
    slots: Annotated[int, Field(ge=1, le=PODS_MAX)] = 1
    count: Annotated[int, Field(ge=1)]


class BlockingPod(Value):
    """A Pod that a drain for a scale-down waits for, and when it was observed first."""

    name: str
    since: datetime
