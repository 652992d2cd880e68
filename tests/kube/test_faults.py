"""Each part around the agent frozen, lost or wrong, for a while or in the middle of its work."""

import json
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path

import pytest

from kube.comparing import commands, log_of
from kube.node_pools import a_pool, apply, takes_up
from kube.proxy import Proxy
from nodepool.contract.commands import ApplyNodePool
from nodepool.local.ports import HOST
from support.clocks import wrong_clock
from testbed.agent import ACCOUNT, NAMESPACE, Agent, agent_at_work
from testbed.cluster import WITHIN_S, Cluster, wait_until
from testbed.components import API_SERVER, ETCD
from testbed.kubelets import Kubelets
from testbed.paused import pause_process
from testbed.plane import Plane

LEASE_S = 15.0
"""After which a Lease that is not renewed is free for another one."""
RENEWALS = 9
"""So many renewals of a Lease take longer than it lasts."""
HOLDER = "jsonpath={.spec.holderIdentity} {.spec.leaseTransitions}"


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
        leading = [each for each in self._agents if each.leads()]
        self.together += len(leading) > 1
        return agent in leading


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
    with a_pool(cluster, "faults-etcd"):
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
        a_pool(cluster, "faults-hung"),
    ):
        other.wait_until_ready()
        leads, (_, before) = Leading(agent, other), lease(cluster)
        apply(cluster, "faults-hung", 1)

        # when the API server hangs for longer than the holder may act without it
        with pause_process(cluster.parts[API_SERVER].pid):
            wait_until("it stops", lambda: bool(agent.lines("lost the Lease")), WITHIN_S)
            wait_until("it has stopped", lambda: not leads(agent), LEASE_S)
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
        a_pool(cluster, "faults-frozen"),
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


def test_a_bus_whose_packets_vanish_gets_each_change_once_when_it_is_back(
    cluster: Cluster, plane: Plane, agent: Agent, networks: tuple[Proxy, Proxy]
) -> None:
    _, bus = networks
    with a_pool(cluster, "faults-bus"):
        bus.freeze()
        apply(cluster, "faults-bus", 1)
        wait_until("it says so", lambda: agent.obstacle() != "", WITHIN_S)

        bus.mend()

        # A command whose outcome was lost is sent again after half a minute, by the same id.
        wait_until("it is taken", lambda: plane.target("faults-bus") == 1, WITHIN_S)
        agent.wait_until_ready()
        assert agent.is_leading(), "the Lease has nothing to do with the bus"
        assert sent(plane, "faults-bus") == 2


@pytest.mark.parametrize("how", ["cut", "freeze"])
def test_with_both_networks_gone_at_once_what_was_changed_on_either_side_is_kept(
    cluster: Cluster, plane: Plane, agent: Agent, networks: tuple[Proxy, Proxy], how: str
) -> None:
    name = f"faults-both-{how}"
    with a_pool(cluster, name):
        # when both are away, and both sides change
        for network in networks:
            network.cut() if how == "cut" else network.freeze()
        labels = json.dumps({"spec": {"nodeLabels": {"team": "research"}}})
        cluster.kubectl("patch", "nodepool", name, "--type=merge", "-p", labels)
        plane.do(lambda client: client.nodepools.scale(name, 1))
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
    clock = wrong_clock(skew)
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
