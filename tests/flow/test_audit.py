"""The auditor finds nothing wrong in a right log, and each kind of violation in a wrong one."""

import re
from collections.abc import Mapping
from functools import cache

import pytest

from support.audit.auditor import Auditor, violations
from support.audit.facts import TRIAGE, Violation
from support.constants import A100, H100, PREFER_IDLE
from support.manifests import rack_affinity
from support.reference.history import History
from support.reference.nodes import NodesModel
from support.reference.turns import TurnsModel
from support.tampering import (
    Change,
    Log,
    all_of,
    appended,
    caused_earlier,
    changed,
    first,
    last_changed,
    moved_before,
    record_changed,
    repeated,
    with_data,
    without,
)
from support.world_harness import WorldHarness


@cache
def right_log() -> Log:
    """NodePools are created, wait, shrink, lose a spot Node to another, and are deleted."""
    world = WorldHarness()
    world.given_data_center(machines=3, quota=9)
    world.apply("train", 2)
    world.apply("spot", 1, computeClass="spot")
    world.run_pod("n3", graceS=3600)
    world.preempt("spot", "n3")
    world.apply("serve", 1)
    world.apply("batch", 1)
    world.scale("train", 1)
    world.pass_time(minutes=8)
    world.break_machines("n3", fault="boot")
    for pool in ("train", "serve", "batch", "spot"):
        world.delete(pool)
    world.apply("again", 2)
    return tuple(world.entries())


def spec(target: int = 2, instance_type: str = H100, **fields: object) -> dict[str, object]:
    """A spec with these fields."""
    return {"instanceType": instance_type, "targetNodes": target, **fields}


WRONG: Mapping[str, tuple[Change, str]] = {
    "a commit goes back": (
        appended("np.commit.quota", b'{"position": 1}'),
        "np.commit.quota goes back to 1",
    ),
    "a commit record is not one": (
        appended("np.commit.quota", b"hello"),
        "not a commit record",
    ),
    "a commit follows another than the last": (
        record_changed("np.commit.quota", follows=1),
        "np.commit.quota follows 1, but the last lies at ",
    ),
    "a commit names more than its batch": (
        record_changed("np.commit.quota", outputs=400),
        "np.commit.quota names 400 outputs that are not before it",
    ),
    "a commit names less than its batch": (
        record_changed("np.commit.quota", outputs=0),
        "np.commit.quota does not name the output at ",
    ),
    "an event is stored twice": (
        repeated("QuotaSet", id=""),
        "is stored twice",
    ),
    "an event cannot be read": (
        changed("QuotaSet", limit="many"),
        "limit cannot be read",
    ),
    "a command has two outcomes": (
        repeated("CommandAccepted", result="deleted"),
        "has two outcomes",
    ),
    "two NodePools have one name": (
        repeated("NodePoolValidated", uid="other"),
        "NodePoolReplaced in acme/prod/train",
    ),
    "a generation goes back": (
        repeated("NodePoolValidated", generation=0),
        "GenerationBackwards in acme/prod/train",
    ),
    "an instance type changes": (
        repeated("NodePoolValidated", spec=spec(instance_type=A100)),
        "InstanceTypeChanged in acme/prod/train",
    ),
    "a NodePool is deleted too early": (
        without("CWNodePoolNodesRemoved", "train"),
        "train is deleted before its Nodes are removed",
    ),
    "a NodePool is not empty": (
        without("CWNodeDeleted", "train"),
        "NodePoolNotEmpty in acme/prod/train",
    ),
    "a NodePool is deleted twice": (
        repeated("CWNodePoolDeleted", "train"),
        "does not exist",
    ),
    "a NodePool is not known": (
        without("NodePoolValidated", "train"),
        "is not in the log before",
    ),
    "a count is negative": (
        changed("CapacityChecked", "batch", needed=-1),
        "needed is -1",
    ),
    "a grant exceeds the limit": (
        changed("QuotaSet", limit=1),
        "train is granted 2 Nodes: 2 of 1 in acme/",
    ),
    "a limit was never set": (
        without("QuotaSet"),
        "train is granted 2 Nodes: 2 of 0 in acme/",
    ),
    "a Node exceeds the grant": (
        changed("QuotaChecked", granted=1),
        "is given a Node and holds 1 of 1",
    ),
    "a machine was never added": (
        without("MachineAdded"),
        "MachineUnknown in acme/prod/train",
    ),
    "a machine is of another type": (
        changed("MachineAdded", instanceType=A100),
        "MachineUnfit in acme/prod/train",
    ),
    "a machine is held by another": (
        without("CWNodeDeleted", "train"),
        "MachineHeld in acme/prod/",
    ),
    "a machine is assigned twice": (
        repeated("CWNodeAssigned", assignment=99),
        "MachineHeld in acme/prod/train",
    ),
    "an assignment is used twice": (
        changed("CWNodeAssigned", "serve", assignment=1),
        "AssignmentNotNew in acme/prod/serve",
    ),
    "a spec is not valid": (
        changed("NodePoolValidated", reason="Invalid"),
        "is given a Node without a valid spec",
    ),
    "a NodePool is being deleted": (
        moved_before("NodePoolDeleting", "train", "CapacityChecked"),
        "is given a Node while it is being deleted",
    ),
    "a generation is not granted": (
        without("QuotaChecked", "train"),
        "for a generation that was not granted",
    ),
    "capacity was not checked": (
        without("CapacityChecked", "train"),
        "before its capacity was checked",
    ),
    "an affinity is not satisfied": (
        changed("NodePoolValidated", spec=spec(affinity=rack_affinity("r7"))),
        "which its affinity does not accept",
    ),
    "a machine is added twice": (
        repeated("MachineAdded"),
        "MachineAddedTwice",
    ),
    "another machine has booted": (
        changed("MachineBooted", machine="g000000"),
        "fleet breaks MachineUnknown",
    ),
    "a Node has not booted": (
        without("MachineBooted"),
        "is registered before it has booted",
    ),
    "a Node registers twice": (
        repeated("CWNodeRegistered"),
        "RegisteredTwice in acme/prod/train",
    ),
    "a Node is of another NodePool": (
        changed("CWNodeRegistered", pool="serve"),
        "NodeUnknown in acme/prod/serve",
    ),
    "a machine is given up early": (
        changed("MachineFailed", assignment=7),
        "is given up early",
    ),
    "a Node is not registered": (
        without("CWNodeRegistered", "train"),
        "NodeUnregistered in acme/prod/train",
    ),
    "a cordon was not requested": (
        without("CWNodeDeletionRequestSuccess", "train"),
        "is cordoned without a cause",
    ),
    "a deletion was not requested": (
        without("CWNodeDeletionRequestSuccess", "train"),
        "is deleted without a request to remove it",
    ),
    "a Node is not cordoned": (
        without("NodeUpdated", "train"),
        "is drained when production",
    ),
    "a Node is not drained": (
        without("CWDrainNode", "train"),
        "is deleted when cordoned",
    ),
    "a Node is deleted as if it never joined": (
        changed("CWNodeDeleted", registered=False),
        "CountsDisagree in acme/prod/train",
    ),
    "a Node is deleted twice": (
        repeated("CWNodeDeleted"),
        "NodeUnknown in acme/prod/train",
    ),
    "Pods are observed too late": (
        last_changed("NodeObserved", "g3779b1", pods=[{"name": "job"}]),
        "runs Pods that were not observed",
    ),
    "Pods still run": (
        caused_earlier("CWNodeDeleted", seconds=1, about="spot"),
        "is deleted while Pods run on it",
    ),
    "a Node is warned twice": (
        repeated("PreemptionPending"),
        "is warned twice",
    ),
    "a Node is not a spot Node": (
        changed("NodePoolValidated", "spot", spec=spec(1)),
        "is not a spot Node",
    ),
    "a drain begins early": (
        caused_earlier("PreemptionInProgress", seconds=1),
        "moves on early",
    ),
    "a drain precedes its preemption": (
        without("PreemptionInProgress"),
        "is drained while its preemption is pending",
    ),
    "a preemption ends before it begins": (
        all_of(
            caused_earlier("CWNodeDeleted", seconds=1, about="spot"),
            without("PreemptionInProgress"),
            without("CWDrainNode", "spot"),
        ),
        "is deleted for preemption early",
    ),
}
"""What is wrong, the change that makes it so, and a part of the violation."""


def test_a_right_log_has_no_violation() -> None:
    assert violations(right_log()) == []


def test_a_job_that_releases_the_last_lock_of_a_node_that_leaves_is_no_violation() -> None:
    world = WorldHarness()
    world.given_data_center()
    world.apply("train", 1, lifecycle=PREFER_IDLE)
    world.lock("train", "n1")
    world.scale("train", 0)

    world.unlock("train", "n1")

    assert world.nodes("train") == []
    assert violations(tuple(world.entries())) == []


MACHINE = "US-EAST-04A/g3779b1"


def log_of_a_late_allocator() -> Log:
    """Return a log in which an allocator has not read yet that the machine it gives is out."""
    world = WorldHarness()
    world.given_data_center(machines=1)
    with world.paused("allocator"):
        world.apply("train", 1)
        world.take_out("n1", "it does not answer")
    assert world.nodes("train") == ["n1"]
    return tuple(world.entries())


def test_a_machine_may_be_given_away_until_the_allocator_reads_that_it_was_taken_out() -> None:
    log = log_of_a_late_allocator()
    read = moved_before("MachineStateChanged", "", "CapacityChecked")

    found = [
        [text.partition(" ")[2] for text in violations(each) if "CWNodeAssigned" in text]
        for each in (log, read(log))
    ]

    given = f"acme/prod/train is given {MACHINE}"
    known = f"CWNodeAssigned: {given}, which was known to be out of service"
    assert found == [[], [known]]


def test_a_machine_that_is_returned_out_of_service_may_not_be_given_away() -> None:
    # given a machine that a late allocator holds back, and that its provider takes out of service
    world = WorldHarness()
    world.given_data_center(machines=1)
    with world.paused("allocator"):
        world.reclaim(1)
        world.take_out("n1", "it does not answer")

    # when it is returned
    world.give_back(1)
    auditor = Auditor()
    for entry in world.entries():
        auditor.read(entry)

    # then the audit knows that it is still out of service
    assert auditor.facts.machines[MACHINE].holder == TRIAGE


@pytest.mark.parametrize(("change", "expected"), WRONG.values(), ids=WRONG)
def test_a_wrong_log_has_a_violation(change: Change, expected: str) -> None:
    wrong_log = change(right_log())

    texts = violations(wrong_log)

    assert [text for text in texts if expected in text] != [], texts


def turn_faults(log: Log) -> list[str]:
    """Return what the model of turns finds wrong in a log."""
    return TurnsModel(_history(log)).faults


def removal_faults(log: Log) -> list[str]:
    """Return what the model of Nodes finds wrong in a log, on the way to its end."""
    return NodesModel(_history(log)).faults


def _history(log: Log) -> History:
    auditor = Auditor()
    for entry in log:
        auditor.read(entry)
    return auditor.history


def test_in_a_right_log_each_nodepool_is_served_in_its_turn() -> None:
    assert turn_faults(right_log()) == []


def test_a_nodepool_that_is_served_out_of_its_turn_is_named() -> None:
    urgent = spec(1, schedulingPriority={"value": 7})
    wrong_log = changed("NodePoolValidated", "batch", spec=urgent)(right_log())

    found = turn_faults(wrong_log)

    assert [re.sub(r" at \d+ ", " ", text) for text in found] == [
        "acme/prod/serve is served before acme/prod/batch, which has a higher rank"
    ]


def test_a_violation_is_raised_with_its_position_and_the_name_of_the_message() -> None:
    log = right_log()
    index = first(log, "CWNodeRegistered", "train")
    entry = log[index]
    auditor = Auditor()
    for earlier in log[:index]:
        auditor.read(earlier)

    with pytest.raises(Violation, match="NodeUnknown in acme/prod/serve") as raised:
        auditor.read(with_data(entry, {"pool": "serve"}))

    assert str(raised.value).startswith(f"{entry.position} CWNodeRegistered: ")
    assert auditor.position == entry.position


def test_a_commit_has_to_follow_a_record_that_is_noise_too() -> None:
    last = right_log()[-1]._replace(subject="np.commit.quota")
    foreign = last._replace(position=last.position + 1, content=b"noise")
    content = b'{"position": %d, "outputs": 0, "follows": %d}' % (last.position, foreign.position)
    record = last._replace(position=last.position + 2, content=content)
    auditor = Auditor()
    auditor.noise.add(foreign.position)

    for entry in (*right_log(), foreign, record):
        auditor.read(entry)

    with pytest.raises(Violation, match="but the last lies at"):
        auditor.read(record._replace(position=last.position + 3))


def test_an_auditor_ignores_noise() -> None:
    noise = right_log()[-1]._replace(position=999, content=b"noise")
    auditor = Auditor()

    auditor.noise.add(noise.position)
    auditor.read(noise)

    assert auditor.position == noise.position
