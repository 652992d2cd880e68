"""What the API server refuses for ever, and what users see of it."""

import pytest

from kube.agent import Agent
from kube.cluster import wait_until
from kube.frozen import WHY, frozen
from kube.workloads import WITHIN_S, Told, Workloads

POOL = "refused"
RETRIES = 5


@pytest.fixture
def node(workloads: Workloads) -> str:
    """The Node of the NodePool."""
    (name,) = workloads.nodes(POOL, 1)
    return name


def test_a_refused_change_of_a_node_is_told_once_at_its_nodepool(
    workloads: Workloads, agent: Agent, node: str
) -> None:
    cluster = workloads.cluster
    before = refused(agent)
    with frozen(cluster, "", "v1", "nodes", node):
        # given a Node that is to get a label, which the API server refuses
        labels = '{"spec": {"nodeLabels": {"team": "research"}}}'
        cluster.kubectl("patch", "nodepool", POOL, "--type=merge", "-p", labels)

        # when that was tried again and again
        wait_until("it is tried", lambda: refused(agent) >= before + RETRIES, WITHIN_S)

        # then its NodePool says once which Node it is, what was to be changed, and why it was not
        by = f"ValidatingAdmissionPolicy 'freezes-{node}' with binding 'freezes-{node}'"
        why = f'nodes "{node}" is forbidden: {by} denied request: {WHY}'
        fields = "metadata.annotations, metadata.labels"
        expected = Told("UpdateRefused", f"Node {node} cannot be updated ({fields}): {why}")
        assert workloads.warnings("NodePool", POOL) == [expected]

    # and it is changed once it may be
    wait_until("it has it", lambda: label(workloads, node) == "research", WITHIN_S)


def test_a_refused_status_of_a_nodepool_is_told_there(
    workloads: Workloads, agent: Agent, node: str
) -> None:
    cluster, before = workloads.cluster, refused(agent)
    status = ("compute.coreweave.com", "v1alpha1", "nodepools/status", POOL)
    told = workloads.warnings("NodePool", POOL)
    with frozen(cluster, *status):
        cluster.kubectl("patch", "nodepool", POOL, "--type=merge", "-p", WITHOUT_NODES)
        wait_until("it is tried", lambda: refused(agent) >= before + RETRIES, WITHIN_S)

        new = [each for each in workloads.warnings("NodePool", POOL) if each not in told]

    assert {each.reason for each in new} == {"UpdateRefused"}
    assert new[0].message.startswith(f"NodePool {POOL} cannot be updated (status.")
    assert new[0].message.endswith(f" denied request: {WHY}")
    assert len(new) == len({each.message for each in new})
    wait_until("it is told", lambda: workloads.found(POOL) == [], WITHIN_S)


WITHOUT_NODES = '{"spec": {"targetNodes": 0}}'


def refused(agent: Agent) -> float:
    """How many actions the API server has refused."""
    return agent.metric("nodepool_agent_actions_total", result="refused")


def label(workloads: Workloads, node: str) -> str:
    """The label of a Node that is asked for."""
    found = workloads.node(node)
    return "" if found is None else str(found["metadata"]["labels"].get("team", ""))
