"""Each part around the agent frozen, lost or wrong, for a while or in the middle of its work."""

import json
import os
import re
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import pytest

from kube.agent import ACCOUNT, NAMESPACE, Agent, agent_at_work
from kube.audit import AuditLog
from kube.cluster import Cluster, wait_until
from kube.comparing import commands, log_of
from kube.components import API_SERVER, ETCD
from kube.kubelets import Kubelets
from kube.plane import CLUSTER, H100, ORG, Plane
from kube.proxy import Proxy
from nodepool.contract.commands import ApplyNodePool, DrainNode
from nodepool.local.ports import HOST

WITHIN_S = 60.0
RENEWALS = 9
"""So many renewals of a Lease take longer than it lasts."""
MANY = 30
"""The lines of a log that would be too many for one thing that cannot be done for a while."""
POOL = """\
apiVersion: compute.coreweave.com/v1alpha1
kind: NodePool
metadata: {{name: {name}}}
spec: {{instanceType: {type}, targetNodes: {target}}}
"""
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
HOLDER = "jsonpath={.spec.holderIdentity} {.spec.leaseTransitions}"


def apply(cluster: Cluster, name: str, target: int = 0) -> None:
    """Applies a NodePool with kubectl."""
    cluster.kubectl("apply", "-f", "-", given=POOL.format(name=name, type=H100, target=target))


def target_on_bus(plane: Plane, name: str) -> object:
    """The target of a NodePool on the bus; None where there is no such NodePool."""
    found = plane.pool(name)
    spec = found["spec"] if found is not None else None
    return spec["targetNodes"] if isinstance(spec, Mapping) else None


def takes_up(cluster: Cluster, plane: Plane, name: str, target: int) -> None:
    """Shows that a change with kubectl comes to the bus."""
    apply(cluster, name, target)
    wait_until(
        f"the bus has target {target}", lambda: target_on_bus(plane, name) == target, WITHIN_S
    )


@contextmanager
def a_pool(cluster: Cluster, plane: Plane, name: str) -> Iterator[None]:
    """A NodePool without Nodes that both sides have; it is gone after that."""
    takes_up(cluster, plane, name, 0)
    yield
    cluster.kubectl("delete", "nodepool", name, "--timeout=60s")


def sent(plane: Plane, pool: str) -> int:
    """How many wishes for a NodePool were sent: one that was sent again has the same id."""
    first = [same[0] for same in commands(log_of(plane)).values()]
    return sum(isinstance(each, ApplyNodePool) and each.metadata.name == pool for each in first)


def lease(cluster: Cluster) -> tuple[str, str]:
    """Who holds the Lease, and how often it has changed hands."""
    holder, _, transitions = cluster.kubectl(
        "get", "lease", ACCOUNT, "-n", NAMESPACE, "-o", HOLDER
    ).partition(" ")
    return holder, transitions


class Leading:
    """Looks which of two replicas lead; `together` is how often both did."""

    def __init__(self, *agents: Agent) -> None:
        self._agents, self.together = agents, 0

    def __call__(self, agent: Agent) -> bool:
        """Whether this one leads."""
        leading = [each for each in self._agents if each.is_leading()]
        self.together += len(leading) > 1
        return agent in leading


@contextmanager
def stopped(cluster: Cluster, part: str) -> Iterator[None]:
    """A part that hangs meanwhile: its connections stay, and nothing is answered."""
    pid = cluster.parts[part].pid
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.fixture
def networks(cluster: Cluster, plane: Plane) -> Iterator[tuple[Proxy, Proxy]]:
    """The network to the API server, and the one to the bus."""
    with Proxy(cluster.port) as api, Proxy(int(plane.url.rpartition(":")[2])) as bus:
        yield api, bus


@pytest.fixture
def agent(
    cluster: Cluster, account: Path, networks: tuple[Proxy, Proxy], tmp_path: Path
) -> Iterator[Agent]:
    """An agent that reaches both sides by these networks."""
    api, bus = networks
    (token,) = re.findall(r'token: "(\S+)"', account.read_text())
    connection = cluster.connect("agent-by-networks", token, api.port)
    with agent_at_work(tmp_path, connection, f"nats://{HOST}:{bus.port}", name="one") as agent:
        yield agent


def test_an_etcd_that_is_restarted_under_the_api_server_costs_nothing_but_time(
    cluster: Cluster, plane: Plane, agent: Agent
) -> None:
    with a_pool(cluster, plane, "faults-etcd"):
        cluster.kill(ETCD)
        try:
            wait_until("it says so", lambda: agent.obstacle() != "", WITHIN_S)
        finally:
            cluster.start(ETCD)

        wait_until("the API server is ready", cluster.is_ready, WITHIN_S)
        wait_until("it leads", agent.is_leading, WITHIN_S)
        agent.wait_until_ready()
        takes_up(cluster, plane, "faults-etcd", 1)
        assert sent(plane, "faults-etcd") == 2


def test_an_api_server_that_hangs_costs_the_lease_and_nothing_is_done_twice(
    cluster: Cluster, plane: Plane, account: Path, agent: Agent, tmp_path: Path
) -> None:
    # given two replicas, and a change that is just being made
    with (
        Agent(tmp_path, account, plane.url, name="two") as other,
        a_pool(cluster, plane, "faults-hung"),
    ):
        other.wait_until_ready()
        leads, (_, before) = Leading(agent, other), lease(cluster)
        apply(cluster, "faults-hung", 1)

        # when the API server hangs for longer than the holder may act without it
        with stopped(cluster, API_SERVER):
            wait_until("it stops", lambda: bool(agent.lines("lost the Lease")), WITHIN_S)
            assert not leads(agent)
            wait_until("it says so", lambda: "no reply" in agent.obstacle(), WITHIN_S)

        # then one of them leads again, and never both
        wait_until("one leads", lambda: leads(agent) or leads(other), WITHIN_S)
        takes_up(cluster, plane, "faults-hung", 2)
        wait_until("both are ready", lambda: not agent.obstacle() + other.obstacle(), WITHIN_S)
        assert [leads(agent), leads(other)].count(True) == 1
        assert leads.together == 0
        holder, after = lease(cluster)
        assert holder != ""
        assert int(after) - int(before) <= 1

        # and each of the three states of the object was sent once at most
        assert sent(plane, "faults-hung") <= 3


def test_a_holder_whose_packets_to_the_api_server_vanish_is_followed_and_stands_by_after_that(
    cluster: Cluster,
    plane: Plane,
    account: Path,
    agent: Agent,
    networks: tuple[Proxy, Proxy],
    tmp_path: Path,
) -> None:
    api, _ = networks
    with (
        Agent(tmp_path, account, plane.url, name="two") as other,
        a_pool(cluster, plane, "faults-frozen"),
    ):
        other.wait_until_ready()
        leads = Leading(agent, other)

        # when its packets vanish
        api.freeze()

        # then it stops before the other one begins, which does the work
        wait_until("the other one leads", lambda: leads(other), WITHIN_S)
        (lost,), (began,) = agent.lines("lost the Lease"), other.lines("leading")
        assert lost["timestamp"] < began["timestamp"]
        takes_up(cluster, plane, "faults-frozen", 1)

        # when what was on its way arrives late
        api.mend()

        # then it changes nothing, and the first one stands by
        wait_until("it is ready", lambda: agent.obstacle() == "", WITHIN_S)
        takes_up(cluster, plane, "faults-frozen", 2)
        assert (leads(agent), leads(other), leads.together) == (False, True, 0)
        assert sent(plane, "faults-frozen") == 3


@pytest.mark.timeout(300)
def test_a_bus_whose_packets_vanish_gets_each_change_once_when_it_is_back(
    cluster: Cluster, plane: Plane, agent: Agent, networks: tuple[Proxy, Proxy]
) -> None:
    _, bus = networks
    with a_pool(cluster, plane, "faults-bus"):
        bus.freeze()
        apply(cluster, "faults-bus", 1)
        wait_until("it says so", lambda: agent.obstacle() != "", WITHIN_S)

        bus.mend()

        # A command whose outcome was lost is sent again after half a minute, by the same id.
        wait_until("it is taken", lambda: target_on_bus(plane, "faults-bus") == 1, 2 * WITHIN_S)
        agent.wait_until_ready()
        assert agent.is_leading(), "the Lease has nothing to do with the bus"
        assert sent(plane, "faults-bus") == 2


@pytest.mark.parametrize("how", ["cut", "freeze"])
def test_with_both_networks_gone_at_once_what_was_changed_on_either_side_is_kept(
    cluster: Cluster, plane: Plane, agent: Agent, networks: tuple[Proxy, Proxy], how: str
) -> None:
    name = f"faults-both-{how}"
    with a_pool(cluster, plane, name):
        # when both are away, and both sides change
        for network in networks:
            network.cut() if how == "cut" else network.freeze()
        labels = json.dumps({"spec": {"nodeLabels": {"team": "research"}}})
        cluster.kubectl("patch", "nodepool", name, "--type=merge", "-p", labels)
        plane.do(lambda client: client.scale(name, 1))
        wait_until("it says so", lambda: agent.obstacle() != "", WITHIN_S)
        for network in networks:
            network.mend()

        # then both sides have both
        wait_until("both agree", lambda: both_have(cluster, plane, name), WITHIN_S)
        wait_until("it is ready", lambda: agent.obstacle() == "", WITHIN_S)


def both_have(cluster: Cluster, plane: Plane, name: str) -> bool:
    """Whether both sides have the label of one and the target of the other."""
    found = json.loads(cluster.kubectl("get", "nodepool", name, "-o", "json"))
    wanted = plane.pool(name)
    specs = (found["spec"], wanted["spec"] if wanted is not None else None)
    return all(
        isinstance(spec, Mapping)
        and (spec["targetNodes"], spec.get("nodeLabels")) == (1, {"team": "research"})
        for spec in specs
    )


@pytest.mark.parametrize("skew", ["+2h", "-2h"])
def test_a_host_whose_clock_is_wrong_by_hours_does_the_work_and_takes_its_turn(
    cluster: Cluster, plane: Plane, kubelets: Kubelets, account: Path, tmp_path: Path, skew: str
) -> None:
    # given a replica on such a host that leads, and one whose clock is right
    library = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)
    if library is None:
        pytest.skip("there is no libfaketime, a package of Debian, to set the clock of a process")
    clock = {
        "LD_PRELOAD": str(library),
        "FAKETIME": skew,
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
    }
    name = f"faults-clock-{'ahead' if skew[0] == '+' else 'behind'}"
    with (
        Agent(tmp_path, account, plane.url, name="wrong", settings=clock) as wrong,
        Agent(tmp_path, account, plane.url, name="right") as right,
    ):
        leads = Leading(wrong, right)
        wrong.wait_until_ready()
        right.wait_until_ready()
        wait_until("one leads", lambda: leads(wrong) or leads(right), WITHIN_S)
        if leads(right):
            right.stop()
            wait_until("the wrong one leads", lambda: leads(wrong), WITHIN_S)
            right.start()
        right.wait_until_ready()
        moments = [line["timestamp"] for line in (*wrong.lines("leading"), *right.lines("started"))]
        assert abs(seconds(moments[0]) - seconds(moments[1])) > 3600, "its clock is wrong"
        before = lease(cluster)

        # when there is work that takes longer than a Lease lasts
        apply(cluster, name, 1)
        wait_until("its Node is there", lambda: has_node(cluster, name), WITHIN_S)
        cluster.kubectl("delete", "nodepool", name, "--timeout=60s")
        versions: set[str] = set()
        wait_until("it is renewed", lambda: renewals(cluster, versions) > RENEWALS, WITHIN_S)

        # then the other one has left the Lease alone, and takes it once that is not renewed
        assert lease(cluster) == before
        wrong.kill()
        wait_until("the other one leads", lambda: leads(right), WITHIN_S)
        assert leads.together == 0


def seconds(timestamp: str) -> float:
    """A moment of a log in seconds."""
    return datetime.fromisoformat(timestamp).timestamp()


def has_node(cluster: Cluster, pool: str) -> bool:
    """Whether a NodePool has a Node in the cluster."""
    return bool(cluster.objects("nodes", selector=f"compute.coreweave.com/node-pool={pool}"))


def renewals(cluster: Cluster, versions: set[str]) -> int:
    """How many versions of the Lease were seen; this one is added."""
    path = "jsonpath={.metadata.resourceVersion}"
    versions.add(cluster.kubectl("get", "lease", ACCOUNT, "-n", NAMESPACE, "-o", path))
    return len(versions)


LESSER = "agent-of-faults"
ROLE = """\
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{name: agent-of-faults}}
rules:
- {{apiGroups: [compute.coreweave.com], resources: ["*"], verbs: ["*"]}}
- {{apiGroups: [""], resources: [nodes, nodes/status, events{pods}], verbs: ["*"]}}
- {{apiGroups: [coordination.k8s.io], resources: [leases], verbs: ["*"]}}
- {{apiGroups: [apiextensions.k8s.io], resources: [customresourcedefinitions], verbs: [get]}}
"""
WITH_PODS = ROLE.format(pods=", pods, pods/eviction")
WITHOUT_PODS = ROLE.format(pods="")
WITHOUT_KIND = WITH_PODS.rpartition("- ")[0]


@pytest.fixture
def lesser(cluster: Cluster, account: Path) -> Iterator[Path]:
    """The kubeconfig of an account whose role the test changes."""
    assert account.exists(), "the kind NodePool is declared with the other account"
    user = f"--serviceaccount={NAMESPACE}:{LESSER}"
    cluster.kubectl("create", "serviceaccount", LESSER, "-n", NAMESPACE)
    cluster.kubectl("apply", "-f", "-", given=WITH_PODS)
    cluster.kubectl("create", "clusterrolebinding", LESSER, f"--clusterrole={LESSER}", user)
    token = cluster.kubectl("create", "token", LESSER, "-n", NAMESPACE).strip()
    yield cluster.connect(LESSER, token)
    cluster.kubectl("delete", f"clusterrole/{LESSER}", f"clusterrolebinding/{LESSER}")
    cluster.kubectl("delete", "serviceaccount", LESSER, "-n", NAMESPACE)


def test_a_drain_stops_where_the_right_to_evict_goes_and_goes_on_once_it_is_back(
    cluster: Cluster, plane: Plane, kubelets: Kubelets, lesser: Path, tmp_path: Path
) -> None:
    pool, pod = "faults-rights", "faults-guarded"
    with agent_at_work(tmp_path, lesser, plane.url) as agent:
        # given a Node that is being drained of a Pod that a budget protects
        takes_up(cluster, plane, pool, 1)
        plane.wait(pool)
        (node,) = plane.nodes(pool)
        cluster.kubectl("apply", "-f", "-", given=GUARDED.format(name=pod, node=node))
        wait_until("its budget is known", lambda: is_guarded(cluster, pod), WITHIN_S)
        audit = AuditLog(cluster.folder)
        drain = DrainNode(org=ORG, cluster=CLUSTER, pool=pool, node=node)
        plane.do(lambda client: client.send(drain))
        wait_until("its eviction is refused", lambda: 429 in evictions(audit), WITHIN_S)

        # when the right to do anything with Pods goes, and then the budget
        cluster.kubectl("apply", "-f", "-", given=WITHOUT_PODS)
        wait_until("it may not evict", lambda: 403 in evictions(audit), WITHIN_S)
        cluster.kubectl("delete", "poddisruptionbudget", pod)

        # then it says what it may not do, and goes on with all else
        wait_until("it says so", lambda: "cannot create resource" in agent.obstacle(), WITHIN_S)
        with a_pool(cluster, plane, "faults-besides"):
            pass
        assert cluster.run("get", "pod", pod).returncode == 0
        assert len(agent.lines("not done")) < MANY

        # when it may again
        cluster.kubectl("apply", "-f", "-", given=WITH_PODS)

        # then the Pod is evicted, and the agent is ready
        cluster.kubectl("wait", f"pod/{pod}", "--for=delete", "--timeout=60s")
        agent.wait_until_ready()
        cluster.kubectl("delete", "nodepool", pool, "--timeout=60s")


def test_without_the_right_to_read_the_kind_a_deletion_waits_and_readiness_says_why(
    cluster: Cluster, plane: Plane, lesser: Path, tmp_path: Path
) -> None:
    pool = "faults-kind"
    with agent_at_work(tmp_path, lesser, plane.url) as agent:
        # given a NodePool that is deleted, by a rule that needs to know whether its kind is
        takes_up(cluster, plane, pool, 0)
        cluster.kubectl("apply", "-f", "-", given=WITHOUT_KIND)
        wait_until("it may not", lambda: not may_read_kind(cluster), WITHIN_S)
        cluster.kubectl("delete", "nodepool", pool, "--wait=false")

        # then it waits, and says for what
        wait_until("it says so", lambda: "customresourcedef" in agent.obstacle(), WITHIN_S)
        assert target_on_bus(plane, pool) == 0

        # and is done once that is granted
        cluster.kubectl("apply", "-f", "-", given=WITH_PODS)
        cluster.kubectl("wait", f"nodepool/{pool}", "--for=delete", "--timeout=50s")
        agent.wait_until_ready()
        assert plane.pool(pool) is None


def may_read_kind(cluster: Cluster) -> bool:
    """Whether the account may read the definition of NodePools."""
    user = f"--as=system:serviceaccount:{NAMESPACE}:{LESSER}"
    return cluster.run("auth", "can-i", "get", "customresourcedefinitions", user).returncode == 0


def evictions(audit: AuditLog) -> list[int]:
    """The status of each request of the account to evict a Pod."""
    user = f"system:serviceaccount:{NAMESPACE}:{LESSER}"
    return [each.code for each in audit.requests(user) if each.resource == "pods/eviction"]


def is_guarded(cluster: Cluster, name: str) -> bool:
    """Whether the controller of budgets has counted the Pod."""
    found = json.loads(cluster.kubectl("get", "poddisruptionbudget", name, "-o", "json"))
    return bool(found.get("status", {}).get("currentHealthy") == 1)
