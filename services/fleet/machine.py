"""A simulated machine."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from immutables import Map

from nodepool.contract.commands import MachineFault
from nodepool.contract.keys import PoolKey
from nodepool.contract.model import Taint
from nodepool.contract.node_states import MachineState
from nodepool.contract.pods import Pod

Fault = Literal["", MachineFault]
"""How a machine fails when it boots, as `BreakMachine` names it; empty for one that does not."""
SCATTER = 0x9E3779B1
"""Odd, so that multiplying by it maps the first 2**24 numbers to 2**24 different names."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine: how it boots, the stay in a NodePool that it is in, and the Pods on it.

    boot_s: how long a boot takes, in seconds.
    fault: how it fails the next `fault_times` times that it boots.
    fault_times: how many such boots are still to come.
    fault_cause: the cause that it reports then.
    gpus: how many GPUs it has, which both names of GPUs stand for.
    assignment: which stay it is in, or was in last; 0 before the first.
    pool: the NodePool that it is in; None between two stays.
    has_agent: whether its cluster is one of Kubernetes, which runs and reports its Pods itself.
    taints: those of its Node that keep Pods away.
    failing: how it fails in this stay.
    boots_at: when its boot is over; None where none is under way, or will never be.
    joined: whether it is a Node of a cluster.
    unschedulable: whether it is cordoned.
    cordon: the count of cordons of this stay that it has applied.
    lock: the number of the lock that it has applied; 0 without one.
    reported: `unschedulable` as it was observed last.
    reported_lock: `lock` as it was observed last.
    evicting: whether it is drained since then, or Pods end because of a taint.
    pods: the Pods on it, by name.
    kills: when terminating Pods are killed, by name.
    verify_s, failures_per_day, repair_s, seed: as it was added with.
    boot: the number of the reboot in this stay that it does, or has done; 0 before the first.
    restarting: whether it is rebooted as a Node.
    verifying: whether it is verified as a Node.
    verified_at: when that is over; None where none is under way, or will never be.
    conditions: the types of the conditions that report a problem of its Node.
    mute: whether its kubelet sends no heartbeat.
    unknown_at: when its Node gets Ready=Unknown because no heartbeat comes; None for never.
    asked: the number of the `NodeReportRequested` that it has not answered; 0 for none.
    fails_at: when it fails by itself; None for never.
    state: where it is in the data centre.
    visits: how often it came to triage since it was new.
    moves_at: when its next step in triage is due; None for never.
    """

    boot_s: float
    fault: Fault = ""
    fault_times: int = 0
    fault_cause: str = ""
    gpus: int = 0
    assignment: int = 0
    pool: PoolKey | None = None
    has_agent: bool = False
    taints: tuple[Taint, ...] = ()
    failing: Fault = ""
    boots_at: datetime | None = None
    joined: bool = False
    unschedulable: bool = False
    cordon: int = 0
    lock: int = 0
    reported: bool = False
    reported_lock: int = 0
    evicting: bool = False
    pods: Map[str, Pod] = Map()
    kills: Map[str, datetime] = Map()
    verify_s: float = 0
    failures_per_day: float = 0
    repair_s: float = 0
    seed: int = 0
    boot: int = 0
    restarting: bool = False
    verifying: bool = False
    verified_at: datetime | None = None
    conditions: Map[str, bool] = Map()
    mute: bool = False
    unknown_at: datetime | None = None
    asked: int = 0
    fails_at: datetime | None = None
    state: MachineState = MachineState.PRODUCTION
    visits: int = 0
    moves_at: datetime | None = None

    @property
    def answers(self) -> bool:
        """Whether it reports what changes on its Node."""
        return not (self.joined and (self.is_silent or self.restarting))

    @property
    def is_silent(self) -> bool:
        """Whether it sends no heartbeat."""
        return self.failing == "hang" or self.mute

    @property
    def is_observed(self) -> bool:
        """Whether its cordon, its lock and its taints were observed, or an agent observes them."""
        is_marked = self.unschedulable == self.reported and self.lock == self.reported_lock
        return self.has_agent or (is_marked and not self.evicting)

    @property
    def due(self) -> datetime | None:
        """The next moment at which it has something to report; None if there is none."""
        moments = [*self.kills.values()] if self.answers else []
        if self.boots_at is not None:
            moments.append(self.boots_at)
        if self.verified_at is not None and self.answers:
            moments.append(self.verified_at)
        can_fail = self.joined and not self.restarting and self.failing != "hang"
        if self.fails_at is not None and can_fail:
            moments.append(self.fails_at)
        if self.moves_at is not None:
            moments.append(self.moves_at)
        if self.unknown_at is not None:
            moments.append(self.unknown_at)
        return min(moments, default=None)


def name_of(number: int) -> str:
    """Return the name of the machine with this number, counted from 1."""
    return f"g{number * SCATTER & 0xFFFFFF:06x}"
