"""How a machine boots: when the boot is over, and what the machine reports then."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from immutables import Map

from fleet.conditions import (
    READY,
    as_node_fault,
    fails_at,
    gone_after_reboot,
    heartbeats_stopped,
    problem_begun,
    problems_ended,
)
from fleet.machine import Fault, Machine
from fleet.pods import observe_node
from fleet.silence import with_silence
from fleet.wipes import WIPE_FAULTS
from nodepool.contract import events as on
from nodepool.contract.health import CAUSES, NodeFault
from nodepool.contract.keys import MachineKey, machine_parts
from nodepool.contract.model import NodePhase
from nodepool.contract.node_failures import NodeFailure
from nodepool.state.values import replace

NodeReport = (
    on.MachineBooted
    | on.MachineFailed
    | on.NodeObserved
    | on.NodeConditionChanged
    | on.HeartbeatsStopped
)
"""What a machine reports after a reboot."""


def break_machine(machine: Machine, event: on.MachineBroken) -> Machine:
    """Return the machine after a fault began or ended; a Node hangs, or answers again, at once."""
    times, failing = event.times, machine.failing
    node_fault = as_node_fault(event.fault)
    if node_fault is not None:
        is_known = machine.mute and node_fault == "kubelet"
        is_new = CAUSES[node_fault].type not in machine.conditions and not is_known
        times -= bool(times and is_new and shows(machine, node_fault))
    elif machine.joined and event.fault == "hang" and times and failing != "hang":
        times, failing = times - 1, "hang"
    elif not times and failing == "hang":
        failing = ""
    after = replace(
        machine,
        fault=event.fault,
        fault_times=times,
        fault_cause=event.cause,
        failing=failing,
    )
    if not is_node(machine):
        return after
    return with_silence(after, event.fault, is_broken=bool(event.times))


def is_node(machine: Machine) -> bool:
    """Return whether the machine is a Node that runs, so that faults of Nodes show at once."""
    return machine.joined and not machine.restarting


def shows(machine: Machine, fault: NodeFault) -> bool:
    """Return whether this fault shows at once; a machine that hangs shows it after its next boot.

    Of a machine that hangs, only the silence of its kubelet shows at once.
    """
    return is_node(machine) and (machine.failing != "hang" or fault == "kubelet")


def powered_on(machine: Machine, assignment: int, now: datetime) -> Machine:
    """Return the machine at the start of a stay; the boot of a silent machine never ends."""
    failing = _fault_of_boot(machine)
    done = None if failing == "silence" else now + timedelta(seconds=machine.boot_s)
    return replace(
        powered_off(machine),
        assignment=assignment,
        cordon=0,
        boot=0,
        failing=failing,
        fault_times=machine.fault_times - bool(failing),
        boots_at=done,
        unwiped=machine.wipe_s > 0,
        wiped_at=None,
    )


def _fault_of_boot(machine: Machine) -> Fault:
    """Return how the next boot of a machine fails; a fault of a wipe waits for the next wipe."""
    is_of_boot = machine.fault_times > 0 and machine.fault not in WIPE_FAULTS
    return machine.fault if is_of_boot else ""


def powered_off(machine: Machine) -> Machine:
    """Return the machine after a stay, with no boot under way, no cluster and no Pods."""
    return replace(
        machine,
        boots_at=None,
        joined=False,
        pool=None,
        has_agent=False,
        taints=(),
        unschedulable=False,
        lock=0,
        reported=False,
        reported_lock=0,
        evicting=False,
        pods=Map(),
        kills=Map(),
        restarting=False,
        verifying=False,
        verified_at=None,
        conditions=Map(),
        mute=False,
        unknown_at=None,
        asked=0,
        fails_at=None,
    )


def begin_reboot(machine: Machine, boot: int, now: datetime) -> Machine:
    """Return the machine at the start of a reboot in its stay; only DaemonSet Pods come back."""
    failing = _fault_of_boot(machine)
    done = None if failing == "silence" else now + timedelta(seconds=machine.boot_s)
    daemons = {name: pod for name, pod in machine.pods.items() if pod.daemon_set}
    return replace(
        machine,
        boot=boot,
        failing=failing,
        fault_times=machine.fault_times - bool(failing),
        boots_at=done,
        restarting=True,
        verifying=False,
        verified_at=None,
        fails_at=None,
        mute=False,
        unknown_at=None,
        pods=Map(daemons),
        kills=Map({name: due for name, due in machine.kills.items() if name in daemons}),
    )


def report_reboot(key: MachineKey, machine: Machine) -> Iterator[NodeReport]:
    """Yield what a machine reports when a reboot of its Node is over; only that, if it failed.

    The Node is Ready before its boot counts as over, because its kubelet reports the boot. Other
    problems that a reboot cures end after the boot, as a node problem detector reports them.
    """
    outcome = report(key, machine)
    if isinstance(outcome, on.MachineFailed):
        yield outcome
        return
    if machine.failing == "hang":
        yield outcome
        yield from heartbeats_stopped(key, machine)
    else:
        if not machine.has_agent:
            yield observe_node(key, machine, machine.pods)
        cured = gone_after_reboot(machine)
        yield from problems_ended(key, machine, *(type_ for type_ in cured if type_ == READY))
        yield outcome
        yield from problems_ended(key, machine, *(type_ for type_ in cured if type_ != READY))
    node_fault = as_node_fault(machine.failing)
    if node_fault is not None:
        rest = machine.conditions.mutate()
        for type_ in gone_after_reboot(machine):
            del rest[type_]
        yield from problem_begun(key, replace(machine, conditions=rest.finish()), node_fault)


def end_boot(key: MachineKey, machine: Machine, now: datetime) -> Machine:
    """Return the machine after its boot; from now on a Node without problems may fail by itself."""
    machine = replace(machine, boots_at=None, restarting=False)
    if not machine.joined or machine.conditions:
        return machine
    return replace(machine, fails_at=fails_at(key, machine, now))


def in_phase(machine: Machine, phase: NodePhase, now: datetime) -> Machine:
    """Return the machine with its Node in this phase, which may begin or end a verification."""
    is_verifying = phase is NodePhase.VERIFYING
    if is_verifying is machine.verifying:
        return machine
    done = now + timedelta(seconds=machine.verify_s) if is_verifying else None
    return replace(machine, verifying=is_verifying, verified_at=done)


def verification(key: MachineKey, machine: Machine) -> on.NodeVerified:
    """Return the result of a verification, which fails for a problem or a `verification` fault."""
    zone, name = machine_parts(key)
    problems = ", ".join(sorted(machine.conditions))
    fault = machine.fault_cause or "it failed" if machine.failing == "verification" else ""
    return on.NodeVerified(
        zone=zone,
        machine=name,
        assignment=machine.assignment,
        boot=machine.boot,
        passed=not (problems or fault),
        cause=problems or fault,
    )


def report(key: MachineKey, machine: Machine) -> on.MachineBooted | on.MachineFailed:
    """Return the report of a machine at the end of its boot: that it booted, or why it failed."""
    zone, name = machine_parts(key)
    if machine.failing not in ("boot", "registration"):
        return on.MachineBooted(
            zone=zone,
            machine=name,
            assignment=machine.assignment,
            boot=machine.boot,
            verifying=machine.verify_s > 0,
        )
    is_boot = machine.failing == "boot"
    failed = NodeFailure.BOOT_FAILED if is_boot else NodeFailure.REGISTRATION_FAILED
    cause = f": {machine.fault_cause}" if machine.fault_cause else ""
    return on.MachineFailed(
        zone=zone,
        machine=name,
        assignment=machine.assignment,
        cause=f"{failed.phrase}{cause}",
        boot=machine.boot,
    )
