from datetime import datetime, timedelta

import pytest

from fleet import Hears, Says
from fleet.decide import SERVICE
from fleet.machine import Machine, name_of
from fleet.state import State
from nodepool.contract.commands import AddMachines, BreakMachine, RepairMachine, RunPod, StopPod
from nodepool.contract.events import (
    CommandAccepted,
    CWDrainNode,
    CWNodeAssigned,
    CWNodeDeleted,
    CWNodeRegistered,
    CWNodeRegistrationFailed,
    HeartbeatsStopped,
    MachineAdded,
    MachineBooted,
    MachineBroken,
    MachineFailed,
    MachineRepaired,
    NodeConditionChanged,
    NodeObserved,
    NodeUpdated,
)
from nodepool.contract.keys import PoolKey, machine_key
from nodepool.contract.messages import pool_fields
from nodepool.contract.model import NodePhase, RemovalReason
from nodepool.contract.node_states import MachineState
from nodepool.contract.outcomes import CommandOutcome
from nodepool.contract.pods import PODS_MAX, Pod, PodClass
from nodepool.engine.snapshot import dump, load
from support.single import NOON, SingleService
from support.texts import refusal

ZONE, H100 = "US-EAST-04A", "gd-8xh100ib-i128"
TRAIN = PoolKey("acme/prod/train")
FIRST, SECOND = name_of(1), name_of(2)
LEAFGROUP = "ib.coreweave.cloud/leafgroup"


class Story(SingleService[State, Hears, Says]):
    """The fleet service from noon on; time passes only when a story says so."""

    def __init__(self) -> None:
        super().__init__(SERVICE, tick=timedelta())

    def wakes(self, seconds: float) -> list[Says | CommandOutcome]:
        """The outputs for one wake, so many seconds after noon."""
        self.now = after(seconds)
        return self.wake()

    def machine(self, name: str = FIRST) -> Machine:
        """A machine as it is now."""
        return self.state.machines[machine_key(ZONE, name)]


def after(seconds: float) -> datetime:
    """A moment so many seconds after noon."""
    return NOON + timedelta(seconds=seconds)


def machines(count: int = 1, boot_s: float = 0) -> Story:
    """A story that begins with free machines."""
    story = Story()
    story.process(
        AddMachines(zone=ZONE, instance_type=H100, count=count, labels={}, boot_seconds=boot_s)
    )
    return story


def a_node(*pods: Pod) -> Story:
    """A story that begins with one machine that is a Node and runs these Pods."""
    story = machines()
    story.process(assigned())
    story.process(registered())
    for pod in pods:
        story.process(run(pod))
    return story


def assigned(name: str = FIRST, assignment: int = 1) -> CWNodeAssigned:
    """A machine is assigned to a NodePool."""
    return CWNodeAssigned(
        **pool_fields(TRAIN),
        node=name,
        zone=ZONE,
        assignment=assignment,
        uid="u",
        instance_type=H100,
        message="",
    )


def registered(name: str = FIRST, assignment: int = 1) -> CWNodeRegistered:
    """A machine joins its cluster."""
    return CWNodeRegistered(
        **pool_fields(TRAIN),
        node=name,
        zone=ZONE,
        assignment=assignment,
        labels={},
        annotations={},
        taints=(),
        message="",
    )


def deleted(assignment: int = 1) -> CWNodeDeleted:
    """The first machine leaves its NodePool."""
    return CWNodeDeleted(
        **pool_fields(TRAIN),
        node=FIRST,
        zone=ZONE,
        assignment=assignment,
        registered=True,
        uid="u",
        removal=RemovalReason.SCALE_DOWN,
        message="",
    )


def registration_failed(assignment: int = 1) -> CWNodeRegistrationFailed:
    """The first machine is given up."""
    return CWNodeRegistrationFailed(
        **pool_fields(TRAIN), node=FIRST, zone=ZONE, assignment=assignment, uid="u", message=""
    )


def updated(*, unschedulable: bool, cordon: int = 1, assignment: int = 1) -> NodeUpdated:
    """The first machine is to be cordoned, or not."""
    return NodeUpdated(
        **pool_fields(TRAIN),
        node=FIRST,
        zone=ZONE,
        assignment=assignment,
        phase=NodePhase.PRODUCTION,
        unschedulable=unschedulable,
        cordon=cordon,
        labels={},
        annotations={},
        taints=(),
    )


def drain(*, force: bool = False, assignment: int = 1) -> CWDrainNode:
    """The first machine is to be drained."""
    return CWDrainNode(
        **pool_fields(TRAIN),
        node=FIRST,
        zone=ZONE,
        assignment=assignment,
        force=force,
        message="",
    )


def deleted_for_triage() -> CWNodeDeleted:
    """The first machine leaves its NodePool for triage."""
    return deleted().model_copy(update={"triage": True})


def broken(fault: str, times: int = 1, cause: str = "") -> BreakMachine:
    """The first machine fails the next times that it boots."""
    return BreakMachine.model_validate(
        {"zone": ZONE, "machine": FIRST, "fault": fault, "times": times, "cause": cause}
    )


def hung(times: int) -> MachineBroken:
    """The first machine hangs so many times, or answers again."""
    return MachineBroken(zone=ZONE, machine=FIRST, fault="hang", times=times)


def silent() -> HeartbeatsStopped:
    """The first machine sends no heartbeat any more."""
    return HeartbeatsStopped(zone=ZONE, machine=FIRST, assignment=1, seconds=40)


def run(pod: Pod, name: str = FIRST) -> RunPod:
    """A Pod is started on a machine."""
    return RunPod(zone=ZONE, machine=name, pod=pod)


def stop(pod: str, name: str = FIRST) -> StopPod:
    """A Pod on a machine is stopped."""
    return StopPod(zone=ZONE, machine=name, name=pod)


def graceful(name: str, grace_s: int) -> Pod:
    """A Pod that a drain ends after its grace period."""
    return Pod(name=name, interruption=PodClass.GRACEFUL, grace_s=grace_s)


def booted(name: str = FIRST, assignment: int = 1) -> MachineBooted:
    """A machine reports that it booted."""
    return MachineBooted(zone=ZONE, machine=name, assignment=assignment)


def failed(cause: str, assignment: int = 1) -> MachineFailed:
    """The first machine reports that it failed."""
    return MachineFailed(zone=ZONE, machine=FIRST, assignment=assignment, cause=cause)


def observed(*pods: Pod, unschedulable: bool = False, cordon: int = 0) -> NodeObserved:
    """The first machine as its cluster sees it."""
    return NodeObserved(
        zone=ZONE,
        machine=FIRST,
        assignment=1,
        unschedulable=unschedulable,
        cordon=cordon,
        pods=pods,
    )


def terminating(pod: Pod) -> Pod:
    """The same Pod in its grace period."""
    return pod.model_copy(update={"terminating": True})


def accepted(command: Hears) -> CommandAccepted:
    """The command to the first machine was taken."""
    return CommandAccepted(
        org="fleet", cluster=ZONE, pool=FIRST, command=type(command).__name__, result="done"
    )


# Machines are added.


def test_machines_are_added_with_names_that_go_on_from_those_there_are() -> None:
    story = machines(2)

    outputs = story.process(
        AddMachines(
            zone=ZONE, instance_type=H100, count=1, labels={LEAFGROUP: "l-7"}, boot_seconds=9
        )
    )

    assert sorted(story.state.machines) == sorted(
        machine_key(ZONE, name_of(number)) for number in (1, 2, 3)
    )
    assert outputs == [
        CommandAccepted(org="fleet", cluster=ZONE, pool="_", command="AddMachines", result="done"),
        MachineAdded(
            zone=ZONE,
            machine=name_of(3),
            instance_type=H100,
            labels={LEAFGROUP: "l-7"},
            boot_seconds=9,
        ),
    ]


def test_names_are_distinct() -> None:
    assert len({name_of(number) for number in range(1, 100_001)}) == 100_000


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            {"instance_type": "none-such"},
            "Invalid instanceType: none-such is not a known instance type",
        ),
        (
            {"instance_type": "gd-8xh100"},
            f"Invalid instanceType: gd-8xh100 is not a known instance type; did you mean {H100}?",
        ),
        ({"zone": "MARS-01A"}, "Invalid zone: MARS-01A is not a known zone"),
        (
            {"zone": "US-EAST-4A"},
            "Invalid zone: US-EAST-4A is not a known zone; did you mean US-EAST-04A?",
        ),
        ({"zone": "EU-NORTH-01A"}, f"Invalid zone: {H100} is not offered in EU-NORTH-01A"),
        ({"labels": {"team": "ml"}}, "Invalid labels[team]: is not a topology label of machines"),
    ],
)
def test_machines_that_cannot_exist_are_refused(change: dict[str, object], expected: str) -> None:
    command = AddMachines(zone=ZONE, instance_type=H100, count=1)

    assert refusal(Story().process(command.model_copy(update=change))) == expected


def test_a_label_value_that_kubernetes_does_not_take_is_refused() -> None:
    command = AddMachines(zone=ZONE, instance_type=H100, count=1, labels={LEAFGROUP: "a b"})

    assert refusal(Story().process(command)).startswith(f"Invalid labels[{LEAFGROUP}]: value 'a b'")


@pytest.mark.parametrize(
    "command",
    [
        broken("boot"),
        RepairMachine(zone=ZONE, machine=FIRST),
        run(Pod(name="job")),
        stop("job"),
    ],
)
def test_a_command_to_an_unknown_machine_is_refused(command: Hears) -> None:
    story = Story()

    assert refusal(story.process(command)) == (
        f"Invalid machine: {ZONE}/{FIRST} is not a known machine"
    )
    assert story.state == SERVICE.initial


def test_a_repaired_machine_comes_back() -> None:
    command = RepairMachine(zone=ZONE, machine=FIRST)
    story = machines()
    story.hears(assigned(), registration_failed())

    assert story.process(command) == [
        accepted(command),
        MachineRepaired(zone=ZONE, machine=FIRST),
    ]


def test_an_assignment_that_comes_twice_boots_its_machine_once() -> None:
    story = machines(boot_s=30)
    story.process(assigned())
    assert story.wakes(30) == [booted()]
    story.process(registered())

    outputs = story.hears(assigned())

    assert (outputs, story.machine().joined, story.due) == ([], True, None)


def test_a_machine_that_has_left_is_in_triage_once_however_often_that_is_said() -> None:
    story = a_node()

    for event in (
        deleted_for_triage(),
        deleted_for_triage(),
        RepairMachine(zone=ZONE, machine=FIRST),
    ):
        story.process(event)
    story.process(deleted_for_triage())

    assert (story.machine().visits, story.machine().state) == (1, MachineState.PRODUCTION)


def test_a_machine_that_is_in_no_triage_is_not_repaired() -> None:
    command = RepairMachine(zone=ZONE, machine=FIRST)

    unchanged = accepted(command).model_copy(update={"result": "unchanged"})
    assert machines().process(command) == [unchanged]


# Machines boot.


def test_a_machine_without_boot_time_reports_at_once() -> None:
    story = machines()

    assert story.process(assigned()) == [booted()]
    assert story.due is None


def test_a_machine_reports_when_its_boot_is_over_and_once() -> None:
    story = machines(boot_s=60)

    outputs = [story.process(assigned()), story.wakes(59.9), story.wakes(60), story.wakes(61)]

    assert outputs == [[], [], [booted()], []]
    assert story.due is None


def test_an_assignment_of_an_unknown_machine_is_passed_over() -> None:
    assert machines().process(assigned(SECOND)) == []


@pytest.mark.parametrize("end", [deleted(), registration_failed()])
def test_a_stay_that_ends_during_the_boot_ends_the_boot(
    end: CWNodeDeleted | CWNodeRegistrationFailed,
) -> None:
    story = machines(boot_s=60)
    story.process(assigned())

    assert story.process(end) == []
    assert story.due is None
    assert story.wakes(60) == []


def test_a_new_stay_boots_anew() -> None:
    story = machines(boot_s=60)
    story.process(assigned())
    story.wakes(30)

    story.process(assigned(assignment=2))

    assert story.wakes(60) == []
    assert story.wakes(90) == [booted(assignment=2)]


@pytest.mark.parametrize(
    ("fault", "cause", "expected"),
    [
        ("boot", "", "the machine did not boot"),
        ("boot", "no disk", "the machine did not boot: no disk"),
        ("registration", "bad token", "the machine was turned away at registration: bad token"),
    ],
)
@pytest.mark.parametrize("boot_s", [0, 60])
def test_a_broken_machine_reports_its_failure_when_its_boot_is_over(
    boot_s: float, fault: str, cause: str, expected: str
) -> None:
    story = machines(boot_s=boot_s)
    story.process(broken(fault, cause=cause))

    outputs = story.process(assigned()) + story.wakes(boot_s)

    assert outputs == [failed(expected)]


@pytest.mark.parametrize("boot_s", [0, 60])
def test_a_silent_machine_never_reports(boot_s: float) -> None:
    story = machines(boot_s=boot_s)
    story.process(broken("silence"))

    assert story.process(assigned()) == []
    assert story.due is None


def test_a_machine_fails_as_often_as_it_was_broken_for() -> None:
    story = machines()
    story.process(broken("boot", times=2))

    outputs = [story.process(assigned(assignment=number)) for number in (1, 2, 3)]

    assert outputs == [
        [failed("the machine did not boot", 1)],
        [failed("the machine did not boot", 2)],
        [booted(assignment=3)],
    ]


def test_a_repeated_command_does_not_break_a_machine_again() -> None:
    story = machines()
    command = broken("boot")
    story.process(command, id="mine")
    story.process(assigned())

    again = story.process(command, id="mine")

    assert again == [accepted(command)]
    assert story.process(assigned(assignment=2)) == [booted(assignment=2)]


def test_a_machine_broken_for_no_times_is_whole_again() -> None:
    story = machines()
    story.process(broken("boot", times=5))
    story.process(broken("boot", times=0))

    assert story.process(assigned()) == [booted()]


# Pods run.


def test_a_pod_that_starts_and_stops_is_observed() -> None:
    story = a_node()
    job, other = Pod(name="job"), Pod(name="a")

    outputs = [story.process(run(job)), story.process(run(other)), story.process(stop("job"))]

    assert [messages[1:] for messages in outputs] == [
        [observed(job)],
        [observed(other, job)],
        [observed(other)],
    ]
    assert outputs[0][0] == accepted(run(job))


def test_a_pod_starts_its_grace_period_only_by_a_drain() -> None:
    outputs = a_node().process(run(terminating(Pod(name="job"))))

    assert outputs[1] == observed(Pod(name="job"))


def test_a_pod_runs_on_a_node_only() -> None:
    assert refusal(machines().process(run(Pod(name="job")))) == (
        "Invalid machine: is not a Node of any cluster"
    )


def test_a_cordoned_node_takes_pods_of_daemon_sets_only() -> None:
    story = a_node()
    story.process(updated(unschedulable=True))

    assert refusal(story.process(run(Pod(name="job")))) == "Invalid machine: is cordoned"
    assert len(story.process(run(Pod(name="agent", daemon_set=True)))) == 2


def test_pods_have_names_of_their_own() -> None:
    story = a_node(Pod(name="job"))

    again, other = (refusal(story.process(run(Pod(name=name)))) for name in ("job", "a b"))

    assert again == "Invalid pod.name: job runs there already"
    assert other.startswith("Invalid pod.name: name 'a b'")


def test_a_node_takes_a_bounded_number_of_pods() -> None:
    story = a_node(*(Pod(name=f"job-{number}") for number in range(PODS_MAX)))

    assert refusal(story.process(run(Pod(name="more")))) == "Invalid machine: runs 110 Pods already"


def test_a_pod_that_does_not_run_cannot_be_stopped() -> None:
    assert refusal(a_node().process(stop("job"))) == f"Invalid name: no Pod job runs on {FIRST}"


# Cordons.


def test_a_cordon_is_observed_when_it_changes() -> None:
    story = a_node()

    outputs = [
        story.process(updated(unschedulable=True, cordon=1)),
        story.process(updated(unschedulable=True, cordon=2)),
        story.process(updated(unschedulable=False, cordon=2)),
    ]

    assert outputs == [
        [observed(unschedulable=True, cordon=1)],
        [],
        [observed(unschedulable=False, cordon=2)],
    ]


def test_a_machine_that_has_not_joined_shows_no_cordon() -> None:
    story = machines(boot_s=60)
    story.process(assigned())

    assert story.process(updated(unschedulable=True)) == []


@pytest.mark.parametrize(
    "message", [updated(unschedulable=True, assignment=2), drain(assignment=2)]
)
def test_what_is_meant_for_another_stay_is_passed_over(message: NodeUpdated | CWDrainNode) -> None:
    story = a_node(graceful("job", 60))
    before = story.machine()

    assert story.process(message) == []
    assert story.machine() == before


# Drains.


def test_a_drain_ends_pods_by_how_they_may_be_interrupted() -> None:
    agent = Pod(name="agent", daemon_set=True)
    blocking, short, long = Pod(name="blocking"), graceful("short", 30), graceful("long", 90)
    fleeting = Pod(name="fleeting", interruption=PodClass.INTERRUPTABLE)
    story = a_node(agent, blocking, short, long, fleeting)

    outputs = [story.process(drain()), story.wakes(29.9), story.wakes(30), story.wakes(90)]

    assert outputs == [
        [observed(agent, blocking, terminating(long), terminating(short))],
        [],
        [observed(agent, blocking, terminating(long))],
        [observed(agent, blocking)],
    ]
    assert story.due is None


def test_a_forced_drain_ends_blocking_pods_as_well() -> None:
    job = Pod(name="job", grace_s=10)
    story = a_node(job)

    assert story.process(drain(force=True)) == [observed(terminating(job))]
    assert story.due == after(10)
    assert story.wakes(10) == [observed()]


def test_pods_whose_grace_periods_are_over_by_one_wake_are_observed_together() -> None:
    story = a_node(graceful("a", 10), graceful("b", 20), graceful("c", 60))
    story.process(drain())

    assert story.wakes(30) == [observed(terminating(graceful("c", 60)))]
    assert story.due == after(60)


def test_a_second_drain_does_not_prolong_a_grace_period() -> None:
    story = a_node(graceful("job", 60))
    story.process(drain())
    story.wakes(30)

    assert story.process(drain()) == [observed(terminating(graceful("job", 60)))]
    assert story.due == after(60)


def test_a_pod_that_stops_in_its_grace_period_is_not_killed_later() -> None:
    story = a_node(graceful("job", 60))
    story.process(drain())
    story.process(stop("job"))

    story.process(run(graceful("job", 60)))

    assert story.due is None
    assert story.wakes(60) == []


@pytest.mark.parametrize("end", [deleted(), registration_failed()])
def test_a_machine_that_leaves_has_no_pods_and_nothing_to_report(
    end: CWNodeDeleted | CWNodeRegistrationFailed,
) -> None:
    story = a_node(graceful("job", 60))
    story.process(updated(unschedulable=True))
    story.process(drain())

    assert story.process(end) == []
    assert story.due is None
    assert not story.machine().pods
    assert not story.machine().unschedulable
    assert refusal(story.process(run(Pod(name="job")))) == (
        "Invalid machine: is not a Node of any cluster"
    )


# Many at once, and snapshots.


def test_a_wake_takes_many_machines_and_the_next_one_the_others() -> None:
    story = machines(500, boot_s=60)
    for number in range(1, 501):
        story.process(assigned(name_of(number)))

    outputs = [story.wakes(60) for _ in range(3)]

    assert [len(messages) for messages in outputs] == [400, 100, 0]
    assert story.due is None


def test_the_state_comes_back_from_a_snapshot_as_it_was() -> None:
    story = machines(2, boot_s=60)
    story.process(broken("registration", 3, "bad token"))
    story.process(assigned())
    story.wakes(60)
    story.process(assigned(SECOND))
    story.wakes(120)
    story.process(registered(SECOND))
    story.process(run(graceful("job", 60), SECOND))
    story.process(drain().model_copy(update={"node": SECOND}))
    story.process(assigned(assignment=2))

    assert story.machine().boots_at is not None
    assert story.machine(SECOND).kills
    assert load(State, dump(story.folded)) == story.folded


def test_a_machine_is_due_at_the_earliest_of_its_moments() -> None:
    story = a_node(graceful("a", 90), graceful("b", 30))
    story.process(drain())

    assert Machine(0).due is None
    assert story.machine().due == after(30)
    assert story.due == after(30)


# A machine that hangs.


def test_a_node_whose_machine_hangs_reports_nothing_more() -> None:
    # given a Node with a Pod
    story = a_node()
    story.process(run(graceful("job", 60)))

    # when its machine hangs, and it is cordoned and drained
    outputs = story.process(broken("hang"))
    rest = [*story.process(updated(unschedulable=True)), *story.process(drain())]
    story.now += timedelta(minutes=5)
    rest += story.wake_until_idle()

    # then all that is said of the Node is that it is silent, and it takes no Pod
    assert outputs == [accepted(broken("hang")), hung(times=1), silent()]
    assert [type(event) for event in rest] == [NodeConditionChanged]
    assert refusal(story.process(run(graceful("other", 1)))) == ("Invalid machine: does not answer")
    assert refusal(story.process(stop("job"))) == "Invalid machine: does not answer"


def test_a_machine_that_answers_again_reports_all_that_it_did_not_report() -> None:
    # given a Node that hangs, was drained meanwhile, and whose Pod has had its time
    story = a_node()
    story.process(run(graceful("job", 60)))
    story.hears(broken("hang"), updated(unschedulable=True), drain())
    story.now += timedelta(minutes=5)

    outputs = story.hears(broken("hang", times=0))

    assert outputs == [
        accepted(broken("hang")),
        hung(times=0),
        observed(terminating(graceful("job", 60)), unschedulable=True, cordon=1),
        observed(unschedulable=True, cordon=1),
    ]


def test_a_machine_that_hangs_reports_no_other_problem_before_its_next_boot() -> None:
    # given a Node that hangs
    story = a_node()
    story.process(broken("hang"))

    # when it gets a problem, and reboots
    outputs = [type(event) for event in story.process(broken("xid"))]
    kubelet = [type(event) for event in story.process(broken("kubelet"))]
    story.process(broken("xid"))
    reboot = {"phase": NodePhase.REBOOTING, "boot": 1}
    story.process(updated(unschedulable=True).model_copy(update=reboot))
    after = [type(event) for event in story.wake_until_idle()]

    assert outputs == [CommandAccepted, MachineBroken]
    assert kubelet == [CommandAccepted, MachineBroken]
    assert after == [NodeObserved, MachineBooted, NodeConditionChanged]


def test_a_machine_hangs_in_as_many_stays_as_it_was_told() -> None:
    # given a free machine that is to hang in its next stay
    story = machines(1)
    story.process(broken("hang"))

    # when it joins a cluster and is cordoned, and so again in a later stay
    first = story.hears(assigned(), registered(), updated(unschedulable=True))
    second = story.hears(
        deleted(),
        assigned(assignment=2),
        registered(assignment=2),
        updated(unschedulable=True, assignment=2),
    )

    assert first == [booted(), silent()]
    assert [type(event) for event in second] == [MachineBooted, NodeObserved]
