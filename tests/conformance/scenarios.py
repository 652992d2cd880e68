"""The stories that every provider of machines has to pass; each leaves nothing owed.

A story says what services say, breaks and mends machines, and names the events that it expects. The
monitor of the trial reads along and names each rule that the provider breaks.
"""

from collections.abc import Callable

from conformance.requests import (
    asked,
    connected,
    deleted,
    drained,
    not_registered,
    registered,
    updated,
)
from conformance.trial import Trial
from nodepool.contract.catalog import ZONES
from nodepool.contract.events import (
    CWNodeAssigned,
    MachineAdded,
    MachineBooted,
    MachineFailed,
    MachineRepaired,
    MachineStateChanged,
    MachineWiped,
    NodeConditionChanged,
    NodeObserved,
    NodeVerified,
)
from nodepool.contract.model import NodePhase
from nodepool.contract.node_states import MachineState

Story = Callable[[Trial], None]
PHASE = NodePhase
READY = "Ready"


def a_node(trial: Trial, cluster: str = "prod") -> CWNodeAssigned:
    """A machine that has booted and is a Node in production."""
    stay = trial.assign(trial.add_machine(), cluster)
    trial.expect(MachineBooted, stay.node, assignment=stay.assignment, boot=0)
    trial.tell(registered(stay))
    return stay


# A machine boots for a NodePool.


def a_machine_is_added_with_its_type_and_its_zone(trial: Trial) -> None:
    machines = trial.machines
    machines.add(trial)

    machine = trial.expect(MachineAdded)

    assert (machine.zone, machine.instance_type) == (machines.zone, machines.instance_type)
    trial.settle()
    assert trial.said_of(machine.machine) == ["MachineAdded"]


def a_machine_boots_for_its_assignment(trial: Trial) -> None:
    stay = trial.assign(trial.add_machine())

    booted = trial.expect(MachineBooted, stay.node)

    assert (booted.assignment, booted.boot) == (stay.assignment, 0)


def a_machine_that_does_not_boot_names_the_cause_and_boots_after_its_repair(trial: Trial) -> None:
    machine = trial.add_machine()
    trial.machines.break_machine(trial, machine, "boot")
    first = trial.assign(machine)

    assert trial.expect(MachineFailed, machine, assignment=first.assignment, boot=0).cause

    trial.tell(not_registered(first))
    trial.machines.repair(trial, machine)
    trial.expect(MachineRepaired, machine)
    second = trial.assign(machine)
    trial.expect(MachineBooted, machine, assignment=second.assignment)


def a_machine_that_cannot_join_its_cluster_names_the_cause(trial: Trial) -> None:
    machine = trial.add_machine()
    trial.machines.break_machine(trial, machine, "registration")
    stay = trial.assign(machine)

    assert trial.expect(MachineFailed, machine, boot=0).cause

    trial.tell(not_registered(stay))


def a_machine_that_is_given_up_says_nothing_of_its_boot(trial: Trial) -> None:
    machine = trial.add_machine()
    trial.machines.break_machine(trial, machine, "silence")
    stay = trial.assign(machine)
    trial.settle()

    trial.tell(not_registered(stay))

    trial.settle()
    assert trial.said_of(machine) == ["MachineAdded"]


def a_boot_that_a_deletion_ends_is_not_reported(trial: Trial) -> None:
    stay = trial.assign(trial.add_machine())

    trial.tell(deleted(stay))

    trial.settle()
    reports = [each for each in trial.said_of(stay.node) if each != "MachineAdded"]
    # It may have booted before it heard of the deletion; the monitor knows what it had heard.
    assert reports in ([], ["MachineBooted"])


# A Node is verified.


def a_node_is_verified_after_its_boot(trial: Trial) -> None:
    stay = trial.assign(trial.add_machine())
    booted = trial.expect(MachineBooted, stay.node)
    assert booted.verifying

    trial.tell(registered(stay, PHASE.VERIFYING))

    assert trial.expect(NodeVerified, stay.node, assignment=stay.assignment, boot=0).passed
    trial.tell(updated(stay, PHASE.PRODUCTION))


def a_verification_that_fails_names_the_cause(trial: Trial) -> None:
    machine = trial.add_machine()
    trial.machines.break_machine(trial, machine, "verification")
    stay = trial.assign(machine)
    trial.expect(MachineBooted, machine)

    trial.tell(registered(stay, PHASE.VERIFYING))

    verified = trial.expect(NodeVerified, machine)
    assert not verified.passed
    assert verified.cause
    trial.tell(deleted(stay, triage=True))


def a_node_that_is_cordoned_while_it_is_verified_is_verified_again(trial: Trial) -> None:
    stay = trial.assign(trial.add_machine())
    trial.expect(MachineBooted, stay.node)
    trial.tell(registered(stay, PHASE.VERIFYING))
    trial.tell(updated(stay, PHASE.CORDONED, cordon=1))
    trial.expect(NodeObserved, stay.node, unschedulable=True)

    trial.tell(updated(stay, PHASE.VERIFYING, cordon=1))

    trial.settle()
    assert trial.said_of(stay.node)[-1] in ("NodeVerified", "NodeObserved")
    assert "NodeVerified" in trial.said_of(stay.node)


# A Node is rebooted.


def a_node_is_rebooted_as_often_as_it_is_asked(trial: Trial) -> None:
    stay = a_node(trial)

    for boot in (1, 2):
        trial.tell(updated(stay, PHASE.REBOOTING, boot=boot, forced=boot > 1))
        trial.expect(MachineBooted, stay.node, assignment=stay.assignment, boot=boot)
        trial.tell(updated(stay, PHASE.PRODUCTION, boot=boot))

    trial.settle()
    assert trial.said_of(stay.node).count("MachineBooted") == 3


def a_forced_reboot_begins_before_the_last_reboot_is_over(trial: Trial) -> None:
    stay = a_node(trial)

    trial.tell(updated(stay, PHASE.REBOOTING, boot=1))
    trial.tell(updated(stay, PHASE.REBOOTING, boot=2, forced=True))

    trial.expect(MachineBooted, stay.node, boot=2)
    trial.tell(updated(stay, PHASE.PRODUCTION, boot=2))


def a_reboot_that_fails_names_the_cause(trial: Trial) -> None:
    stay = a_node(trial)
    trial.machines.break_machine(trial, stay.node, "boot")

    trial.tell(updated(stay, PHASE.REBOOTING, boot=1))

    assert trial.expect(MachineFailed, stay.node, assignment=stay.assignment, boot=1).cause
    trial.tell(deleted(stay, triage=True))


# The conditions of a Node.


def a_problem_is_reported_when_it_begins_and_when_it_ends(trial: Trial) -> None:
    stay = a_node(trial)

    trial.machines.break_machine(trial, stay.node, "xid")
    problem = trial.expect(NodeConditionChanged, stay.node, assignment=stay.assignment)
    trial.machines.mend(trial, stay.node, "xid")

    end = trial.expect(NodeConditionChanged, stay.node, type=problem.type)
    assert (problem.type, problem.status, end.status) == ("XIDErrors", "True", "False")
    trial.settle()
    assert trial.said_of(stay.node).count("NodeConditionChanged") == 2


def a_reboot_ends_a_problem_that_it_cures(trial: Trial) -> None:
    stay = a_node(trial)
    trial.machines.break_machine(trial, stay.node, "xid")
    trial.expect(NodeConditionChanged, stay.node, type="XIDErrors", status="True")

    trial.tell(updated(stay, PHASE.REBOOTING, boot=1))

    trial.expect(MachineBooted, stay.node, boot=1)
    trial.expect(NodeConditionChanged, stay.node, type="XIDErrors", status="False")
    trial.tell(updated(stay, PHASE.PRODUCTION, boot=1))


def a_lost_machine_is_silent_until_it_answers_again(trial: Trial) -> None:
    stay = a_node(trial)

    trial.machines.break_machine(trial, stay.node, "hang")
    trial.expect(NodeConditionChanged, stay.node, type=READY, status="Unknown")
    trial.tell(updated(stay, PHASE.CORDONED, cordon=1))
    trial.settle()
    assert "NodeObserved" not in trial.said_of(stay.node)

    trial.machines.mend(trial, stay.node, "hang")
    trial.expect(NodeConditionChanged, stay.node, type=READY, status="True")
    trial.expect(NodeObserved, stay.node, unschedulable=True, cordon=1)


def a_lost_machine_goes_to_triage_and_comes_back(trial: Trial) -> None:
    stay = a_node(trial)
    trial.machines.break_machine(trial, stay.node, "hang")
    trial.expect(NodeConditionChanged, stay.node, type=READY, status="Unknown")

    trial.tell(deleted(stay, triage=True))

    trial.machines.repair(trial, stay.node)
    trial.expect(MachineRepaired, stay.node)
    again = trial.assign(stay.node)
    trial.expect(MachineBooted, stay.node, assignment=again.assignment)


def a_request_for_a_report_is_answered_with_its_number(trial: Trial) -> None:
    healthy, silent = a_node(trial), a_node(trial)
    trial.machines.break_machine(trial, silent.node, "hang")
    trial.expect(NodeConditionChanged, silent.node, type=READY, status="Unknown")

    trial.tell(asked(healthy, 7), asked(silent, 8))

    trial.expect(NodeConditionChanged, healthy.node, type=READY, status="True", request=7)
    trial.expect(NodeConditionChanged, silent.node, type=READY, status="Unknown", request=8)


# Marks and drains.


def cordons_and_drains_are_observed(trial: Trial) -> None:
    stay = a_node(trial)

    trial.tell(updated(stay, PHASE.CORDONED, cordon=1))
    trial.expect(NodeObserved, stay.node, unschedulable=True, cordon=1)
    trial.tell(updated(stay, PHASE.DRAINING, cordon=1), drained(stay))
    trial.expect(NodeObserved, stay.node, unschedulable=True, cordon=1, pods=())
    trial.tell(updated(stay, PHASE.PRODUCTION, cordon=1))
    trial.expect(NodeObserved, stay.node, unschedulable=False)
    trial.tell(updated(stay, PHASE.CORDONED, cordon=2))
    trial.expect(NodeObserved, stay.node, unschedulable=True, cordon=2)


def a_lock_is_observed(trial: Trial) -> None:
    stay = a_node(trial)

    trial.tell(updated(stay, PHASE.PRODUCTION, lock=5))

    trial.expect(NodeObserved, stay.node, lock=5)
    trial.tell(updated(stay, PHASE.PRODUCTION))
    trial.expect(NodeObserved, stay.node, lock=0)


def a_drained_machine_returns_and_boots_for_the_next_nodepool(trial: Trial) -> None:
    first = a_node(trial)
    trial.tell(updated(first, PHASE.CORDONED, cordon=1), drained(first))
    trial.expect(NodeObserved, first.node, unschedulable=True)

    trial.tell(deleted(first))

    second = trial.assign(first.node)
    trial.expect(MachineBooted, first.node, assignment=second.assignment, boot=0)
    trial.tell(updated(first, PHASE.CORDONED, cordon=2), drained(first), registered(second))
    trial.settle()
    assert trial.said_of(first.node)[-1] == "MachineBooted"


def an_agent_reports_the_nodes_of_its_cluster(trial: Trial) -> None:
    trial.tell(connected("cloud", trial.machines.zone))
    stay = a_node(trial, "cloud")

    trial.tell(updated(stay, PHASE.CORDONED, cordon=1), asked(stay, 3))
    trial.tell(updated(stay, PHASE.REBOOTING, cordon=1, boot=1))

    trial.expect(MachineBooted, stay.node, boot=1)
    trial.tell(updated(stay, PHASE.PRODUCTION, cordon=1, boot=1))
    trial.settle()
    assert set(trial.said_of(stay.node)) == {"MachineAdded", "MachineBooted"}


# A machine is wiped between its stays.


def a_machine_is_wiped_when_its_stay_is_over(trial: Trial) -> None:
    first = trial.assign(trial.add_machine(wipes=True))
    trial.expect(MachineBooted, first.node)
    trial.settle()
    assert trial.wiped_after(first.node) == []

    trial.tell(deleted(first))

    trial.expect(MachineWiped, first.node, assignment=first.assignment)
    second = trial.assign(first.node)
    trial.expect(MachineBooted, first.node, assignment=second.assignment)
    trial.tell(deleted(second), deleted(second))
    trial.expect(MachineWiped, first.node, assignment=second.assignment)
    trial.settle()
    assert trial.wiped_after(first.node) == [first.assignment, second.assignment]


def a_machine_is_wiped_whose_boot_was_not_over(trial: Trial) -> None:
    stay = trial.assign(trial.add_machine(wipes=True))

    trial.tell(deleted(stay))

    trial.expect(MachineWiped, stay.node, assignment=stay.assignment)


def a_repaired_machine_is_wiped(trial: Trial) -> None:
    stay = trial.assign(trial.add_machine(wipes=True))
    trial.expect(MachineBooted, stay.node)
    trial.tell(deleted(stay, triage=True))

    trial.machines.repair(trial, stay.node)

    trial.expect(MachineRepaired, stay.node)
    trial.expect(MachineWiped, stay.node, assignment=stay.assignment)


def a_wipe_that_fails_names_the_cause_and_is_done_after_the_repair(trial: Trial) -> None:
    stay = trial.assign(trial.add_machine(wipes=True))
    trial.expect(MachineBooted, stay.node)
    trial.machines.break_machine(trial, stay.node, "wipe")

    trial.tell(deleted(stay))

    failed = trial.expect(MachineStateChanged, stay.node, state=MachineState.ZAP_FAIL)
    assert failed.cause
    trial.machines.repair(trial, stay.node)
    trial.expect(MachineRepaired, stay.node)
    trial.expect(MachineWiped, stay.node, assignment=stay.assignment)


def a_wipe_goes_on_after_a_restart_of_the_provider(trial: Trial) -> None:
    stay = trial.assign(trial.add_machine(wipes=True))
    trial.expect(MachineBooted, stay.node)

    trial.tell(deleted(stay))
    trial.restart()

    trial.expect(MachineWiped, stay.node, assignment=stay.assignment)
    trial.settle()
    assert trial.wiped_after(stay.node) == [stay.assignment]


def a_first_wipe_goes_on_after_a_restart_of_the_provider(trial: Trial) -> None:
    trial.machines.add(trial, wipes=True)
    added = trial.expect(MachineAdded)

    trial.restart()

    if added.unwiped:
        trial.expect(MachineWiped, added.machine, assignment=0)
    stay = trial.assign(added.machine)
    trial.expect(MachineBooted, stay.node, assignment=stay.assignment)
    assert trial.said_of(stay.node).count("MachineWiped") == added.unwiped


# The provider is restarted, and hears what it must not follow.


def a_boot_goes_on_after_a_restart_of_the_provider(trial: Trial) -> None:
    stay = trial.assign(trial.add_machine())

    trial.restart()

    trial.expect(MachineBooted, stay.node, assignment=stay.assignment, boot=0)
    trial.settle()
    assert trial.said_of(stay.node) == ["MachineAdded", "MachineBooted"]


def reboot_and_verification_go_on_after_a_restart_of_the_provider(trial: Trial) -> None:
    stay = a_node(trial)

    trial.tell(updated(stay, PHASE.REBOOTING, boot=1))
    trial.restart()
    trial.expect(MachineBooted, stay.node, boot=1)
    trial.tell(updated(stay, PHASE.VERIFYING, boot=1))
    trial.restart()

    trial.expect(NodeVerified, stay.node, boot=1)
    trial.settle()
    assert trial.said_of(stay.node).count("MachineBooted") == 2
    assert trial.said_of(stay.node).count("NodeVerified") == 1


def a_request_that_comes_twice_is_followed_once(trial: Trial) -> None:
    # given a Node of which each message comes twice
    stay = trial.assign(trial.add_machine())
    trial.tell(stay)
    trial.expect(MachineBooted, stay.node)
    trial.tell(*[registered(stay, PHASE.VERIFYING)] * 2)
    trial.expect(NodeVerified, stay.node)
    trial.tell(*[updated(stay, PHASE.REBOOTING, boot=1)] * 2)
    trial.expect(MachineBooted, stay.node, boot=1)
    trial.tell(*[updated(stay, PHASE.CORDONED, boot=1, cordon=1)] * 2, *[drained(stay)] * 2)
    trial.expect(NodeObserved, stay.node, cordon=1)

    # when its assignment comes once more
    trial.tell(stay)

    # then everything was done once
    trial.settle()
    reports = [each for each in trial.said_of(stay.node) if each != "NodeObserved"]
    assert reports == ["MachineAdded", "MachineBooted", "NodeVerified", "MachineBooted"]


def a_machine_that_is_deleted_twice_is_repaired_once(trial: Trial) -> None:
    stay = a_node(trial)
    trial.tell(deleted(stay, triage=True), deleted(stay, triage=True))
    trial.machines.repair(trial, stay.node)
    trial.expect(MachineRepaired, stay.node)

    trial.tell(deleted(stay, triage=True), not_registered(stay), stay)

    trial.settle()
    assert trial.said_of(stay.node)[-1] == "MachineRepaired"
    again = trial.assign(stay.node)
    trial.expect(MachineBooted, stay.node, assignment=again.assignment)


def an_unknown_machine_is_ignored(trial: Trial) -> None:
    stay = trial.assign("gffffff")

    trial.tell(
        registered(stay, PHASE.VERIFYING),
        updated(stay, PHASE.REBOOTING, cordon=1, boot=1),
        drained(stay),
        asked(stay, 9),
        deleted(stay, triage=True),
    )

    trial.settle()
    assert trial.said_of("gffffff") == []


def a_machine_of_the_same_name_in_another_zone_is_ignored(trial: Trial) -> None:
    machine = trial.add_machine()
    zone = next(name for name in ZONES if name != trial.machines.zone)
    other = trial.assignment_of(machine, "prod", zone)

    trial.tell(other, registered(other), updated(other, PHASE.REBOOTING, boot=1))

    trial.settle()
    assert trial.said_of(machine) == ["MachineAdded"]


STORIES: tuple[Story, ...] = (
    a_machine_is_added_with_its_type_and_its_zone,
    a_machine_boots_for_its_assignment,
    a_machine_that_does_not_boot_names_the_cause_and_boots_after_its_repair,
    a_machine_that_cannot_join_its_cluster_names_the_cause,
    a_machine_that_is_given_up_says_nothing_of_its_boot,
    a_boot_that_a_deletion_ends_is_not_reported,
    a_node_is_verified_after_its_boot,
    a_verification_that_fails_names_the_cause,
    a_node_that_is_cordoned_while_it_is_verified_is_verified_again,
    a_node_is_rebooted_as_often_as_it_is_asked,
    a_forced_reboot_begins_before_the_last_reboot_is_over,
    a_reboot_that_fails_names_the_cause,
    a_problem_is_reported_when_it_begins_and_when_it_ends,
    a_reboot_ends_a_problem_that_it_cures,
    a_lost_machine_is_silent_until_it_answers_again,
    a_lost_machine_goes_to_triage_and_comes_back,
    a_request_for_a_report_is_answered_with_its_number,
    cordons_and_drains_are_observed,
    a_lock_is_observed,
    a_drained_machine_returns_and_boots_for_the_next_nodepool,
    an_agent_reports_the_nodes_of_its_cluster,
    a_machine_is_wiped_when_its_stay_is_over,
    a_machine_is_wiped_whose_boot_was_not_over,
    a_repaired_machine_is_wiped,
    a_wipe_that_fails_names_the_cause_and_is_done_after_the_repair,
    a_wipe_goes_on_after_a_restart_of_the_provider,
    a_first_wipe_goes_on_after_a_restart_of_the_provider,
    a_boot_goes_on_after_a_restart_of_the_provider,
    reboot_and_verification_go_on_after_a_restart_of_the_provider,
    a_request_that_comes_twice_is_followed_once,
    a_machine_that_is_deleted_twice_is_repaired_once,
    an_unknown_machine_is_ignored,
    a_machine_of_the_same_name_in_another_zone_is_ignored,
)
