"""The agent while a right is not granted, or taken away in the middle of its work."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import pytest

from kube.audit import AuditLog
from kube.node_pools import joined, takes_up, works
from nodepool.contract.commands import DrainNode
from testbed.agent import ACCOUNT, USER, Agent, agent_at_work
from testbed.cluster import WITHIN_S, Cluster, wait_until
from testbed.kubelets import Kubelets
from testbed.plane import CLUSTER, ORG, Plane

MANY = 30
"""The lines of a log that would be too many for one thing that cannot be done for a while."""
GUARDED = """\
apiVersion: v1
kind: Pod
metadata:
  name: {name}
  labels: {{app: {name}, qos.coreweave.com/graceful-interruptible: "true"}}
spec: {{nodeName: {node}, containers: [{{name: only, image: none}}]}}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {{name: {name}}}
spec: {{maxUnavailable: 0, selector: {{matchLabels: {{app: {name}}}}}}}
"""
Rules: TypeAlias = Sequence[Mapping[str, Sequence[str]]]
"""The rules of a role, as Kubernetes has them."""
PODS = ("pods", "pods/eviction")
KIND = ("customresourcedefinitions",)
READ = {"pods": PODS, "customresourcedefinitions/nodepools.compute.coreweave.com": KIND}
"""What the agent reads, by the resources without whose rights the agent may not read it."""
ROLE = f"clusterrole/{ACCOUNT}"


@pytest.fixture
def rights(cluster: Cluster, account: Path) -> Iterator[Rules]:
    """The rules of the role of the agent, which the role has again after the test.

    The policies of the cluster know the agent by the name of its account, so a test takes rights
    from this account, instead of having another account with less rights.
    """
    assert account.exists(), "the role is declared with the account"
    rules: Rules = json.loads(cluster.kubectl("get", ROLE, "-o", "json"))["rules"]
    yield rules
    set_rights(cluster, rules)


def set_rights(cluster: Cluster, rules: Rules, without: Collection[str] = ()) -> None:
    """Gives the account all rights but those to some resources; the API server heeds it then."""
    left = [
        {**rule, "resources": kept}
        for rule in rules
        if (kept := [each for each in rule["resources"] if each not in without])
    ]
    patch = [{"op": "replace", "path": "/rules", "value": left}]
    cluster.kubectl("patch", ROLE, "--type=json", "-p", json.dumps(patch))
    wanted = {what: set(of) != set(without) for what, of in READ.items()}
    wait_until(
        "the API server heeds the role",
        lambda: {what: may_get(cluster, what) for what in wanted} == wanted,
        WITHIN_S,
    )


def may_get(cluster: Cluster, what: str) -> bool:
    """Whether the account may read objects of a kind, or one object of it."""
    return cluster.run("auth", "can-i", "get", what, f"--as={USER}").returncode == 0


def test_without_a_right_it_says_so_and_goes_on_with_the_rest_and_takes_it_up_once_it_has_it(
    cluster: Cluster, account: Path, rights: Rules, plane: Plane, tmp_path: Path
) -> None:
    # given an account that may do nothing with Pods
    set_rights(cluster, rights, without=PODS)
    with Agent(tmp_path, account, plane.url) as agent:
        wait_until("it says so", lambda: "cannot watch pods" in agent.obstacle(), WITHIN_S)

        # then NodePools are taken care of all the same, and the log is not full of it
        works(cluster, "rights-forbidden")
        said = [line for line in agent.lines("cannot watch") if line["resource"] == "pods"]
        assert 1 <= len(said) < 10

        # when it gets the right
        set_rights(cluster, rights)

        # then it is ready by itself
        agent.wait_until_ready()


def test_a_drain_stops_where_the_right_to_evict_goes_and_goes_on_once_it_is_back(
    cluster: Cluster,
    plane: Plane,
    kubelets: Kubelets,
    account: Path,
    rights: Rules,
    tmp_path: Path,
) -> None:
    pool, pod = "rights-drained", "rights-guarded"
    with agent_at_work(tmp_path, account, plane.url) as agent:
        # given a Node that is being drained of a Pod that a budget protects
        takes_up(cluster, plane, pool, 1)
        plane.wait(pool)
        (node,) = plane.nodes(pool)
        # Before that, no Pod is tolerated there.
        joined(cluster, node)
        cluster.kubectl("apply", "-f", "-", given=GUARDED.format(name=pod, node=node))
        wait_until("its budget is known", lambda: is_guarded(cluster, pod), WITHIN_S)
        audit = AuditLog(cluster.folder)
        drain = DrainNode(org=ORG, cluster=CLUSTER, pool=pool, node=node)
        plane.do(lambda client: client.commands.send(drain))
        wait_until("its eviction is refused", lambda: 429 in evictions(audit), WITHIN_S)

        # when the right to do anything with Pods goes, and then the budget
        set_rights(cluster, rights, without=PODS)
        wait_until("it may not evict", lambda: 403 in evictions(audit), WITHIN_S)
        cluster.kubectl("delete", "poddisruptionbudget", pod)

        # then it says what it may not do, and goes on with all else
        wait_until("it says so", lambda: "cannot create resource" in agent.obstacle(), WITHIN_S)
        works(cluster, "rights-besides")
        assert cluster.run("get", "pod", pod).returncode == 0
        assert len(agent.lines("not done")) < MANY

        # when it may again
        set_rights(cluster, rights)

        # then the Pod is evicted, and the agent is ready
        cluster.kubectl("wait", f"pod/{pod}", "--for=delete", "--timeout=60s")
        agent.wait_until_ready()
        cluster.kubectl("delete", "nodepool", pool, "--timeout=60s")


def test_without_the_right_to_read_the_kind_a_deletion_waits_and_readiness_says_why(
    cluster: Cluster, plane: Plane, account: Path, rights: Rules, tmp_path: Path
) -> None:
    pool = "rights-kind"
    with agent_at_work(tmp_path, account, plane.url) as agent:
        # given a NodePool that is deleted, by a rule that needs to know whether its kind is
        takes_up(cluster, plane, pool, 0)
        set_rights(cluster, rights, without=KIND)
        cluster.kubectl("delete", "nodepool", pool, "--wait=false")

        # then it waits, and says for what
        wait_until("it says so", lambda: "customresourcedef" in agent.obstacle(), WITHIN_S)
        assert plane.target(pool) == 0

        # and is done once that is granted
        set_rights(cluster, rights)
        cluster.kubectl("wait", f"nodepool/{pool}", "--for=delete", "--timeout=50s")
        agent.wait_until_ready()
        assert plane.pool(pool) is None


def evictions(audit: AuditLog) -> list[int]:
    """The status of each request of the account to evict a Pod."""
    return [each.code for each in audit.requests(USER) if each.resource == "pods/eviction"]


def is_guarded(cluster: Cluster, name: str) -> bool:
    """Whether the controller of budgets has counted the Pod."""
    found = json.loads(cluster.kubectl("get", "poddisruptionbudget", name, "-o", "json"))
    return bool(found.get("status", {}).get("currentHealthy") == 1)
