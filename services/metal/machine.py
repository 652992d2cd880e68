"""A real machine: what is declared, what was seen, and what is under way."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

from immutables import Map

from nodepool.contract.health import NodeFault
from nodepool.contract.keys import PoolKey
from nodepool.contract.model import NodePhase
from nodepool.contract.node_states import MachineState
from nodepool.contract.real_machines import MachineCondition, Power, PowerAction, Purpose

Run = tuple[int, int, int, int]
"""Why a machine is on: assignment and boot, or an operator's wish, or a wipe; the rest is 0."""
Wish = Literal["", "on", "off", "reset"]
"""The power state that an operator wants of a machine out of service; empty for none."""
IN_SERVICE: Final = frozenset({MachineState.PRODUCTION, MachineState.ZAP})
READY: Final = "Ready"
"""The condition that shows whether a Node is silent."""

EFFECT_S: Final = 180.0
"""How long the effect of a request may take, in seconds."""
SHUTDOWN_S: Final = 300.0
"""How long a system may take to shut down, in seconds, before its power is cut."""
CHECK_S: Final = 600.0
"""How long a complete reading may take, in seconds."""
WIPE_MINUTES: Final = 60
"""How long the wipe of a machine may take that the inventory does not have any more."""
BOOT_MAX: Final = timedelta(minutes=25)
"""How long a boot may take; after 30 minutes the services give it up."""
SILENT_AFTER: Final = timedelta(seconds=40)
"""How long no system runs on a Node until it gets Ready=Unknown, where there is no agent."""
TRIES_MAX: Final = 3
"""How often a machine is powered on, and off, for the same end within `FORGET_AFTER`."""
FORGET_AFTER: Final = timedelta(hours=1)
"""When a machine that did not follow its requests is tried again."""
PAUSES: Final = (timedelta(seconds=30), timedelta(minutes=2))
"""How long to wait after the first request that had no effect, and after each later one."""


@dataclass(frozen=True, slots=True)
class Declared:
    """A machine as the inventory has it; `MachineDeclared` says what the fields are."""

    instance_type: str
    labels: Mapping[str, str]
    wipes: bool
    wipe_minutes: int
    digest: str
    serial: str = ""


@dataclass(frozen=True, slots=True)
class Seen:
    """The last reading of a machine; `ControllerReported` says what the fields are."""

    settled: int
    check: int
    power: Power
    runs: bool
    stranger: str
    unfit: tuple[str, ...]
    faults: Map[NodeFault, str]


@dataclass(frozen=True, slots=True)
class Request:
    """A power request that neither had its effect nor ended otherwise.

    due: when it is overdue.
    is_answered: whether it was sent, and its process has said what became of it.
    """

    number: int
    action: PowerAction
    due: datetime
    is_answered: bool = False


@dataclass(frozen=True, slots=True)
class Check:
    """A check without its reading. due: when nobody waits for it any more."""

    number: int
    purpose: Purpose
    due: datetime


@dataclass(frozen=True, slots=True)
class Marks:
    """The marks of a Node: its cordon and its lock."""

    unschedulable: bool = False
    cordon: int = 0
    lock: int = 0


@dataclass(frozen=True, slots=True)
class Stay:
    """One time of a machine in a NodePool.

    assignment, pool: its number and its NodePool.
    boot: the number of the last boot that was requested.
    forced: whether this boot takes the power away at once.
    boot_due: when this boot has failed.
    outcome: what was said of this boot.
    joined: whether the machine is a Node of its cluster.
    phase: the phase of the Node.
    is_unclean: whether the machine was not wiped since an earlier stay, so that it must not boot.
    verification: what became of the verification of the Node, if there is any.
    marks, observed: the marks as they should be, and as they were said to be.
    draining: whether a drain has begun since the Node was observed.
    asked: the number of the `NodeReportRequested` that is not answered; 0 for none.
    conditions: the types of the conditions that report a problem.
    unknown_at: when the Node gets Ready=Unknown because no system runs; None for never.
    """

    assignment: int
    pool: PoolKey
    boot_due: datetime
    boot: int = 0
    forced: bool = True
    outcome: Literal["", "booted", "failed"] = ""
    joined: bool = False
    is_unclean: bool = False
    phase: NodePhase = NodePhase.BOOTING
    verification: Literal["", "wanted", "checked"] = ""
    marks: Marks = Marks()
    observed: Marks = Marks()
    draining: bool = False
    asked: int = 0
    conditions: Map[str, bool] = Map()
    unknown_at: datetime | None = None

    @property
    def run(self) -> Run:
        """Why the machine is on once its last boot is over."""
        return self.assignment, self.boot, 0, 0


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine that is or was declared, or was added.

    declared: how the inventory has it; None if it does not.
    added_type: the type with which it was added; empty if it was not.
    added_serial: the serial number with which it was added; empty if that is not known.
    declaration: the position of its first declaration in the log; 0 if that is not known.
    rival: why it must not serve, because it had another name; empty if it may.
    state: its place in the data centre.
    is_set_aside: whether it was taken out of service while it was free, or before its wipe began;
        a check ends that.
    wipes: whether it is wiped after each stay.
    is_unwiped: whether it was new, or a stay has begun, since it was wiped. Before it is added:
        whether it was not wiped under another name.
    wipe: the number of its last wipe that has begun.
    wipe_minutes: how long this wipe may take.
    wipe_due: when this wipe has failed; None if no wipe is under way.
    wait_due: when its next wipe has failed, because it could not begin; None if the machine
        awaits no wipe, or waits only for its turn.
    wipe_end: what was said of the end of this wipe: empty for success, a cause, None for nothing.
    assignment: the number of its current or last stay; 0 before the first.
    stay: its current stay.
    seen: its last reading; None if there is none since it was declared as it is.
    silence: why its controller does not answer; empty if it answers.
    number: the number of the last power request.
    request: this request, until its effect is observed.
    runs_for: why it was last powered on; None if it was powered off since, or was refused it.
    ons, offs: how often it was powered on and off for its current end, until `FORGET_AFTER`.
    tried_at: when the last request was made.
    retry_at: when the next request may be made; None for at once.
    fault: why the last request had no effect.
    checks: the number of the last check.
    check: this check, until its reading comes.
    is_maintained: whether people work on it.
    reason: why they do.
    wish: the power state that an operator wants while it is out of service; empty for none.
    wishes: the number of this wish.
    conditions: what the conditions of the machine say, by type.
    """

    declared: Declared | None = None
    added_type: str = ""
    added_serial: str = ""
    declaration: int = 0
    rival: str = ""
    state: MachineState = MachineState.PRODUCTION
    is_set_aside: bool = False
    wipes: bool = False
    is_unwiped: bool = False
    wipe: int = 0
    wipe_minutes: int = WIPE_MINUTES
    wipe_due: datetime | None = None
    wait_due: datetime | None = None
    wipe_end: str | None = None
    assignment: int = 0
    stay: Stay | None = None
    seen: Seen | None = None
    silence: str = ""
    number: int = 0
    request: Request | None = None
    runs_for: Run | None = None
    ons: int = 0
    offs: int = 0
    tried_at: datetime | None = None
    retry_at: datetime | None = None
    fault: str = ""
    checks: int = 0
    check: Check | None = None
    is_maintained: bool = False
    reason: str = ""
    wish: Wish = ""
    wishes: int = 0
    conditions: Map[MachineCondition, str] = Map()

    @property
    def is_in_service(self) -> bool:
        """Whether it is free, in a NodePool, or wiped in between, and nobody works on it."""
        is_in_place = bool(self.added_type) and self.state in IN_SERVICE
        return is_in_place and not self.is_maintained

    @property
    def is_free(self) -> bool:
        """Whether services may give it to a NodePool."""
        is_in_place = bool(self.added_type) and self.state is MachineState.PRODUCTION
        return is_in_place and self.stay is None

    @property
    def awaits_wipe(self) -> bool:
        """Return whether the machine is to be wiped, and this wipe has not begun."""
        return self.state is MachineState.ZAP and self.wipe_due is None

    @property
    def can_be_wiped(self) -> bool:
        """Return whether a wipe may change its power now: nobody works on it, and it answers."""
        return self.is_known and not self.is_maintained

    @property
    def is_known(self) -> bool:
        """Whether its last reading counts: it is declared, its controller answers, it is itself."""
        is_read = self.declared is not None and self.seen is not None
        return is_read and not self.silence and not self.is_other

    @property
    def is_other(self) -> bool:
        """Whether another machine than the one that was added is declared, or was last seen."""
        is_declared_so = bool(self.change or self.rival)
        return is_declared_so or (self.seen is not None and bool(self.seen.stranger))

    @property
    def is_swapped(self) -> bool:
        """Return whether it was added with another serial number than is declared now."""
        declared, before = self.declared, self.added_serial.casefold()
        return declared is not None and before not in ("", declared.serial.casefold())

    @property
    def change(self) -> str:
        """Why another machine is declared than the one that was added; empty if none is.

        Whatever happens under such a declaration, such as a wipe, happens to the other machine.
        """
        declared = self.declared
        if declared is None or not self.added_type:
            return ""
        after, type_ = declared.serial, declared.instance_type
        if self.is_swapped:
            before = self.added_serial
            change = f"with the serial number {after}, and it was added with {before}: give it"
        elif type_ != self.added_type:
            change = f"as {type_}, and it was added as {self.added_type}: drain it, then give it"
        else:
            return ""
        return f"the inventory declares it {change} another name"

    @property
    def settled(self) -> int:
        """The number of the last request that is answered or overdue; so are all earlier ones."""
        is_open = self.request is not None and not self.request.is_answered
        return self.number - is_open

    @property
    def is_current(self) -> bool:
        """Whether its last reading began after the end of each request to it."""
        return self.seen is not None and self.seen.settled >= self.number

    @property
    def is_running(self) -> bool:
        """Return whether its system was last seen to run; another machine does not count."""
        seen = self.seen
        is_up = seen is not None and seen.power is Power.ON and seen.runs
        return is_up and not self.is_swapped

    @property
    def is_checked(self) -> bool:
        """Whether the reading that the last check asks for has come."""
        check, seen = self.check, self.seen
        return check is not None and seen is not None and seen.check >= check.number
