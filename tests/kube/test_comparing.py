"""The comparison of both sides finds what differs, and nothing where they agree."""

from pathlib import Path

from kube.comparing import disagreements
from kube.node_pools import takes_up
from testbed.agent import agent_at_work
from testbed.cluster import WITHIN_S, Cluster, wait_until
from testbed.kubelets import Kubelets
from testbed.plane import NODE_POOL, Plane


def test_what_is_changed_while_no_agent_is_at_work_is_found_until_one_has_seen_to_it(
    cluster: Cluster, plane: Plane, kubelets: Kubelets, account: Path, tmp_path: Path
) -> None:
    # given a NodePool with a Node, on which both sides agree
    with agent_at_work(tmp_path, account, plane.url):
        takes_up(cluster, plane, "compared", 1)
        plane.wait("compared")
        (node,) = plane.nodes("compared")
        names = ("compared", node)

        def found() -> list[str]:
            lines = disagreements(cluster, plane)
            return [each for each in lines if each.split()[1].strip(":") in names]

        wait_until("both sides agree", lambda: not found(), WITHIN_S)

    # when somebody changes both without an agent
    changed = '{"spec": {"nodeLabels": {"team": "research"}}}'
    cluster.kubectl("patch", "nodepool", "compared", "--type=merge", "-p", changed)
    cluster.kubectl("label", "node", node, f"{NODE_POOL}=another", "--overwrite")
    cluster.kubectl("cordon", node)

    # then each of that is found
    fields = [" ".join(line.split()[:3]) for line in found()]
    assert fields == [
        "NodePool compared: spec",
        "NodePool compared: conditions",
        f"Node {node}: unschedulable",
        f"Node {node}: labels",
    ]

    # and nothing any more once an agent has seen to it, nor once all is gone
    with agent_at_work(tmp_path, account, plane.url, name="again"):
        wait_until("both sides agree", lambda: not found(), WITHIN_S)
        cluster.kubectl("delete", "nodepool", "compared", "--timeout=60s")
        wait_until("both sides agree", lambda: not found(), WITHIN_S)
