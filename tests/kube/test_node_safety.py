"""What must never cost a Node or a Pod: a read model, a bus or an API server that is away."""

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from kube.workloads import Workloads
from nodepool.client import Client
from nodepool.client.errors import Unreachable
from nodepool.contract.events import CWNodeCordoned, CWNodeDeleted, KubernetesEvent
from nodepool.contract.well_known import MANAGED
from nodepool.nats.log import api
from nodepool.nats.wire.connection import connect
from testbed.agent import Agent, agent_at_work
from testbed.cluster import WITHIN_S, Cluster, wait_until
from testbed.components import API_SERVER
from testbed.paused import pause_process
from testbed.plane import Plane, start_plane

IDLE_ONLY: Mapping[str, Any] = {"lifecycle": {"scaleDownStrategy": "IdleOnly"}}
REPLACING: Mapping[str, Any] = {"lifecycle": {"disableUnhealthyNodeEviction": False}}
HELD = ("example.com/held",)
STILL_S = 8.0
"""For how long nothing is to happen; what is wrong here happened within two seconds."""
STOPPED_S = 12.0
"""Longer than a lease of a Node is valid here, so that each one looks silent."""
AT_ONCE = 6


def uids(cluster: Cluster) -> Mapping[str, str]:
    """The uid of each Node of the cluster, by its name."""
    return {node["metadata"]["name"]: node["metadata"]["uid"] for node in cluster.objects("nodes")}


def stays_so(holds: Mapping[str, str], cluster: Cluster, within_s: float = STILL_S) -> None:
    """Fails where a Node of these goes, or is another one, within this time."""
    with pytest.raises(TimeoutError):
        wait_until(
            "a Node is lost",
            lambda: not holds.items() <= uids(cluster).items(),
            within_s,
        )


def said(plane: Plane, nodes: Sequence[str], *kinds: type[KubernetesEvent]) -> Sequence[str]:
    """The events of these classes that the log has about any of these Nodes."""
    reasons = {kind.reason for kind in kinds}

    async def work(client: Client) -> Sequence[str]:
        async with aclosing(client.events.read()) as events:
            return [
                f"{each.reason} {each.name}"
                async for each in events
                if each.kind == "Node" and each.name in nodes and each.reason in reasons
            ]

    return plane.do(work)


async def lose_nodes(client: Client) -> None:
    """Deletes the bucket of the Nodes, with the marks of those that were deleted."""
    connection = await connect(client.session.url, "test")
    try:
        await api.request(connection, "$JS.API.STREAM.DELETE.KV_nodes")
    finally:
        await connection.close()


def is_known(plane: Plane, node: str) -> bool:
    """Whether the read model has a Node; it has none while there is no bucket."""
    with suppress(Unreachable):
        return plane.node(node) is not None
    return False


def test_a_read_model_that_is_lost_costs_no_node(workloads: Workloads) -> None:
    # given a Node at work
    (node,) = workloads.nodes("safe-model", 1)
    workloads.run("at-work", node)
    before = uids(workloads.cluster)

    # when the bucket of the Nodes is deleted, and built anew from the log
    workloads.plane.do(lose_nodes)

    # then no Node goes, and the Pod runs on
    stays_so(before, workloads.cluster)
    wait_until("it is built anew", lambda: is_known(workloads.plane, node), WITHIN_S)
    assert workloads.phase("at-work") == "Running"
    # and what follows goes on
    workloads.delete("at-work")
    workloads.scale("safe-model", 0)
    workloads.wait_until_gone(node)


def test_a_node_that_comes_back_from_a_backup_goes_as_the_log_says(workloads: Workloads) -> None:
    # given the object of a Node that has left its NodePool since
    (node,) = workloads.nodes("safe-backup", 1)
    found = workloads.node(node)
    assert found is not None
    workloads.scale("safe-backup", 0)
    workloads.wait_until_gone(node)

    # when the read model is built anew, without the mark of its deletion, and the object is back
    workloads.plane.do(lose_nodes)
    metadata = {"name": node, "annotations": {MANAGED: found["metadata"]["annotations"][MANAGED]}}
    back = {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
    workloads.cluster.kubectl("create", "-f", "-", given=json.dumps(back))

    # then it goes
    wait_until(f"{node} is gone again", lambda: workloads.node(node) is None, WITHIN_S)


def test_an_agent_at_an_empty_bus_deletes_nothing(
    workloads: Workloads, agent: Agent, account: Path, tmp_path: Path
) -> None:
    # given a Node at work, and its agent away
    (node,) = workloads.nodes("safe-bus", 1)
    workloads.run("at-another", node)
    before = uids(workloads.cluster)
    agent.stop()
    try:
        # when another agent comes, of a bus that knows nothing
        (tmp_path / "plane").mkdir()
        with (
            start_plane(tmp_path / "plane") as empty,
            agent_at_work(tmp_path, account, empty.url),
        ):
            # then nothing goes
            stays_so(before, workloads.cluster)
            assert workloads.phase("at-another") == "Running"
    finally:
        agent.start()
        agent.wait_until_ready()
    stays_so(before, workloads.cluster, within_s=2.0)


def test_an_api_server_that_stands_still_costs_no_node(workloads: Workloads) -> None:
    # given Nodes that would be replaced where they were silent
    nodes = workloads.nodes("safe-server", 3, **REPLACING)
    before = uids(workloads.cluster)

    # when the API server stands still until all of them look silent
    with pause_process(workloads.cluster.parts[API_SERVER].pid):
        threading.Event().wait(STOPPED_S)

    # then none of them is cordoned or goes
    wait_until("it serves again", workloads.cluster.is_ready, 60)
    stays_so(before, workloads.cluster, within_s=15.0)
    assert said(workloads.plane, nodes, CWNodeCordoned, CWNodeDeleted) == []
    assert workloads.found("safe-server") == nodes


@contextmanager
def creating(workloads: Workloads, names: Sequence[str], node: str) -> Iterator[None]:
    """Creates Pods by several clients meanwhile; all of them are there once this ends."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        futures = [pool.submit(workloads.create, name, node) for name in names]
        yield
        for future in futures:
            future.result()


@pytest.mark.parametrize("round", range(3))
def test_no_pod_that_was_bound_around_a_cordon_is_lost(workloads: Workloads, round: int) -> None:
    # given an idle Node, and Pods that are created for it meanwhile
    pool = f"safe-race-{round}"
    (node,) = workloads.nodes(pool, 1, **IDLE_ONLY)
    names = [f"race-{round}-{number}" for number in range(18)]

    # when the NodePool is scaled down to Nodes that are idle
    with creating(workloads, names, node):
        wait_until("one is created", lambda: workloads.pod(names[0]) is not None, WITHIN_S)
        workloads.scale(pool, 0)

    # then either no Pod had a Node, or the Node stays with all that have
    def is_decided() -> bool:
        is_active = workloads.condition(node, "CWActive").startswith("True")
        return is_active or workloads.plane.node(node) is None

    wait_until("it is decided", is_decided, WITHIN_S)
    bound = [name for name in names if has_node(workloads, name)]
    if workloads.plane.node(node) is None:
        assert bound == []
    else:
        assert bound != []
        stays_so({node: uids(workloads.cluster)[node]}, workloads.cluster, within_s=4.0)
        assert [name for name in bound if workloads.pod(name) is None] == []


def has_node(workloads: Workloads, name: str) -> bool:
    """Whether a Pod is bound to a Node."""
    found = workloads.pod(name)
    return found is not None and "nodeName" in found["spec"]


def test_a_pod_that_a_finalizer_keeps_neither_holds_a_node_nor_the_next_stay(
    workloads: Workloads,
) -> None:
    # given a Node with a Pod that its kubelet has ended, and that a finalizer keeps
    (node,) = workloads.nodes("safe-held", 1, **IDLE_ONLY)
    workloads.run("held", node, finalizers=HELD)
    workloads.wait_for_condition(node, "CWActive", "True: .*held")
    now = ("--grace-period=0", "--force", "--wait=false")
    workloads.cluster.kubectl("delete", "pod", "held", *now)

    # when its NodePool is scaled down to Nodes that are idle
    workloads.wait_for_condition(node, "CWActive", "False: .*")
    workloads.scale("safe-held", 0)

    # then the Node goes, although the object of the Pod is still there
    workloads.wait_until_gone(node)
    assert workloads.is_terminating("held")
