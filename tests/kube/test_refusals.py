"""What the API server refuses for ever, and what users see of it."""

import re

import pytest

from kube.frozen import WHY, Reason, frozen
from kube.workloads import Told, Workloads
from testbed.agent import Agent
from testbed.cluster import WITHIN_S, wait_until

RETRIES = 5
LABELS = '{"spec": {"nodeLabels": {"team": "research"}}}'
WITHOUT_NODES = '{"spec": {"targetNodes": 0}}'


@pytest.mark.parametrize("reason", ["Invalid", "Forbidden"])
def test_a_refused_change_of_a_node_is_told_once_at_its_nodepool(
    workloads: Workloads, agent: Agent, reason: Reason
) -> None:
    cluster, pool, before = workloads.cluster, f"refused-{reason.lower()}", refused(agent)
    (node,) = workloads.nodes(pool, 1)
    with frozen(cluster, "", "v1", "nodes", node, reason):
        # given a Node that is to get a label, which the API server refuses
        cluster.kubectl("patch", "nodepool", pool, "--type=merge", "-p", LABELS)

        # when that was tried again and again
        wait_until("it is tried", lambda: refused(agent) >= before + RETRIES, WITHIN_S)

        # then its NodePool says once which Node it is, what was to be changed, and why it was not
        by = f"ValidatingAdmissionPolicy 'freezes-{node}' with binding 'freezes-{node}'"
        why = f'nodes "{node}" is forbidden: {by} denied request: {WHY}'
        fields = "metadata.annotations, metadata.labels"
        expected = Told("UpdateRefused", f"Node {node} cannot be updated ({fields}): {why}")
        assert workloads.warnings("NodePool", pool) == [expected]
        # and the agent is ready all the same, since it has every right that it needs
        assert agent.obstacle() == ""

    # and it is changed once it may be
    wait_until("it has it", lambda: label(workloads, node) == "research", WITHIN_S)


def test_a_refused_status_of_a_nodepool_is_told_there(workloads: Workloads, agent: Agent) -> None:
    cluster, pool = workloads.cluster, "refused-status"
    workloads.nodes(pool, 1)
    status = ("compute.coreweave.com", "v1alpha1", "nodepools/status", pool)
    with frozen(cluster, *status):
        # given a NodePool whose status is to change, which the API server refuses
        before = refused(agent)
        cluster.kubectl("patch", "nodepool", pool, "--type=merge", "-p", WITHOUT_NODES)

        # when that was tried again and again
        wait_until("it is tried", lambda: refused(agent) >= before + RETRIES, WITHIN_S)

        # then it says so once for each set of fields that was to be changed
        told = workloads.warnings("NodePool", pool)
        by = f"ValidatingAdmissionPolicy 'freezes-{pool}' with binding 'freezes-{pool}'"
        why = f'nodepools.compute.coreweave.com "{pool}" is forbidden: {by} denied request: {WHY}'
        what = re.escape(f"NodePool {pool} cannot be updated") + r" \((status\.\w+(, )?)+\): "
        assert {each.reason for each in told} == {"UpdateRefused"}
        assert [
            each.message for each in told if not re.fullmatch(what + re.escape(why), each.message)
        ] == []
        assert len(told) == len(set(told))

    # and it is changed once it may be
    nodes = ("get", "nodepool", pool, "-o", "jsonpath={.status.currentNodes}")
    wait_until("it has it", lambda: cluster.kubectl(*nodes) == "0", WITHIN_S)


def refused(agent: Agent) -> float:
    """How many actions the API server has refused."""
    return agent.metric("nodepool_agent_actions_total", result="refused")


def label(workloads: Workloads, node: str) -> str:
    """The label of a Node that is asked for."""
    found = workloads.node(node)
    return "" if found is None else str(found["metadata"]["labels"].get("team", ""))
