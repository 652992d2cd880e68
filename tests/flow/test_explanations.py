"""Why a NodePool does not have what it wants, from the read model of a whole control plane."""

import json

from nodepool.explanation.documents import facts
from nodepool.explanation.sentence import Explanation, explain
from support.constants import CLUSTER, H100, ORG, ZONE
from support.harness import Harness
from support.world_harness import WorldHarness


def explained(harness: Harness, pool: str) -> Explanation:
    """The explanation of a NodePool from all that the read model has."""
    pools = harness.documents("nodepools")
    key = f"{ORG}/{CLUSTER}/{pool}"
    return explain(
        facts(
            pools[key],
            zone=ZONE,
            nodes=harness.documents("nodes").values(),
            quota=harness.document("quotas", f"{ORG}/{ZONE}/{H100}"),
            capacity=harness.document("capacity", f"{ZONE}/{H100}"),
            machines=harness.documents("machines").values(),
            peers=[(name.partition("/")[2], each) for name, each in pools.items() if name != key],
        )
    )


def titles(explanation: Explanation) -> list[str]:
    """The causes in their order."""
    return [cause.title for cause in explanation.causes]


def test_the_quota_that_an_explanation_asks_for_is_enough_and_one_less_is_not(
    harness: Harness,
) -> None:
    # given a NodePool that wants more than is left of the quota
    harness.given_data_center(machines=20, quota=8)
    harness.apply("other", 5)
    harness.apply("train", 6)

    # when its quota is raised to less than what helps, and to that
    before = explained(harness, "train")
    harness.given_quota(10)
    one_less = explained(harness, "train")
    harness.given_quota(11)

    # then only that helps
    assert titles(before) == ["Quota is Over"]
    assert before.causes[0].details == (
        "the quota is 3 Nodes too small",
        "train reserves 0",
        f"other NodePools reserve 5: {CLUSTER}/other 5",
    )
    assert before.causes[0].helps == (
        f"raise the quota of {H100} in {ZONE} to 11",
        "scale train to 3, which fits",
        f"scale {CLUSTER}/other down by 3",
    )
    assert one_less.causes[0].helps[0] == f"raise the quota of {H100} in {ZONE} to 11"
    assert titles(explained(harness, "train")) == []


def test_the_target_that_an_explanation_offers_fits(world: WorldHarness) -> None:
    world.given_data_center(machines=20, quota=8)
    world.apply("other", 5)
    world.apply("train", 6)
    assert "scale train to 3, which fits" in explained(world, "train").causes[0].helps

    world.scale("train", 3)

    assert titles(explained(world, "train")) == []


def test_the_machines_that_an_explanation_asks_for_are_enough(harness: Harness) -> None:
    harness.given_data_center(machines=5)
    harness.apply("other", 3)
    harness.apply("train", 6)
    before = explained(harness, "train")

    harness.given_machines(4)

    assert titles(before) == ["Capacity is NoneAvailable"]
    assert before.causes[0].details == (
        f"of {H100} in {ZONE} 0 are free, 5 are assigned and 0 are in triage",
        f"other NodePools hold 3: {CLUSTER}/other 3",
    )
    assert before.causes[0].helps[0] == "add 4 machines of the type to the zone"
    assert titles(explained(harness, "train")) == []


def test_who_waits_for_spot_nodes_is_asked_for_no_machines(world: WorldHarness) -> None:
    # given a NodePool for which one spot Node leaves, and one for which that is not enough
    world.given_data_center(machines=2)
    world.apply("cheap", 2, computeClass="spot")
    world.apply("train", 1)
    enough = explained(world, "train")
    world.apply("more", 2)

    assert enough.causes[0].helps == (
        "wait: 1 spot Node is being preempted for it, which takes at most 7 minutes",
    )
    assert explained(world, "more").causes[0].helps == (
        "wait: 1 spot Node is being preempted for it, which takes at most 7 minutes",
        "add 1 machine of the type to the zone",
    )


def test_a_quota_that_was_never_set_is_named(world: WorldHarness) -> None:
    world.given_cluster()
    world.given_machines(2)

    world.apply("train", 2)

    assert explained(world, "train").causes[0].helps == (f"set the quota of {H100} in {ZONE} to 2",)


def test_an_invalid_nodepool_has_no_other_cause(world: WorldHarness) -> None:
    world.given_data_center()

    world.apply("train", 2, "gd-8xh100")

    explanation = explained(world, "train")
    assert titles(explanation) == ["Validated is Invalid"]
    assert explanation.causes[0].helps == ("change the spec as the message says",)


def test_nodes_that_boot_are_named_until_they_have_joined(world: WorldHarness) -> None:
    world.given_data_center(boot_s=60)
    world.apply("train", 2)

    booting = explained(world, "train")
    world.pass_time(seconds=60)

    assert titles(booting) == ["2 are in progress"]
    assert booting.causes[0].since is not None
    assert titles(explained(world, "train")) == []


def test_a_removal_that_waits_names_the_pods_as_the_condition_does(world: WorldHarness) -> None:
    world.given_data_center()
    world.apply("train", 1, lifecycle={"scaleDownStrategy": "PreferIdle"})
    world.run_pod("n1", "job")
    world.scale("train", 0)

    cause = explained(world, "train").causes[0]
    condition = world.condition("train", "AtTarget")

    assert cause.title == "it has 1 Node too many"
    assert cause.helps == ("end the Pods that block", "scale train to 1, what it has")
    assert cause.message.startswith("waits for ")
    assert condition.endswith(f"; {world.with_machine_numbers(cause.message)}.")


def test_a_deletion_that_waits_names_the_pods_as_the_condition_does(world: WorldHarness) -> None:
    world.given_data_center()
    world.apply("train", 1)
    world.run_pod("n1", "job")
    world.delete("train")

    explanation = explained(world, "train")

    assert titles(explanation) == ["it is being deleted"]
    message = world.with_machine_numbers(explanation.causes[0].message)
    assert world.condition("train", "NodesRemoved") == f"False Pending: {message}."
    assert "active since" in message


def test_a_preemption_is_named_with_its_node(world: WorldHarness) -> None:
    world.given_data_center()
    world.apply("batch", 1, computeClass="spot")

    world.preempt("batch", "n1")

    causes = explained(world, "batch").causes
    assert [(cause.kind, cause.title) for cause in causes] == [
        ("Preemption", "1 Node is being preempted")
    ]


def test_an_unhealthy_node_that_waits_to_be_cured_is_named(world: WorldHarness) -> None:
    world.given_data_center()
    world.apply("train", 1)
    before = explained(world, "train").causes

    world.break_machines("n1", fault="gpu-lost")
    broken = explained(world, "train").causes
    world.command_node("DrainNode", "train", "n1")
    world.pass_time(minutes=1)

    assert [(cause.kind, cause.title) for cause in broken] == [("Health", "1 Node is unhealthy")]
    assert broken[0].message == f"{world.machine_name('n1')}: GPUMissing"
    assert before == explained(world, "train").causes == ()


def test_a_silent_node_is_named_as_its_cordon_names_it(world: WorldHarness) -> None:
    world.given_data_center()
    world.apply("train", 1)

    world.break_machines("n1", fault="kubelet")

    (cause,) = explained(world, "train").causes
    assert cause.message == f"{world.machine_name('n1')}: NotReady"


def test_every_proof_is_a_message_in_the_log_that_says_so(world: WorldHarness) -> None:
    world.given_data_center(machines=2, quota=3)
    world.apply("other", 1)
    world.apply("train", 2)
    world.scale("train", 9)

    proofs = [proof for cause in explained(world, "train").causes for proof in cause.proofs]
    types = {each.position: each.subject.rpartition(".")[2] for each in world.entries()}

    assert [(proof.about, types[proof.position]) for proof in proofs] == [
        ("condition Quota", "QuotaChecked"),
        (f"quota {ZONE}.{H100}", "QuotaChecked"),
        (f"nodepool {CLUSTER}/other", "CWNodeRegistered"),
        ("condition Capacity", "CapacityChecked"),
        (f"capacity {ZONE}.{H100}", "CWNodeAssigned"),
        (f"nodepool {CLUSTER}/other", "CWNodeRegistered"),
    ]


def test_at_target_repeats_the_causes_that_block(world: WorldHarness) -> None:
    world.given_data_center(machines=2, quota=3)
    world.apply("train", 3)
    world.scale("train", 9)

    causes = explained(world, "train").causes
    message = world.condition("train", "AtTarget")

    assert [cause.kind for cause in causes] == ["Quota", "Capacity"]
    assert message == (
        f"False UnderTarget: NodePool has 2 of 9 Nodes; {causes[0].clause}; {causes[1].clause}."
    )


def test_an_explanation_is_json(world: WorldHarness) -> None:
    world.given_data_center(machines=1)
    world.apply("train", 2)

    document = explained(world, "train").document()

    assert json.loads(json.dumps(document)) == document
