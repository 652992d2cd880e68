"""What the API server refuses for ever, and what users see of it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kube.agent import USER, Agent
from kube.cluster import Cluster, wait_until
from kube.workloads import WITHIN_S, Told, Workloads

POOL = "refused"
RETRIES = 5
WHY = "platform has frozen this object"


@contextmanager
def frozen(cluster: Cluster, group: str, version: str, resource: str, name: str) -> Iterator[None]:
    """While it lasts, a policy refuses each change that the agent makes of an object.

    resource: its plural, with a subresource where that is meant.
    """
    policy = f"freezes-{name}"
    cluster.kubectl(
        "apply",
        "-f",
        "-",
        given=json.dumps(
            {
                "apiVersion": "v1",
                "kind": "List",
                "items": [
                    _policy(policy, group, version, resource, name),
                    {
                        "apiVersion": "admissionregistration.k8s.io/v1",
                        "kind": "ValidatingAdmissionPolicyBinding",
                        "metadata": {"name": policy},
                        "spec": {"policyName": policy, "validationActions": ["Deny"]},
                    },
                ],
            }
        ),
    )
    try:
        # A policy is heeded some time after it was stored.
        wait_until("it is heeded", lambda: _is_frozen(cluster, resource, name), WITHIN_S)
        yield
    finally:
        for kind in ("validatingadmissionpolicybinding", "validatingadmissionpolicy"):
            cluster.kubectl("delete", kind, policy)


def _policy(policy: str, group: str, version: str, resource: str, name: str) -> object:
    rule = {
        "apiGroups": [group],
        "apiVersions": [version],
        "operations": ["UPDATE"],
        "resources": [resource],
        "resourceNames": [name],
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": policy},
        "spec": {
            "matchConstraints": {"resourceRules": [rule]},
            "matchConditions": [
                {"name": "agent", "expression": f"request.userInfo.username == '{USER}'"}
            ],
            "validations": [{"expression": "false", "message": WHY}],
        },
    }


def _is_frozen(cluster: Cluster, resource: str, name: str) -> bool:
    plural, _, subresource = resource.partition("/")
    what = (plural, name, *([f"--subresource={subresource}"] if subresource else []))
    patch = '{"metadata": {"annotations": {"tried": "yes"}}}'
    as_agent = (f"--as={USER}", "--as-group=system:serviceaccounts", "--dry-run=server")
    return WHY in cluster.run("patch", *what, "--type=merge", "-p", patch, *as_agent).stderr


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
