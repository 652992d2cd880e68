"""NodePools that follow the Pods which the scheduler of a real cluster cannot place.

That idle Nodes are given back takes ten minutes: `flow/test_kubernetes_autoscaling.py` shows it.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import pytest

from kube.workloads import Workloads
from nodepool.client import Client
from nodepool.contract.catalog import INSTANCE_TYPES
from nodepool.contract.decode import decode
from nodepool.contract.events import PodsWaitingReported
from nodepool.contract.messages import Envelope
from nodepool.contract.pods import WaitingPods
from nodepool.nats.log import api
from nodepool.nats.log.streams import STREAM
from nodepool.nats.wire.connection import connect
from testbed.agent import Agent
from testbed.cluster import WITHIN_S, Document, wait_until
from testbed.plane import A100, CPU, ORG, node_pool

FROM_ZERO: Mapping[str, Any] = {"autoscaling": True, "minNodes": 0}

LIMITED: Mapping[str, Any] = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
"""The container of a Pod that asks for one GPU."""


@pytest.fixture
def deployments(workloads: Workloads) -> Iterator[list[str]]:
    """The names of Deployments that are deleted after the test."""
    names: list[str] = []
    yield names
    if names:
        workloads.cluster.kubectl("delete", "deployment", *names, "--ignore-not-found")


def deploy(
    workloads: Workloads, name: str, replicas: int, requests: Mapping[str, str], **spec: object
) -> None:
    """Creates a Deployment as a user does; each of its Pods asks for this."""
    container = {"name": "only", "image": "none", "resources": {"requests": dict(requests)}}
    if "nvidia.com/gpu" in requests:
        container["resources"] = {"limits": dict(requests)}
    labels = {"app": name}
    workloads.apply(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {"containers": [container], "terminationGracePeriodSeconds": 1, **spec},
                },
            },
        }
    )


def gpus(count: int) -> Mapping[str, str]:
    """What a Pod with so many GPUs asks for."""
    return {"nvidia.com/gpu": str(count)}


def wait_until_all_run(workloads: Workloads, name: str) -> None:
    """Returns once all Pods of a Deployment run."""
    done = ("rollout", "status", f"deployment/{name}", f"--timeout={2 * WITHIN_S:.0f}s")
    workloads.cluster.kubectl(*done)


def wait_until_at_target(workloads: Workloads, pool: str) -> None:
    """Returns once a NodePool has what it wants."""
    limit = f"--timeout={WITHIN_S:.0f}s"
    workloads.cluster.kubectl("wait", "nodepool", pool, "--for=condition=AtTarget", limit)


def target(workloads: Workloads, pool: str) -> int:
    """The target of a NodePool in the cluster."""
    found: Document = json.loads(workloads.cluster.kubectl("get", "nodepool", pool, "-o", "json"))
    return int(found["spec"]["targetNodes"])


def reasons(workloads: Workloads, pool: str) -> Sequence[str]:
    """Why the autoscaler has changed the target of a NodePool, in the order of the log."""

    async def work(client: Client) -> Sequence[str]:
        async with aclosing(client.events.read(pool=pool)) as events:
            return [each.message async for each in events if each.reason == "NodePoolAutoscaled"]

    return workloads.plane.do(work)


def waiting(workloads: Workloads, pool: str) -> Sequence[WaitingPods] | None:
    """What the agent has said last of the Pods that wait for a NodePool; None before it has."""

    async def work(client: Client) -> Sequence[WaitingPods] | None:
        connection = await connect(client.session.url, "test")
        try:
            subject = f"np.evt.agent.{ORG}.{client.cluster}.{pool}.PodsWaitingReported"
            entry = await api.leaders_message(connection, STREAM, subject)
        finally:
            await connection.close()
        if entry is None:
            return None
        envelope = decode(PodsWaitingReported, subject, entry.content, {}, entry.position)
        assert isinstance(envelope, Envelope)
        return envelope.data.waiting

    return workloads.plane.do(work)


def wait_until_nothing_waits(workloads: Workloads, pool: str) -> None:
    """Returns once the agent has said that no Pod waits for a NodePool."""
    wait_until("nothing waits", lambda: waiting(workloads, pool) == (), WITHIN_S)


# Up.


def test_a_pool_grows_until_all_pods_run_and_no_further(
    workloads: Workloads, deployments: list[str]
) -> None:
    # given a NodePool without Nodes
    workloads.pool("scale-up", 0, A100, **FROM_ZERO, maxNodes=3, nodeLabels={"team": "up"})
    wait_until_at_target(workloads, "scale-up")

    # when six Pods come that fill three Nodes, and one that is for another team
    deployments.append("trains")
    workloads.create("of-others", nodeSelector={"team": "others"}, container=LIMITED)
    deploy(workloads, "trains", 6, gpus(4), nodeSelector={"team": "up"})

    # then it has three Nodes, and they run there
    wait_until_all_run(workloads, "trains")
    wait_until_nothing_waits(workloads, "scale-up")
    nodes = workloads.found("scale-up")
    assert (target(workloads, "scale-up"), len(nodes)) == (3, 3)
    assert workloads.is_unschedulable("of-others")
    told = reasons(workloads, "scale-up")
    assert told[-1].startswith("targetNodes from")
    assert told[-1].split(":")[0].endswith("to 3, which is maxNodes")

    # and when all of them end, its Nodes stay for as long as new ones may come
    workloads.cluster.kubectl("scale", "deployment", "trains", "--replicas=0")
    for node in nodes:
        workloads.wait_for_condition(node, "CWActive", "False: .*")
    assert (reasons(workloads, "scale-up"), workloads.found("scale-up")) == (told, nodes)
    assert waiting(workloads, "scale-up") == ()


def test_many_pods_at_once_get_as_many_nodes_as_they_fill(
    workloads: Workloads, deployments: list[str]
) -> None:
    # given a NodePool that may have more Nodes than will be needed
    workloads.pool("scale-many", 0, A100, **FROM_ZERO, maxNodes=32, nodeLabels={"team": "many"})
    wait_until_at_target(workloads, "scale-many")

    # when Pods come each of which fills a Node
    deployments.append("many")
    deploy(workloads, "many", 16, gpus(8), nodeSelector={"team": "many"})

    # then it has one for each, although Pods are placed while others wait
    wait_until_all_run(workloads, "many")
    wait_until_nothing_waits(workloads, "scale-many")
    wait_until_at_target(workloads, "scale-many")
    assert target(workloads, "scale-many") == 16
    assert len(workloads.found("scale-many")) == 16


def test_pods_that_two_pools_could_take_ask_each_for_what_it_may_have(
    workloads: Workloads, deployments: list[str]
) -> None:
    # given two NodePools for one team, of which the first may have one Node
    team: Mapping[str, Any] = {**FROM_ZERO, "nodeLabels": {"team": "two"}}
    workloads.pool("scale-a", 0, A100, **team, maxNodes=1)
    workloads.pool("scale-b", 0, A100, **team, maxNodes=3)
    for pool in ("scale-a", "scale-b"):
        wait_until_at_target(workloads, pool)

    # when three Pods come, each of which fills a Node
    deployments.append("both")
    deploy(workloads, "both", 3, gpus(8), nodeSelector={"team": "two"})

    # then there are three Nodes, and no more
    wait_until_all_run(workloads, "both")
    for pool in ("scale-a", "scale-b"):
        wait_until_nothing_waits(workloads, pool)
    assert (target(workloads, "scale-a"), target(workloads, "scale-b")) == (1, 2)


def test_pods_without_gpus_get_nodes_by_their_cpus_and_taints_are_heeded(
    workloads: Workloads, deployments: list[str]
) -> None:
    # given a NodePool of CPUs with a taint
    taint = {"key": "dedicated", "value": "web", "effect": "NoSchedule"}
    more: Mapping[str, Any] = {"nodeTaints": [taint], "nodeLabels": {"team": "cpus"}}
    workloads.pool("scale-cpu", 0, CPU, **FROM_ZERO, maxNodes=4, **more)
    wait_until_at_target(workloads, "scale-cpu")

    # when Pods come of which two fit on a Node, and some that do not tolerate the taint
    deployments.extend(("web", "strangers"))
    half = {"cpu": str(INSTANCE_TYPES[CPU].vcpu // 2)}
    deploy(workloads, "strangers", 3, half, nodeSelector={"team": "cpus"})
    tolerates = {"key": "dedicated", "operator": "Exists"}
    team = {"nodeSelector": {"team": "cpus"}, "tolerations": [tolerates]}
    deploy(workloads, "web", 4, half, **team)

    # then there are Nodes for the former
    wait_until_all_run(workloads, "web")
    wait_until_nothing_waits(workloads, "scale-cpu")
    assert target(workloads, "scale-cpu") == 2


def test_a_manifest_without_a_target_changes_none_however_often_it_is_applied(
    workloads: Workloads, deployments: list[str]
) -> None:
    # given a NodePool whose manifest has bounds and no target
    workloads.manifest(without_target("scale-free"))
    wait_until_at_target(workloads, "scale-free")
    deployments.append("free")
    deploy(workloads, "free", 2, gpus(8), nodeSelector={"team": "free"})
    wait_until_all_run(workloads, "free")

    # when the same manifest is applied again
    again = workloads.apply(without_target("scale-free"))

    # then nothing changes
    assert again == "nodepool.compute.coreweave.com/scale-free unchanged\n"
    assert target(workloads, "scale-free") == 2

    # and when it is applied with a label, the target stays that of the autoscaler
    labelled = workloads.apply(without_target("scale-free", more="yes"))
    nodes: Callable[[], Sequence[Document]] = lambda: workloads.cluster.objects(  # noqa: E731
        "nodes", selector="more=yes"
    )
    wait_until("both Nodes have the label", lambda: len(nodes()) == 2, WITHIN_S)
    assert labelled == "nodepool.compute.coreweave.com/scale-free configured\n"
    assert target(workloads, "scale-free") == workloads.plane.target("scale-free") == 2


def without_target(name: str, **labels: str) -> Document:
    """Return the manifest of a NodePool that leaves its target to the autoscaler."""
    labels = {"team": "free", **labels}
    spec = {"instanceType": A100, **FROM_ZERO, "maxNodes": 3, "nodeLabels": labels}
    return {**node_pool(name), "spec": spec}


# A restart.


def test_an_agent_that_was_away_says_what_has_changed_meanwhile(
    workloads: Workloads, agent: Agent
) -> None:
    # given Pods that wait for a NodePool which may have no Node
    workloads.pool("scale-later", 0, A100, **FROM_ZERO, maxNodes=0, nodeLabels={"team": "later"})
    workloads.create("first", nodeSelector={"team": "later"}, container=LIMITED)
    workloads.create("second", nodeSelector={"team": "later"}, container=LIMITED)
    both = (WaitingPods(gpus=1, count=2),)
    wait_until("both wait", lambda: waiting(workloads, "scale-later") == both, WITHIN_S)

    # when one of them goes while the agent is away
    agent.kill()
    workloads.kill("first")
    agent.start()

    # then it says so
    one = (WaitingPods(gpus=1, count=1),)
    wait_until("one waits", lambda: waiting(workloads, "scale-later") == one, WITHIN_S)
