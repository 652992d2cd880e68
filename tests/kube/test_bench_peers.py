"""The operator that the agent is measured beside, as far as it writes what the agent writes."""

from collections.abc import Mapping
from contextlib import closing
from itertools import islice
from typing import Any, Final

import pytest

from testbed.cluster import missing

pytest.importorskip("kopf")

from bench.peers import compare_peers

NODES: Final = 2
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
