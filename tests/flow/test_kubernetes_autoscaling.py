"""A NodePool with `autoscaling: true` in a cluster that an agent connects to Kubernetes."""

import pytest

from nodepool.contract.events import NodePoolAutoscaled, PodsWaitingReported
from nodepool.contract.pods import Pod, WaitingPods
from nodepool.explanation.documents import facts
from nodepool.explanation.sentence import explain
from support.agent_reports import report
from support.audit.auditor import violations
from support.constants import CLUSTER, ORG, ZONE
from support.documents import NodePool
from support.paths import cluster_path
from support.publishing import publish
from support.world_harness import WorldHarness

WORK = Pod(name="default/train-0", gpus=8)
FULL = WaitingPods(gpus=8, count=1)
"""A Pod that fills a Node."""


def given_autoscaled_pool(world: WorldHarness, *, kubernetes: bool = True) -> None:
    """The NodePool `train` of up to 4 Nodes, without any; the recording begins then."""
    world.given_machines(10, boot_s=0)
    world.given_quota(10)
    content = {"zone": ZONE, "kubernetes": kubernetes}
    world.send("RegisterCluster", cluster_path(ORG, CLUSTER), content)
    world.apply("train", 0, autoscaling=True, minNodes=0, maxNodes=4)
    world.start_recording()


def wait(world: WorldHarness, *waiting: WaitingPods, uid: str = "") -> None:
    """The agent reports that these Pods wait for a Node of the NodePool, and no others."""
    metadata = pool(world)["metadata"]
    event = PodsWaitingReported(
        org=ORG,
        cluster=CLUSTER,
        pool="train",
        uid=uid or metadata["uid"],
        generation=metadata["generation"],
        waiting=waiting,
    )
    publish(world.world, event)
    world.run_until_idle()


def pool(world: WorldHarness) -> NodePool:
    """The NodePool `train` of the read model."""
    document = world.node_pool("train")
    assert document is not None
    return document


def target(world: WorldHarness) -> int:
    """Its target."""
    return pool(world)["spec"]["targetNodes"]


def reasons(world: WorldHarness) -> list[str]:
    """Why its target was changed."""
    said = (envelope.data for envelope in world.envelopes_of("train"))
    return [event.message for event in said if isinstance(event, NodePoolAutoscaled)]


def given_two_nodes_at_work(world: WorldHarness) -> None:
    """The NodePool has two Nodes for the Pods that waited, which run on them."""
    given_autoscaled_pool(world)
    wait(world, WaitingPods(gpus=8, count=2))
    world.pass_time(seconds=3)
    for name in ("n1", "n2"):
        report(world, name, WORK)
    wait(world)
    world.start_recording()


def test_a_pool_gets_nodes_for_pods_of_kubernetes_and_gives_them_back(world: WorldHarness) -> None:
    given_autoscaled_pool(world)

    wait(world, WaitingPods(gpus=4, count=5))
    early = target(world)
    world.pass_time(seconds=3)
    grown = target(world)
    for name in ("n1", "n2", "n3"):
        report(world, name, WORK)
    wait(world)
    world.pass_time(minutes=30)
    steady = target(world)
    for name in ("n2", "n3"):
        report(world, name)
    world.pass_time(minutes=9)
    kept = target(world)
    world.pass_time(minutes=2)
    for name in ("n2", "n3"):
        report(world, name)

    assert (early, grown, steady, kept, target(world)) == (0, 3, 3, 3, 1)
    assert reasons(world) == [
        "targetNodes from 0 to 3: 5 Pods wait for 3 Nodes more",
        "targetNodes from 3 to 2: 1 Node has been idle for 10 minutes",
        "targetNodes from 2 to 1: 1 Node has been idle for 10 minutes",
    ]
    assert world.nodes("train") == ["n1"]
    assert violations(world.entries()) == []


def test_explain_says_why_a_pool_has_grown(world: WorldHarness) -> None:
    given_autoscaled_pool(world)
    wait(world, WaitingPods(gpus=8, count=9))
    world.pass_time(seconds=3)

    explanation = explain(facts(pool(world)))
    why = "targetNodes from 0 to 4, which is maxNodes: 9 Pods wait for 4 Nodes more"

    assert f"since the autoscaler changed {why}" in explanation.sentence


def test_a_pool_whose_pods_are_gone_before_its_nodes_come_lets_them_go(world: WorldHarness) -> None:
    given_autoscaled_pool(world)
    wait(world, FULL)
    world.pass_time(seconds=3)
    report(world, "n1")

    wait(world)
    world.pass_time(minutes=11)
    report(world, "n1")

    assert (target(world), world.nodes("train")) == (0, [])


def test_nodes_stay_while_a_pod_waits_and_nothing_flaps(world: WorldHarness) -> None:
    given_two_nodes_at_work(world)
    world.apply("train", 2, autoscaling=True, minNodes=0, maxNodes=2)
    wait(world, FULL)
    report(world, "n2")

    world.pass_time(minutes=60)

    assert (target(world), reasons(world)) == (2, [])


def test_an_agent_that_is_away_neither_adds_nor_removes_a_node(world: WorldHarness) -> None:
    given_two_nodes_at_work(world)
    wait(world, FULL)
    world.pass_time(seconds=3)

    world.pass_time(minutes=60)

    assert (target(world), len(reasons(world))) == (3, 1)
    assert world.nodes("train")[:2] == ["n1", "n2"]


def test_pods_that_share_a_node_with_others_do_not_ask_for_one_more(world: WorldHarness) -> None:
    given_two_nodes_at_work(world)

    report(world, "n1", WORK.model_copy(update={"gpus": 4}))
    report(world, "n1", WORK)
    world.pass_time(minutes=60)

    assert reasons(world) == []


@pytest.mark.parametrize("kubernetes", [True, False])
def test_a_report_is_believed_where_an_agent_connects_the_cluster(
    world: WorldHarness, kubernetes: bool
) -> None:
    given_autoscaled_pool(world, kubernetes=kubernetes)

    wait(world, FULL)
    world.pass_time(seconds=3)

    assert target(world) == int(kubernetes)


def test_a_pool_that_was_made_anew_does_not_inherit_what_was_counted(world: WorldHarness) -> None:
    given_autoscaled_pool(world)
    old = pool(world)["metadata"]["uid"]
    world.delete("train")
    world.apply("train", 0, autoscaling=True, minNodes=0, maxNodes=4)

    wait(world, FULL, uid=old)
    world.pass_time(minutes=1)

    assert target(world) == 0
