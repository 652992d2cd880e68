"""The operator that the agent is measured beside, as far as it writes what the agent writes."""

from collections.abc import Mapping
from contextlib import closing
from itertools import islice
from typing import Any, Final

import pytest

from kube.audit import AuditLog
from testbed.cluster import missing

pytest.importorskip("kopf")

from bench.bed import NAME, Seen, apply, bed, until
from bench.peers import PEER_USER, compare_peers, create_account, permit, start_peer

NODES: Final = 2
READ: Final = (
    "nodes",
    "nodepools.compute.coreweave.com",
    "customresourcedefinitions.apiextensions.k8s.io",
)
STATUS: Final = "nodepools/status"
FORBIDDEN: Final = 403
OF_NODE: Final = ("kubernetes.io/hostname", "compute.coreweave.com/node-pool-uid")
"""The labels whose values differ from Node to Node, and from run to run."""


def marks(node: Mapping[str, Any]) -> object:
    """The labels, the taints and the types of the conditions of a Node."""
    labels = node["metadata"]["labels"]
    conditions = node["status"]["conditions"]
    return (
        {key: "any" if key in OF_NODE else value for key, value in labels.items()},
        node["spec"].get("taints"),
        sorted((each["type"], each["status"], each["reason"]) for each in conditions),
    )


def responses(audit: AuditLog) -> set[tuple[str, int]]:
    """What the peer asked for, and the HTTP status of the response."""
    return {(each.resource, each.code) for each in audit.requests(PEER_USER)}


def test_the_peer_writes_the_status_that_the_api_server_has_refused() -> None:
    reason = missing()
    if reason:
        pytest.skip(reason)

    with bed() as (folder, cluster, _), closing(Seen(cluster)) as seen:
        # given a peer that may read everything and change nothing
        account, audit = create_account(cluster), AuditLog(cluster.folder)
        rules = ("--verb=get,list,watch", f"--resource={','.join(READ)}")
        cluster.kubectl("create", "clusterrole", "reader", *rules)
        permit(cluster, "reader")
        with start_peer(folder, account):
            # when a NodePool is created
            apply(cluster, NAME, 0)
            until(lambda: (STATUS, FORBIDDEN) in responses(audit))

            # then its status shows as soon as the peer may write
            assert seen.current(NAME) is None
            permit(cluster, "cluster-admin")
            until(lambda: seen.current(NAME) == 0)


def test_the_nodes_of_the_fair_peer_carry_what_those_of_the_agent_carry() -> None:
    reason = missing()
    if reason:
        pytest.skip(reason)

    with closing(compare_peers(NODES)) as measured:
        agent, plain, fair = islice(measured, 3)

    expected = [marks(agent.nodes[0])] * NODES
    assert [marks(node) for node in agent.nodes] == expected
    assert [marks(node) for node in fair.nodes] == expected
    assert [marks(node) for node in plain.nodes] != expected
