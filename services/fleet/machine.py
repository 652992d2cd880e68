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
"""How a machine fails when it boots, as `BreakMachine` names the fault; empty for no fault."""
SCATTER = 0x9E3779B1
"""An odd factor, so that the products of the first 2**24 numbers give 2**24 different names."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine: how it boots, its stay in a NodePool, and the Pods on it.

    boot_s: how long a boot takes, in seconds.
    fault: how it fails at its next boots, `fault_times` times.
    fault_times: how many of its next boots fail.
    fault_cause: the cause that it reports when such a boot fails.
    gpus: how many GPUs it has, under each of the two names of GPUs.
    assignment: the number of its current or last stay; 0 before the first.
    pool: its NodePool; None between two stays.
    has_agent: whether an agent connects its cluster to Kubernetes, which runs and reports the Pods.
    taints: the taints of its Node that keep Pods away.
    failing: how it fails in this stay.
    boots_at: when its boot is over; None if no boot is under way, or if the boot never ends.
    joined: whether it is a Node of a cluster.
    unschedulable: whether it is cordoned.
    cordon: the number of the last cordon of this stay that it has applied.
    lock: the number of the lock that it has applied; 0 without a lock.
    reported: `unschedulable` as last observed.
    reported_lock: `lock` as last observed.
    evicting: whether, since the last observation, a drain has begun or Pods end because of a taint.
    pods: the Pods on it, by name.
    kills: when terminating Pods are killed, by name.
    verify_s, failures_per_day, repair_s, seed: the values from the command that added it.
    boot: the number of its current or last reboot in this stay; 0 before the first.
    restarting: whether it is rebooted as a Node.
    verifying: whether it is verified as a Node.
    verified_at: when its verification is over; None if none is under way, or if it never ends.
    conditions: the types of the conditions that report a problem of its Node.
    mute: whether its kubelet sends no heartbeat.
    unknown_at: when its Node gets Ready=Unknown because no heartbeat comes; None for never.
    asked: the number of the `NodeReportRequested` that it has not answered; 0 for none.
    fails_at: when it fails by itself; None for never.
    state: its place in the data centre.
    visits: how often it came to triage since it was new.
    moves_at: when its next step in triage is due; None for never.
    wipe_s: how long it is wiped after a stay, in seconds; 0 for no wipe.
    unwiped: whether a stay has begun since it was wiped.
    wiped_at: when its wipe is over; None if none is under way.
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
    wipe_s: float = 0
    unwiped: bool = False
    wiped_at: datetime | None = None

    @property
    def answers(self) -> bool:
        """Return whether it reports what changes on its Node."""
        return not (self.joined and (self.is_silent or self.restarting))

    @property
    def is_silent(self) -> bool:
        """Return whether it sends no heartbeat."""
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
        if self.wiped_at is not None:
            moments.append(self.wiped_at)
        return min(moments, default=None)


def name_of(number: int) -> str:
    """Return the name of the machine with this number, counted from 1."""
    return f"g{number * SCATTER & 0xFFFFFF:06x}"
