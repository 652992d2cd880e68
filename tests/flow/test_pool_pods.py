"""Pods of a NodePool wait for a Node that can take them, run on it, and end."""

import pytest

from lifecycle.decide import service as lifecycle_service
from lifecycle.options import Options
from nodepool.contract.events import NodeObserved, PodChanged
from support.constants import PREFER_IDLE
from support.harness import Harness
from support.services import services
from support.world_harness import WorldHarness

CPU = "cd-gp-i64-erapids"
LOCK = {"key": "sunk.coreweave.com/lock", "operator": "Exists"}
TEAM = {"key": "team", "value": "red", "effect": "NoSchedule"}


def running(harness: Harness, node: str) -> list[str]:
    """The Pods that make a Node active, as its condition names them."""
    conditions = {c["type"]: c for c in harness.node(node)["status"]["conditions"]}
    message = conditions["CWActive"]["message"]
    return sorted(message.removeprefix("running: ").split(", "))


def pod_messages(world: WorldHarness, pool: str) -> list[str]:
    """Why the Pods of a NodePool end, in words, as far as was recorded."""
    events = (envelope.data for envelope in world.envelopes_of(pool))
    return [event.message for event in events if isinstance(event, PodChanged)]


def test_a_pod_waits_until_a_node_joins_and_runs_on_it(harness: Harness) -> None:
    harness.given_data_center()
    harness.apply("train", 0)

    created = harness.create_pod("train", "worker", gpus=8)
    before = harness.pod_changes("train")
    harness.scale("train", 1)

    assert harness.outcomes(created) == ["created"]
    assert before == ["worker Pending"]
    assert harness.pod_changes("train") == ["worker Pending", "worker Running n1"]
    assert running(harness, "n1") == ["worker"]


def test_a_node_is_observed_once_after_all_pods_that_are_placed_together(
    world: WorldHarness,
) -> None:
    world.given_data_center()
    world.apply("train", 0)
    for name in ("a", "b", "c"):
        world.create_pod("train", name)

    world.scale("train", 1)

    observed = [e.data for e in world.envelopes() if isinstance(e.data, NodeObserved)]
    assert [[pod.name for pod in event.pods] for event in observed] == [["a", "b", "c"]]


def test_pods_fill_the_nodes_in_the_order_of_their_names(harness: Harness) -> None:
    harness.given_data_center()
    harness.apply("train", 2)

    for name, gpus in (("a", 6), ("b", 4), ("c", 2), ("d", 4), ("e", 1)):
        harness.create_pod("train", name, gpus=gpus)

    assert running(harness, "n1") == ["a", "c"]
    assert running(harness, "n2") == ["b", "d"]
    assert harness.pod_changes("train")[-1] == "e Pending"


def test_a_pod_that_waits_runs_when_another_ends(harness: Harness) -> None:
    harness.given_data_center()
    harness.apply("train", 1)
    harness.create_pod("train", "first", gpus=8)
    harness.create_pod("train", "second", gpus=8)
    harness.start_recording()

    harness.stop_pod("n1", "first")

    assert harness.pod_changes("train") == ["first Gone n1 Completed", "second Running n1"]
    assert running(harness, "n1") == ["second"]


def test_each_of_the_two_names_of_a_gpu_is_counted_for_itself(world: WorldHarness) -> None:
    world.given_data_center()
    world.apply("train", 1)

    world.create_pod("train", "plain", gpus=8)
    world.create_pod("train", "slurm", accelerators=8)
    world.create_pod("train", "more", accelerators=1)

    assert running(world, "n1") == ["plain", "slurm"]


def test_a_deleted_pod_ends_after_its_grace_period(world: WorldHarness) -> None:
    world.given_data_center()
    world.apply("train", 1)
    world.create_pod("train", graceS=60)
    world.create_pod("train", "pending", gpus=8)
    world.create_pod("train", "waiting", gpus=8)
    world.start_recording()

    world.delete_pod("train")
    world.delete_pod("train", "waiting")
    world.pass_time(seconds=59)
    before = world.pod_changes("train")
    world.pass_time(seconds=1)

    assert before == ["job Terminating n1 Deleted", "waiting Gone Deleted"]
    assert world.pod_changes("train")[2:] == ["job Gone n1 Deleted"]


def test_a_pod_that_is_deleted_without_a_grace_period_is_gone_at_once(harness: Harness) -> None:
    harness.given_data_center()
    harness.apply("train", 1)
    harness.create_pod("train", graceS=600)
    harness.delete_pod("train")
    harness.start_recording()

    outcome = harness.delete_pod("train", graceS=0)
    again = harness.create_pod("train")

    assert harness.outcomes(outcome) == ["deleted"]
    assert harness.outcomes(again) == ["created"]
    assert harness.pod_changes("train") == ["job Gone n1 Deleted", "job Pending", "job Running n1"]


def test_a_longer_grace_period_does_not_lengthen_the_one_that_runs(world: WorldHarness) -> None:
    world.given_data_center()
    world.apply("train", 1)
    world.create_pod("train", graceS=60)
    world.delete_pod("train")
    world.start_recording()

    longer = world.delete_pod("train", graceS=600)
    shorter = world.delete_pod("train", graceS=5)
    world.pass_time(seconds=5)

    assert world.outcomes(longer) == ["unchanged"]
    assert world.outcomes(shorter) == ["deleted"]
    assert world.pod_changes("train") == ["job Terminating n1 Deleted", "job Gone n1 Deleted"]


def test_pods_are_evicted_by_a_preemption_and_wait_no_more(world: WorldHarness) -> None:
    world.given_data_center(machines=1)
    world.apply("spot", 1, computeClass="spot")
    world.create_pod("spot", "quick", interruption="interruptable")
    world.create_pod("spot", "slow", graceS=30)
    world.start_recording()

    world.preempt("spot", "n1")
    world.pass_time(minutes=2)
    begun = world.pod_changes("spot")
    world.pass_time(seconds=30)

    assert begun == ["quick Gone n1 Evicted", "slow Terminating n1 Evicted"]
    assert world.pod_changes("spot")[2:] == ["slow Gone n1 Evicted"]


def test_a_grace_period_is_cut_where_the_node_is_deleted(world: WorldHarness) -> None:
    world.given_data_center(machines=1)
    world.apply("spot", 1, computeClass="spot")
    world.create_pod("spot", graceS=3_600)
    world.start_recording()

    world.preempt("spot", "n1")
    world.pass_time(minutes=7)

    assert world.pod_changes("spot") == ["job Terminating n1 Evicted", "job Gone n1 Evicted"]


def test_a_pod_on_a_node_that_hangs_is_gone_with_the_node(world: WorldHarness) -> None:
    world.given_data_center()
    world.apply("train", 1, lifecycle=PREFER_IDLE)
    world.create_pod("train")
    world.break_machines("n1", fault="hang")
    world.start_recording()

    world.create_pod("train", "late")
    world.scale("train", 0)
    world.pass_time(minutes=31)

    assert world.pod_changes("train") == ["late Pending", "job Gone n1 NodeDeleted"]


def test_a_pod_is_gone_as_soon_as_its_node_is_rebooted(world: WorldHarness) -> None:
    world.given_data_center(machines=1, boot_s=60)
    world.apply("train", 1)
    world.pass_time(minutes=1)
    world.create_pod("train", gpus=1, graceS=3_600)
    world.create_pod("train", "next", gpus=8)
    world.start_recording()

    world.command_node("RebootNode", "train", "n1", force=True)
    rebooting = world.pod_changes("train")
    world.pass_time(minutes=1)

    assert rebooting == ["job Gone n1 Evicted"]
    assert [why for why in pod_messages(world, "train") if why] == ["its Node is rebooted"]
    assert world.pod_changes("train")[1:] == ["next Running n1"]


def test_a_pod_is_placed_on_no_node_that_is_verified(world: WorldHarness) -> None:
    world.given_cluster()
    world.given_quota(1)
    world.given_machines(1, verifySeconds=60)
    world.apply("train", 1)
    world.start_recording()

    world.create_pod("train", tolerations=[{"operator": "Exists"}])
    verified = world.pod_changes("train")
    world.pass_time(minutes=1)

    assert verified == ["job Pending"]
    assert world.pod_changes("train") == ["job Pending", "job Running n1"]


def test_a_pod_tolerates_that_nodes_are_reserved_for_its_organisation() -> None:
    world = WorldHarness(
        *(each for each in services() if each.name != "lifecycle"),
        lifecycle_service(Options(reserved_taint=True)),
    )
    world.given_data_center(machines=1)
    world.apply("train", 0, autoscaling=True, minNodes=0, maxNodes=2)

    world.create_pod("train")
    world.pass_time(minutes=1)
    own = world.pod_changes("train")
    world.command_node("ReserveNode", "train", "n1", reservedDesired="control-plane")
    world.delete_pod("train", graceS=0)
    world.pass_time(minutes=1)
    world.create_pod("train", "late")

    assert own == ["job Pending", "job Running n1"]
    assert world.pod_changes("train")[-1] == "late Pending"


def test_a_pod_is_placed_on_no_node_that_is_cordoned(world: WorldHarness) -> None:
    world.given_data_center()
    world.apply("train", 1, lifecycle=PREFER_IDLE)
    world.create_pod("train", "first")
    world.scale("train", 0)
    world.start_recording()

    world.create_pod("train", "second")
    cordoned = world.pod_changes("train")
    world.scale("train", 1)

    assert cordoned == ["second Pending"]
    assert world.pod_changes("train") == ["second Pending", "second Running n1"]


def test_a_pod_waits_while_it_does_not_tolerate_the_taints(harness: Harness) -> None:
    harness.given_data_center()
    harness.apply("train", 1, nodeTaints=[TEAM])

    harness.create_pod("train", "tolerant", tolerations=[TEAM])
    harness.create_pod("train", "other", tolerations=[LOCK])
    tainted = harness.pod_changes("train")
    harness.apply("train", 1, nodeTaints=[])

    assert tainted == ["tolerant Pending", "tolerant Running n1", "other Pending"]
    assert harness.pod_changes("train")[3:] == ["other Running n1"]


def test_taints_that_are_too_large_for_each_node_keep_pods_away_too(world: WorldHarness) -> None:
    world.given_data_center()
    annotations = {"note": "x" * 5_000}
    world.apply("train", 1, nodeTaints=[TEAM], nodeAnnotations=annotations)

    world.create_pod("train", "other")
    world.create_pod("train", "tolerant", tolerations=[TEAM])

    assert world.pod_changes("train") == [
        "other Pending",
        "tolerant Pending",
        "tolerant Running n1",
    ]


def test_a_pod_without_gpus_runs_on_a_cpu_node(harness: Harness) -> None:
    harness.given_cluster()
    harness.given_machines(1, CPU)
    harness.given_quota(9, CPU)
    harness.apply("web", 1, CPU)

    harness.create_pod("web")

    assert harness.pod_changes("web") == ["job Pending", "job Running n1"]


def test_the_pods_of_a_node_pool_that_is_deleted_are_gone(harness: Harness) -> None:
    harness.given_data_center()
    harness.apply("train", 1)
    harness.create_pod("train", "runs", gpus=8, interruption="interruptable")
    harness.create_pod("train", "waits", gpus=8)
    harness.start_recording()

    harness.delete("train")
    late = harness.create_pod("train", "late")

    assert harness.pod_changes("train") == [
        "runs Gone n1 Evicted",
        "waits Gone NodePoolDeleted",
    ]
    assert harness.outcomes(late) == ["NotFound metadata.name: NodePool train does not exist"]


def test_a_node_takes_as_many_pods_as_kubernetes_allows(world: WorldHarness) -> None:
    world.given_data_center()
    world.apply("train", 1)

    with world.sent_together():
        for number in range(111):
            world.create_pod("train", f"p{number:03}")

    changes = world.pod_changes("train")
    assert sum(" Running " in change for change in changes) == 110
    assert "p110 Running n1" not in changes


@pytest.mark.parametrize(
    ("fields", "refusal"),
    [
        ({"gpus": 9}, "pod.gpus: a Node of type gd-8xh100ib-i128 has 8, and never 9"),
        (
            {"accelerators": 9},
            "pod.accelerators: a Node of type gd-8xh100ib-i128 has 8, and never 9",
        ),
        ({"daemonSet": True}, "pod.daemonSet: must be false; RunPod starts such a Pod on its Node"),
        (
            {"verification": True},
            "pod.verification: must be false; RunPod starts such a Pod on its Node",
        ),
        ({"graceS": 86_401}, "pod.graceS: input should be less than or equal to 86400"),
        ({"graceS": 31_536_000}, "pod.graceS: input should be less than or equal to 86400"),
        ({"gpus": -1}, "pod.gpus: input should be greater than or equal to 0"),
        (
            {"tolerations": [{"operator": "Equal", "value": "x"}]},
            "pod.tolerations[0].key: is empty, which only the operator Exists allows",
        ),
        (
            {"tolerations": [{"key": "a", "operator": "Exists", "value": "x"}]},
            "pod.tolerations[0].value: must be empty with the operator Exists",
        ),
    ],
)
def test_a_pod_that_can_never_run_is_refused(
    world: WorldHarness, fields: dict[str, object], refusal: str
) -> None:
    world.given_data_center()
    world.apply("train", 1)

    command = world.create_pod("train", "job", **fields)

    assert world.outcomes(command) == [f"Invalid {refusal}"]
    assert world.pod_changes("train") == []


def test_a_name_is_in_use_until_its_pod_is_gone(harness: Harness) -> None:
    harness.given_data_center()
    harness.apply("train", 1)
    harness.create_pod("train")

    again = harness.create_pod("train")
    bound = harness.send("RunPod", harness.machine_path("n1"), {"pod": {"name": "job"}})
    unknown = harness.delete_pod("train", "other")

    assert harness.outcomes(again) == [
        "Conflict pod.name: Pod job exists already in NodePool train"
    ]
    assert harness.outcomes(bound) == ["Invalid pod.name: job runs there already"]
    assert harness.outcomes(unknown) == ["NotFound name: no Pod other exists in NodePool train"]


def test_a_pod_bound_to_a_node_needs_free_gpus_there(world: WorldHarness) -> None:
    world.given_data_center()
    world.apply("train", 1)
    world.create_pod("train", gpus=6)

    command = world.send("RunPod", world.machine_path("n1"), {"pod": {"name": "bound", "gpus": 3}})

    assert world.outcomes(command) == ["Invalid pod.gpus: the Node has 2 of its 8 free, not 3"]


def test_pods_survive_a_restart_of_the_fleet(world: WorldHarness) -> None:
    world.given_data_center()
    world.apply("train", 1)
    world.create_pod("train", "runs", gpus=8, graceS=60)
    world.create_pod("train", "waits", gpus=8)
    world.delete_pod("train", "runs")
    world.start_recording()

    world.restart("fleet")
    world.pass_time(seconds=60)

    assert world.pod_changes("train") == ["runs Gone n1 Deleted", "waits Running n1"]
