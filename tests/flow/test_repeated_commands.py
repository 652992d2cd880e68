"""Commands that arrive twice, late or out of order take effect once."""

from support.harness import Harness
from support.world_harness import WorldHarness


def test_a_command_that_arrives_twice_at_once_is_done_once(harness: Harness) -> None:
    harness.given_data_center()
    harness.start_recording()

    with harness.sent_together():
        command = harness.apply("train", 1)
        harness.resend(command)

    assert set(harness.outcomes(command)) == {"created 1"}
    assert harness.events("train") == [
        "CWNodePoolCreated",
        "CWNodeRequestQueued 1",
        "CWNodeAssigned n1",
        "CWNodeRegistered n1",
    ]


def test_a_command_that_arrives_again_later_has_the_same_outcome(harness: Harness) -> None:
    harness.given_data_center()
    command = harness.apply("train", 1)
    harness.start_recording()

    harness.resend(command)

    assert harness.outcomes(command) == ["created 1", "created 1"]
    assert harness.messages("train") == []


def test_an_old_scale_that_arrives_after_a_newer_one_changes_nothing(harness: Harness) -> None:
    harness.given_data_center()
    harness.apply("train", 1)
    old = harness.scale("train", 2)
    harness.scale("train", 3)
    harness.start_recording()

    harness.resend(old)

    assert harness.outcomes(old) == ["configured 2", "configured 2"]
    assert harness.messages("train") == []
    assert harness.node_counts("train") == (3, 0, 3)


def test_an_old_deletion_that_arrives_after_the_name_was_used_again_deletes_nothing(
    harness: Harness,
) -> None:
    harness.given_data_center()
    harness.apply("train", 1)
    old = harness.delete("train")
    harness.apply("train", 1)
    harness.start_recording()

    harness.resend(old)

    assert harness.outcomes(old) == ["deleted 1", "deleted 1"]
    assert harness.messages("train") == []
    assert harness.node_counts("train") == (1, 0, 1)


def test_a_command_that_was_refused_stays_refused_when_it_arrives_again(harness: Harness) -> None:
    harness.given_data_center()
    refused = harness.scale("train", 5)
    harness.apply("train", 1)
    harness.start_recording()

    harness.resend(refused)

    expected = "NotFound metadata.name: NodePool train does not exist"
    assert harness.outcomes(refused) == [expected, expected]
    assert harness.node_counts("train") == (1, 0, 1)


def test_an_id_that_another_organisation_used_does_not_matter(harness: Harness) -> None:
    harness.given_data_center()
    harness.given_cluster("prod", org="umbrella")
    harness.given_quota(1, org="umbrella")
    harness.apply("train", 1, id="first")

    harness.apply("umbrella/prod/train", 1, id="first")
    harness.resend("first")

    assert harness.node_counts("umbrella/prod/train") == (1, 0, 1)


def test_an_old_quota_that_arrives_after_a_newer_one_changes_nothing(harness: Harness) -> None:
    harness.given_data_center(quota=1)
    old = harness.first_id("SetQuota")
    harness.given_quota(5)

    harness.resend(old)
    harness.apply("train", 5)

    assert harness.conditions("train")["Quota"] == "Under"


def test_machines_that_are_added_twice_by_one_command_are_added_once(harness: Harness) -> None:
    harness.given_data_center(machines=2)
    command = harness.first_id("AddMachines")

    harness.resend(command)
    harness.apply("train", 3)

    assert harness.nodes("train") == ["n1", "n2"]


def test_a_pod_that_is_started_twice_by_one_command_runs_once(world: WorldHarness) -> None:
    world.given_data_center()
    world.apply("train", 1)
    world.run_pod("n1")
    command = world.first_id("RunPod")
    world.stop_pod("n1")

    world.resend(command)

    assert world.outcomes(command) == ["done", "done"]
    assert world.node_conditions("n1")["CWActive"] == "False NoWorkloads"


def test_a_node_that_is_preempted_twice_is_warned_once(world: WorldHarness) -> None:
    world.given_data_center()
    world.apply("cheap", 1, computeClass="spot")
    world.start_recording()

    first = world.preempt("cheap", "n1")
    world.pass_time(seconds=30)
    second = world.preempt("cheap", "n1")
    world.resend(first)

    assert world.outcomes(first) == ["done", "done"]
    assert world.outcomes(second) == ["unchanged"]
    assert world.timed_events("cheap") == ["0:00 PreemptionPending n1"]


def test_an_outcome_carries_the_id_of_its_command(harness: Harness) -> None:
    harness.given_data_center()

    harness.apply("train", 1, id="mine")

    assert harness.outcomes("mine") == ["created 1"]


def test_every_message_that_a_command_leads_to_carries_its_id(harness: Harness) -> None:
    harness.given_data_center()
    harness.start_recording()

    command = harness.apply("train", 1)

    assert {envelope.correlationid for envelope in harness.envelopes_of("train")} == {command}
