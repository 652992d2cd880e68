"""An agent with a key of its own, between a real Kubernetes and a control plane with accounts."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from kube.node_pools import a_pool, apply, joined, takes_up
from nodepool.auth.accounts import GATEWAY
from nodepool.auth.users import Users, new_member
from testbed.agent import Agent, agent_at_work
from testbed.cluster import WITHIN_S, Cluster, wait_until
from testbed.kubelets import Kubelets
from testbed.plane import CLUSTER, H100, ORG, SETTINGS, Plane
from testbed.processes import OWNER, ControlPlane

NAME = "agent-kube"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """A control plane with accounts, machines, quotas, and a gateway."""
    processes = ControlPlane(
        tmp_path_factory.mktemp("guarded"), settings=SETTINGS, organisations=[ORG]
    )
    auth = processes.server.auth
    auth.init()
    auth.change(partial(Users.with_organisation, name=ORG))
    auth.add_member(ORG, lambda key: new_member(OWNER, key, OWNER))
    auth.add_member(ORG, lambda key: new_member(NAME, key, "agent", CLUSTER))
    with processes:
        plane = Plane(processes)
        plane.stock(H100, 4, 4)
        yield plane
    assert processes.errors() == ""


@pytest.fixture(scope="module")
def behind_the_gateway(
    guarded: Plane, account: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Agent]:
    """An agent at work with the key of its cluster."""
    shown = guarded.processes.server.auth.access(NAME, ORG)
    folder, key = tmp_path_factory.mktemp("agent"), {"NODEPOOL_NKEY_FILE": shown.nkey_file}
    with agent_at_work(folder, account, guarded.url, settings=key) as agent:
        yield agent


def violations(plane: Plane) -> list[str]:
    """The lines of the server's log about what it has denied."""
    lines = plane.processes.server.log_file.read_text().splitlines()
    return [line for line in lines if "Violation" in line]


def test_a_node_of_a_nodepool_joins_through_the_gateway(
    cluster: Cluster, guarded: Plane, behind_the_gateway: Agent
) -> None:
    kubeconfig, access = cluster.folder / "kubelets.kubeconfig", guarded.processes.access()
    with Kubelets(guarded.url, kubeconfig, ORG, CLUSTER, access=access), a_pool(cluster, "behind"):
        # when a NodePool gets a Node
        takes_up(cluster, guarded, "behind", 1)
        guarded.wait("behind")

        # then it is a Node of the cluster, and both sides show the NodePool at its target
        (node,) = guarded.nodes("behind")
        joined(cluster, node)
        cluster.kubectl("wait", "nodepool/behind", "--for=condition=AtTarget", "--timeout=60s")
        wait_until(
            "it shows its events",
            lambda: "CWNodeAssigned" in cluster.kubectl("describe", "nodepool", "behind"),
            WITHIN_S,
        )

    # and nothing was denied to the agent
    assert violations(guarded) == []
    assert behind_the_gateway.lines("connected")[0]["through"] == "gateway"


def test_a_change_while_no_gateway_runs_is_made_once_it_runs_again(
    cluster: Cluster, guarded: Plane, behind_the_gateway: Agent
) -> None:
    with a_pool(cluster, "meanwhile"):
        # when the gateway is killed, and a NodePool changed
        guarded.processes.kill(f"{GATEWAY}.0")
        apply(cluster, "meanwhile", 3)

        # then the change comes to the bus, and is made once
        wait_until("it has come", lambda: guarded.target("meanwhile") == 3, WITHIN_S)
        wait_until("the agent is ready", lambda: behind_the_gateway.obstacle() == "", WITHIN_S)
        pool = guarded.pool("meanwhile")
        assert pool is not None
        metadata = pool["metadata"]
        assert isinstance(metadata, dict)
        assert metadata["generation"] == 2
