"""Who is named as absent is who has to act next, and nobody else."""

from contextlib import ExitStack

import pytest

from flow.test_explanations import explained, titles
from nodepool.contract.moments import rfc3339
from support.constants import ORG, PREFER_IDLE
from support.world_harness import WorldHarness


@pytest.mark.parametrize("service", ["preemption", "lifecycle"])
def test_a_surplus_node_that_is_to_give_way_is_waited_for_from_who_has_to_begin_its_preemption(
    world: WorldHarness, service: str
) -> None:
    # given spot Nodes, of which one is to give way, while a service does not answer
    world.given_data_center(machines=4)
    world.apply("cheap", 3, computeClass="spot")
    world.apply("train", 1)
    with world.paused(service):
        world.scale("train", 2)
        world.pass_time(minutes=1)

        # when one Node less is wanted
        world.scale("cheap", 2)
        early = titles(explained(world, "cheap", is_now=True))
        world.pass_time(minutes=1)
        late = explained(world, "cheap", is_now=True)
        shown = world.condition("cheap", "AtTarget")
    world.pass_time(minutes=10)

    # then that service alone is named, and no removal is said to have begun
    assert early == titles(late)[:1] == [f"the {service} service does not answer"]
    assert late.causes[0].message == "1 Node is to give way, which has not begun"
    assert shown == "False OverTarget: NodePool has 3 Nodes and wants 2; 1 is to give way."
    assert titles(explained(world, "cheap", is_now=True)) == []


@pytest.mark.parametrize("target", [0, 1])
def test_surplus_nodes_that_are_preempted_wait_for_no_pod_and_who_does_not_end_them_is_blamed(
    world: WorldHarness, target: int
) -> None:
    # given two spot Nodes at work that are being preempted
    world.given_data_center(machines=2)
    world.apply("cheap", 2, computeClass="spot")
    world.run_pod("n1")
    world.run_pod("n2")
    world.apply("train", 2)
    world.pass_time(seconds=30)

    # when they are too many as well, and nobody ends their preemption
    with world.paused("lifecycle"):
        world.scale("cheap", target)
        world.pass_time(minutes=1)
        early = titles(explained(world, "cheap", is_now=True))
        shown = world.condition("cheap", "AtTarget")
        world.pass_time(minutes=20)
        late = explained(world, "cheap", is_now=True)
    world.pass_time(minutes=10)

    # then no Pod is named, and nothing but the preemption is explained
    wanted = f"False OverTarget: NodePool has 2 Nodes and wants {target}"
    assert shown == f"{wanted}; 2 are being preempted."
    assert early == titles(late) == ["2 Nodes are being preempted"]
    starts = [f"see that the {name} service runs" for name in ("preemption", "lifecycle")]
    assert [text.partition(":")[0] for text in late.causes[0].helps] == starts
    assert "Preemption" not in [cause.kind for cause in explained(world, "cheap").causes]


def test_a_preemption_that_is_late_is_explained_before_the_pods_of_other_surplus_nodes(
    world: WorldHarness,
) -> None:
    # given three spot Nodes at work, of which one is being preempted
    world.given_data_center(machines=3)
    world.apply("cheap", 3, computeClass="spot")
    for node in ("n1", "n2", "n3"):
        world.run_pod(node)
    world.preempt("cheap", "n1")

    # when one more is too many, and nobody ends the preemption
    with world.paused("lifecycle"):
        world.scale("cheap", 1)
        early = [cause.kind for cause in explained(world, "cheap", is_now=True).causes]
        world.pass_time(minutes=20)
        late = [cause.kind for cause in explained(world, "cheap", is_now=True).causes]
        shown = world.condition("cheap", "AtTarget")

    # then the Pods of the preempted Node are not waited for
    assert early == ["Removal", "Preemption"]
    assert late == ["Preemption", "Removal"]
    assert "; waits for 1 of 2: " in shown
    assert world.machine_name("n1") not in shown
    assert shown.endswith("; 1 is being preempted.")


def test_no_preemption_is_blamed_for_a_node_whose_machine_nobody_assigns(
    world: WorldHarness,
) -> None:
    # given a NodePool for which a spot Node gives way
    world.given_data_center(machines=3)
    world.apply("cheap", 2, computeClass="spot")
    world.apply("train", 1)
    world.scale("train", 2)
    world.pass_time(minutes=1)

    # when its machine is free, and nobody assigns it or says that it is there
    with world.paused("allocator", "capacity"):
        world.pass_time(minutes=30)
        away = explained(world, "train", is_now=True)
    world.pass_time(minutes=1)

    assert titles(away) == [
        "the allocator or the capacity service does not answer",
        "Capacity is NoneAvailable",
    ]
    assert (
        away.causes[0].message == "1 spot Node has given way for it, and nothing has come of that"
    )
    assert titles(explained(world, "train", is_now=True)) == []


def test_no_preemption_is_blamed_while_capacity_does_not_say_what_is_missing(
    world: WorldHarness,
) -> None:
    # given a NodePool that lacks two Nodes, and for which the only spot Node gives way
    world.given_data_center(machines=2)
    world.apply("cheap", 1, computeClass="spot")
    world.apply("train", 1)
    world.scale("train", 3)
    world.pass_time(minutes=1)

    # when it has got the machine of that, and nobody says what is missing now
    with world.paused("capacity"):
        world.pass_time(minutes=30)
        away = explained(world, "train", is_now=True)

    assert titles(away) == ["the capacity service does not answer"]


def test_the_end_of_a_pool_is_waited_for_from_who_chooses_a_node_that_was_to_give_way(
    world: WorldHarness,
) -> None:
    # given a spot Node that is to give way, which nobody begins
    world.given_data_center(machines=2)
    world.apply("cheap", 1, computeClass="spot")
    world.apply("train", 1)
    with world.paused("preemption"):
        world.scale("train", 2)
        world.pass_time(minutes=1)

        # when its NodePool is deleted, and nobody asks its Nodes to leave
        with world.paused("allocator"):
            world.delete("cheap")
            world.pass_time(minutes=1)
            (deleted,) = explained(world, "cheap", is_now=True).causes
    world.pass_time(minutes=10)

    starts = [f"see that the {name} service runs" for name in ("allocator", "lifecycle")]
    assert [text.partition(":")[0] for text in deleted.helps] == starts
    assert world.node_pool("cheap") is None


def given_two_spot_nodes_at_work(world: WorldHarness) -> None:
    """All machines are spot Nodes, each with a Pod that takes long to end."""
    world.given_data_center(machines=2)
    world.apply("cheap", 2, computeClass="spot")
    for node in ("n1", "n2"):
        world.run_pod(node, graceS=900)
    world.pass_time(minutes=5)


def test_who_awaits_a_spot_node_is_told_that_its_preemption_has_not_begun(
    world: WorldHarness,
) -> None:
    # given two spot Nodes, one of which has to give way to a NodePool of the default class
    given_two_spot_nodes_at_work(world)

    # when nobody warns of the preemption
    with world.paused("preemption"):
        world.apply("train", 1)
        early = explained(world, "train", is_now=True)
        world.pass_time(minutes=1)
        late = explained(world, "train", is_now=True)

    # then its seven minutes have not begun, and the preemption service is named
    back = explained(world, "train", is_now=True)
    waits = [
        "wait: 1 spot Node is to give way for it, at most 7 minutes after a warning, and longer "
        "with a wipe",
        "wait: 1 spot Node is being preempted for it, which takes at most 7 minutes, and longer "
        "with a wipe",
    ]
    assert [each.causes[0].helps[0] for each in (early, back)] == waits
    assert titles(late)[0] == "the preemption service does not answer"
    assert not any("7 minutes" in text for cause in late.causes for text in cause.helps)


@pytest.mark.parametrize("fault", ["gpu-lost", "xid"])
@pytest.mark.parametrize("evicts", [True, False])
def test_the_lifecycle_service_is_named_if_it_does_not_cordon_an_unhealthy_node(
    world: WorldHarness, fault: str, evicts: bool
) -> None:
    # given a Node that becomes unhealthy while the lifecycle service does not answer
    world.given_data_center()
    world.apply("train", 2, lifecycle={"disableUnhealthyNodeEviction": not evicts})
    with world.paused("lifecycle"):
        world.break_machines("n1", fault=fault)
        early = explained(world, "train", is_now=True)
        world.pass_time(minutes=1)
        (late,) = explained(world, "train", is_now=True).causes

    # when the service is back
    back = explained(world, "train", is_now=True)

    # then it was named as soon as it was late
    assert [each.split(":")[0] for each in late.helps] == ["see that the lifecycle service runs"]
    advised = [text for each in (early, back) for cause in each.causes for text in cause.helps]
    assert not any("service" in text for text in advised)


def test_the_lifecycle_service_is_named_if_a_silent_node_at_work_outlives_its_time_to_answer(
    world: WorldHarness,
) -> None:
    # given a Node at work that is drained and falls silent
    world.given_data_center()
    world.apply("train", 1, lifecycle={"disableUnhealthyNodeEviction": False})
    world.run_pod("n1")
    world.command_node("DrainNode", "train", "n1")
    world.break_machines("n1", fault="hang")
    world.pass_time(minutes=15)

    # when the service does not answer once the Node counts as dead
    early = explained(world, "train", is_now=True)
    with world.paused("lifecycle"):
        world.pass_time(minutes=30)
        late = explained(world, "train", is_now=True)
    world.pass_time(minutes=1)

    assert [each.split(":")[0] for each in early.causes[0].helps] == ["wait"]
    assert [each.split(":")[0] for each in late.causes[0].helps] == [
        "see that the lifecycle service runs"
    ]
    assert "n1" not in world.nodes("train")


def test_who_awaits_a_spot_node_is_told_that_nobody_marks_it_after_its_warning(
    world: WorldHarness,
) -> None:
    # given two spot Nodes at work, one of which is warned for a NodePool of the default class
    given_two_spot_nodes_at_work(world)

    # when the lifecycle service does not cordon it
    with world.paused("lifecycle"):
        world.apply("train", 1)
        early = explained(world, "train", is_now=True)
        world.pass_time(minutes=1)
        late = explained(world, "train", is_now=True)

    # then that service is named as to the owner of the Node, and not after seven minutes only
    back = explained(world, "train", is_now=True)
    assert [titles(each)[0] for each in (early, back)] == ["Capacity is NoneAvailable"] * 2
    assert titles(late)[0] == "the lifecycle service does not answer"
    assert late.causes[0].message == "1 spot Node is to give way for it, which has not begun"
    assert not any("7 minutes" in text for cause in late.causes for text in cause.helps)


def test_who_does_not_check_a_lower_target_is_named_to_who_waits_for_its_quota(
    world: WorldHarness,
) -> None:
    # given a NodePool over the quota, which another NodePool takes
    world.given_data_center(machines=6, quota=4)
    world.apply("old", 4)
    world.apply("train", 2)
    world.pass_time(minutes=1)

    # when the other NodePool wants fewer Nodes while the quota service does not answer
    with world.paused("quota"):
        world.scale("old", 1)
        early = titles(explained(world, "train", is_now=True))
        world.pass_time(minutes=1)
        late = explained(world, "train", is_now=True)
        own = titles(explained(world, "old", is_now=True))

    # then that service is named before the quota, as it is for the other NodePool
    assert early == ["Quota is Over"]
    assert titles(late) == ["the quota service does not answer", "Quota is Over"]
    assert late.causes[0].message == "it has not checked the lower target of prod/old"
    assert own == titles(late)[:1]
    assert world.conditions("train")["AtTarget"] == "TargetMet"


def test_a_deleted_nodepool_waits_for_no_check_of_its_target(world: WorldHarness) -> None:
    world.given_data_center(machines=6, quota=4)
    world.apply("old", 4)
    world.run_pod("n1", interruption="graceful", graceS=600)
    world.apply("train", 2)

    # when a NodePool is deleted before its lower target is checked
    with world.paused("quota"):
        world.scale("old", 3)
        world.delete("old")
        world.pass_time(minutes=1)
        late = explained(world, "train", is_now=True)

    assert late.causes[0].message != "it has not checked the lower target of prod/old"


@pytest.mark.parametrize("service", ["allocator", "lifecycle"])
@pytest.mark.parametrize("waits_for", ["Quota", "Capacity"])
@pytest.mark.parametrize("target", [1, None])
def test_who_does_not_let_nodes_go_is_named_to_who_waits_for_their_quota_or_machines(
    world: WorldHarness, service: str, waits_for: str, target: int | None
) -> None:
    # given a NodePool that waits for what another NodePool takes
    world.given_data_center(machines=6, quota=4)
    world.apply("old", 4)
    world.apply("train", 2)
    if waits_for == "Capacity":
        world.given_quota(100)
        world.apply("train", 4)
    world.pass_time(minutes=1)
    waiting = [title for title in titles(explained(world, "train")) if title.startswith(waits_for)]

    # when the other NodePool wants fewer Nodes, or is deleted, while a service does not answer
    with world.paused(service):
        if target is None:
            world.delete("old")
        else:
            world.scale("old", target)
        asked = rfc3339(world.world.log.clock)
        early = titles(explained(world, "train", is_now=True))
        world.pass_time(minutes=30)
        late = explained(world, "train", is_now=True)

    # then who has to act next is named first, since when, and for which NodePool
    assert early == waiting
    assert titles(late) == ["the allocator or the lifecycle service does not answer", *waiting]
    assert late.causes[0].message == "prod/old has Nodes that should be gone"
    since = late.causes[0].since
    assert since is not None
    assert rfc3339(since) == asked
    assert titles(explained(world, "train", is_now=True)) == []


def test_who_does_not_end_a_drain_is_named_to_who_waits_for_the_quota_of_the_node(
    world: WorldHarness,
) -> None:
    # given a NodePool that waits for the quota of a Node that is drained
    world.given_data_center(machines=6, quota=1)
    world.apply("old", 1, lifecycle=PREFER_IDLE)
    world.run_pod("n1", interruption="graceful", graceS=60)
    world.apply("train", 1)
    world.scale("old", 0)

    # when the Pod ends, and the lifecycle service does not answer
    with world.paused("lifecycle"):
        world.pass_time(minutes=2)
        early = titles(explained(world, "train", is_now=True))
        world.pass_time(minutes=24 * 60)
        late = titles(explained(world, "train", is_now=True))

    assert early == ["Quota is Over"]
    assert late == ["the lifecycle service does not answer", "Quota is Over"]


@pytest.mark.parametrize("service", ["preemption", "lifecycle"])
def test_who_does_not_begin_a_preemption_is_named_to_who_waits_for_the_quota_of_the_node(
    world: WorldHarness, service: str
) -> None:
    # given spot Nodes, of which one is too many and is to give way, while a service does not answer
    world.given_data_center(machines=4, quota=5)
    world.apply("cheap", 3, computeClass="spot")
    world.apply("train", 1)
    with world.paused(service):
        world.scale("train", 2)
        world.scale("cheap", 2)

        # when another NodePool waits for its quota
        world.apply("later", 1)
        early = titles(explained(world, "later", is_now=True))
        world.pass_time(minutes=1)
        late = explained(world, "later", is_now=True)
    world.pass_time(minutes=10)

    # then that service is named first, for the NodePool of that Node
    assert early == ["Quota is Over"]
    assert titles(late) == [f"the {service} service does not answer", *early]
    assert late.causes[0].message == "prod/cheap has Nodes that should be gone"
    assert titles(explained(world, "later", is_now=True)) == []


def test_who_does_not_end_a_preemption_is_named_to_who_deletes_the_nodepool(
    world: WorldHarness,
) -> None:
    # given a spot Node at work that is being preempted
    world.given_data_center(machines=2)
    world.apply("cheap", 1, computeClass="spot")
    world.run_pod("n1", graceS=900)
    world.preempt("cheap", "n1")

    # when its NodePool is deleted, and nobody ends the preemption
    with world.paused("lifecycle"):
        world.delete("cheap")
        early = explained(world, "cheap", is_now=True).causes[0].helps
        world.pass_time(minutes=30)
        late = explained(world, "cheap", is_now=True).causes[0].helps

    assert [text.partition(":")[0] for text in early] == ["wait until it is gone"]
    starts = [f"see that the {name} service runs" for name in ("preemption", "lifecycle")]
    assert [text.partition(":")[0] for text in late] == starts


@pytest.mark.parametrize("minutes", [0, 3])
@pytest.mark.parametrize("evicts", [True, False])
def test_the_lifecycle_service_is_named_if_it_does_not_say_what_follows_from_a_silence(
    world: WorldHarness, minutes: int, *, evicts: bool
) -> None:
    # given a Node that has just fallen silent, or whose silence is known for some minutes
    world.given_data_center()
    world.apply("train", 2, lifecycle={"disableUnhealthyNodeEviction": not evicts})
    if minutes:
        world.break_machines("n1", fault="hang")
        world.pass_time(minutes=minutes)

    # when the lifecycle service does not answer
    with world.paused("lifecycle"):
        world.break_machines("n1", fault="hang")
        world.pass_time(seconds=45)
        early = explained(world, "train", is_now=True)
        world.pass_time(minutes=5)
        late = explained(world, "train", is_now=True)

    # then that service is named as soon as it is late, and not while it is at work
    back = explained(world, "train", is_now=True)
    assert [titles(each) for each in (early, late)] == [["1 Node is unhealthy"]] * 2
    assert [each.causes[0].helps[0].split(":")[0] for each in (early, late)] == [
        "wait",
        "see that the lifecycle service runs",
    ]
    assert not any("service" in text for text in back.causes[0].helps)


def test_no_service_is_named_for_a_silence_that_is_widespread(world: WorldHarness) -> None:
    # given most Nodes of a zone that are silent, of which one fell silent before
    world.given_data_center(machines=4)
    world.apply("train", 4)
    world.break_machines("n1", fault="hang")
    world.pass_time(minutes=2)
    world.break_machines("n2", "n3", fault="hang")

    # when an hour passes
    told = list[str]()
    for _ in range(60):
        world.pass_time(minutes=1)
        told += explained(world, "train", is_now=True).causes[0].helps

    assert {text.split(":")[0] for text in told} == {"wait"}


def test_no_service_is_named_while_the_fleet_does_not_say_whether_a_node_is_still_silent(
    world: WorldHarness,
) -> None:
    world.given_data_center()
    world.apply("train", 1)
    world.break_machines("n1", fault="hang")
    world.pass_time(minutes=1)

    with world.paused("fleet"):
        world.pass_time(minutes=60)
        during = explained(world, "train", is_now=True).causes[0].helps[0]
    after = world.with_machine_numbers(explained(world, "train", is_now=True).causes[0].helps[0])

    assert [text.split(":")[0] for text in (during, after)] == [
        "wait",
        "'nodepool drain n1' gives it up",
    ]


def test_the_lifecycle_service_is_named_if_a_machine_has_not_answered_a_command_in_time(
    world: WorldHarness,
) -> None:
    world.given_data_center()
    world.apply("train", 1)
    world.break_machines("n1", fault="hang")
    world.command_node("DrainNode", "train", "n1")
    world.pass_time(seconds=20)

    with world.paused("lifecycle"):
        early = explained(world, "train", is_now=True).causes[0].helps[0]
        world.pass_time(minutes=31)
        late = explained(world, "train", is_now=True).causes[0].helps[0]

    assert [text.split(":")[0] for text in (early, late)] == [
        "wait",
        "see that the lifecycle service runs",
    ]


@pytest.mark.parametrize(
    ("command", "told"),
    [("ReserveNode", "wait until it has answered"), ("RebootNode", "wait until it has rebooted")],
)
def test_the_lifecycle_service_is_named_if_it_does_not_go_on_after_a_machine_has_answered(
    world: WorldHarness, command: str, told: str
) -> None:
    # given an idle Node that was cordoned for a command while its machine was away
    world.given_data_center()
    world.apply("train", 1)
    content = {"reservedDesired": "control-plane"} if command == "ReserveNode" else {}
    with ExitStack() as away:
        with world.paused("fleet"):
            world.command_node(command, "train", "n1", **content)
            away.enter_context(world.paused("lifecycle"))

        # when the machine answers, and the lifecycle service does not
        early = explained(world, "train", is_now=True).causes[0].helps
        world.pass_time(minutes=1)
        late = explained(world, "train", is_now=True).causes[0].helps

    # then that service is named once it is late, and nothing is missing when it is at work again
    assert [text.split(":")[0] for text in (*early, *late)] == [
        told,
        "see that the lifecycle service runs",
    ]
    assert titles(explained(world, "train", is_now=True)) == []


def test_no_service_is_named_while_a_machine_has_yet_to_answer_a_command(
    world: WorldHarness,
) -> None:
    world.given_data_center()
    world.apply("train", 1)

    with world.paused("fleet"):
        world.command_node("ReserveNode", "train", "n1", reservedDesired="control-plane")
        world.pass_time(minutes=1)
        told = explained(world, "train", is_now=True).causes[0].helps

    assert [text.split(":")[0] for text in told] == ["wait"]


def test_the_lifecycle_service_is_named_if_a_reservation_waits_for_work_that_may_have_ended(
    world: WorldHarness,
) -> None:
    # given a Node of the control plane that is to be reserved for its organisation after its work
    world.given_data_center(machines=1)
    world.apply("train", 1)
    world.command_node("ReserveNode", "train", "n1", reservedDesired="control-plane")
    world.run_pod("n1", tolerations=[{"operator": "Exists"}])
    world.command_node("ReserveNode", "train", "n1", reservedDesired=ORG)

    # when the work ends while the service that says so is away
    with world.paused("lifecycle"):
        world.stop_pod("n1")
        world.pass_time(minutes=1)
        told = explained(world, "train", is_now=True).causes[-1].helps

    assert list(map(world.with_machine_numbers, told)) == [
        "end what runs on n1: it is then reserved for the organisation again; if nothing runs there"
        " any more, see that the lifecycle service runs"
    ]
    assert titles(explained(world, "train", is_now=True)) == []
