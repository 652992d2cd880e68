"""Evictions that a PodDisruptionBudget refuses, as the API server gets them from the agent."""

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from agent.host.performing import REFUSED_S
from kube.audit import AuditLog, Request
from kube.node_pools import joined
from nodepool.contract.commands import DrainNode
from testbed.agent import USER, agent_at_work
from testbed.cluster import WITHIN_S, Cluster, wait_until
from testbed.kubelets import Kubelets
from testbed.plane import CLUSTER, H100, ORG, Plane

POOL = "evictions"
PODS = """\
apiVersion: v1
kind: Pod
metadata: {{name: guarded, namespace: guarded, labels: {{app: guarded, {graceful}: "true"}}}}
spec: {{nodeName: {node}, containers: [{{name: only, image: none}}]}}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {{name: guarded, namespace: guarded}}
spec: {{maxUnavailable: 0, selector: {{matchLabels: {{app: guarded}}}}}}
"""
INSIDE = ("-n", "guarded")
GRACEFUL = "qos.coreweave.com/graceful-interruptible"


def test_an_eviction_that_a_budget_refuses_is_tried_again_every_five_seconds_until_it_is_taken(
    cluster: Cluster, account: Path, plane: Plane, tmp_path: Path
) -> None:
    kubelets = Kubelets(plane.url, cluster.folder / "kubelets.kubeconfig", ORG, CLUSTER)
    with agent_at_work(tmp_path, account, plane.url) as agent, kubelets:
        # given a Node with a Pod that a budget protects
        plane.apply(POOL, instanceType=H100, targetNodes=1)
        plane.wait(POOL)
        (node,) = plane.nodes(POOL)
        joined(cluster, node)  # Before that, no Pod is tolerated there.
        cluster.kubectl("create", "namespace", "guarded")
        wait_until("it has its account", lambda: has_account(cluster), WITHIN_S)
        cluster.kubectl("apply", "-f", "-", given=PODS.format(node=node, graceful=GRACEFUL))
        wait_until("its budget is known", lambda: is_guarded(cluster), WITHIN_S)

        # when the Node is drained
        audit = AuditLog(cluster.folder)
        drain = DrainNode(org=ORG, cluster=CLUSTER, pool=POOL, node=node)
        plane.do(lambda client: client.commands.send(drain))

        # then that is refused every five seconds, and said about the Node and the Pod
        wait_until("it is tried three times", lambda: len(evictions(audit)) >= 3, WITHIN_S)
        refused = evictions(audit)
        assert {each.code for each in refused} == {429}
        # The pause begins as the request is sent, a little before the API server has received it.
        pauses = [(two.at - one.at).total_seconds() for one, two in pairwise(refused)]
        assert [each for each in pauses if not REFUSED_S - 1 <= each <= REFUSED_S + 15] == []
        warnings = ("get", "events", "--field-selector", "type=Warning", "-o", "name")
        assert f"event/{node}." in cluster.kubectl(*warnings)
        assert "event/guarded." in cluster.kubectl(*warnings, "-n", "guarded")
        assert agent.obstacle() == ""

        # when the budget allows it
        cluster.kubectl("delete", "poddisruptionbudget", "guarded", *INSIDE)

        # then the Pod is evicted, with one more request
        cluster.kubectl("wait", "pod/guarded", "--for=delete", "--timeout=60s", *INSIDE)
        assert evictions(audit)[-1].code == 201
        plane.do(lambda client: client.nodepools.delete(POOL))
        wait_until("its Node is gone", lambda: node not in names(cluster), WITHIN_S)
        cluster.kubectl("wait", f"nodepool/{POOL}", "--for=delete", "--timeout=60s")
        cluster.kubectl("delete", "namespace", "guarded", "--wait=false")


def evictions(audit: AuditLog) -> Sequence[Request]:
    """Each request of the agent to evict a Pod."""
    return [each for each in audit.requests(USER) if each.resource == "pods/eviction"]


def has_account(cluster: Cluster) -> bool:
    """Whether Pods can be created in the namespace."""
    return cluster.run("get", "serviceaccount", "default", *INSIDE).returncode == 0


def is_guarded(cluster: Cluster) -> bool:
    """Whether the controller of budgets has counted the Pod."""
    budget = json.loads(
        cluster.kubectl("get", "poddisruptionbudget", "guarded", "-o", "json", *INSIDE)
    )
    return bool(budget.get("status", {}).get("currentHealthy") == 1)


def names(cluster: Cluster) -> list[str]:
    """Of all Nodes."""
    return [each["metadata"]["name"] for each in cluster.objects("nodes")]
