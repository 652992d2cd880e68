"""A Node that something else in its cluster changes as often as the agent sets it back."""

from kube.workloads import Told, Workloads
from nodepool.contract.commands import CordonNode
from testbed.agent import Agent
from testbed.cluster import WITHIN_S, wait_until

TRIES_MAX = 60
AT_ONCE_S = 15.0
"""Before the pause of thirty seconds is over."""
AFTER_A_PAUSE_S = 120.0


def test_a_node_that_is_changed_as_often_is_left_alone_and_that_is_told(
    workloads: Workloads, agent: Agent
) -> None:
    # given a Node with a label that something else changes whenever it is set back
    cluster, pool = workloads.cluster, "set-back"
    (node,) = workloads.nodes(pool, 1, nodeLabels={"team": "research"})

    def label() -> str:
        found = workloads.node(node)
        return "" if found is None else str(found["metadata"]["labels"].get("team", ""))

    def told() -> bool:
        return bool(workloads.warnings("NodePool", pool))

    # when that goes on
    for _ in range(TRIES_MAX):
        cluster.kubectl("label", "node", node, "team=other", "--overwrite")
        if told():
            break
        wait_until("it is set back or told", lambda: label() == "research" or told(), WITHIN_S)

    # then its NodePool says so, and the label stays as it is
    message = (
        f"Node {node} was set back more than 10 times in a minute in metadata.labels[team]:"
        " something else changes it as often. It is left alone for 30 seconds at a time; take it"
        " out of the NodePool, or end the other writer"
    )
    assert workloads.warnings("NodePool", pool) == [Told("SetBackRepeatedly", message)]
    cluster.kubectl("label", "node", node, "team=other", "--overwrite")

    # and what the bus wants anew is done at once, the label with it
    workloads.send(CordonNode, pool, node=node)
    wait_until("it is cordoned", lambda: is_cordoned(workloads, node), AT_ONCE_S)
    assert agent.obstacle() == ""
    wait_until("it has it", lambda: label() == "research", AFTER_A_PAUSE_S)


def is_cordoned(workloads: Workloads, node: str) -> bool:
    """Whether a Node is cordoned."""
    found = workloads.node(node)
    return found is not None and found["spec"].get("unschedulable") is True
