"""What an agent asks of an API server when it begins anew and nothing has changed."""

import json
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from kube.audit import AuditLog
from kube.comparing import disagreements, log_of
from kube.node_pools import apply
from testbed.agent import USER, agent_at_work, declare
from testbed.cluster import Cluster, wait_until
from testbed.plane import Plane

NODES, PODS = 300, 1_000
PAGE = 500
WITHIN_S = 300.0
WORK = """\
apiVersion: apps/v1
kind: Deployment
metadata: {{name: many}}
spec:
  replicas: {pods}
  selector: {{matchLabels: {{app: many}}}}
  template:
    metadata: {{labels: {{app: many}}}}
    spec:
      tolerations: [{{operator: Exists}}]
      containers: [{{name: only, image: none}}]
"""


@pytest.mark.timeout(900)
def test_an_agent_that_begins_anew_lists_by_pages_and_asks_nothing_of_each_node_or_pod(
    cluster: Cluster, plane: Plane, tmp_path: Path
) -> None:
    # given Nodes and Pods that an agent has taken care of
    account = declare(cluster)
    with agent_at_work(tmp_path, account, plane.url, name="before"):
        apply(cluster, "many", NODES)
        wait_until("all Nodes are there", lambda: current(cluster) == NODES, WITHIN_S)
        cluster.kubectl("apply", "-f", "-", given=WORK.format(pods=PODS))
        wait_until("all Pods run", lambda: running(cluster) == PODS, WITHIN_S)
        wait_until("both sides agree", lambda: not disagreements(cluster, plane), WITHIN_S)
    said = reports(plane)

    # when another one begins with nothing known
    audit, began = AuditLog(cluster.folder), time.monotonic()
    with agent_at_work(tmp_path, account, plane.url, name="after") as agent:
        wait_until(
            "all is compared",
            lambda: (
                agent.metric("nodepool_agent_queue_length") == 0
                and agent.metric("nodepool_agent_reconcile_seconds_count", kind="Node") >= NODES
            ),
            WITHIN_S,
        )
        took_s = time.monotonic() - began
        counts = audit.counts(USER)
        repeated = reports(plane) - said

    # then it read once whose cluster this is and its policy, asked for pages, and watches the rest
    sys.stderr.write(f"\n{took_s:.1f} s, {counts}, {repeated} reports on the bus\n")
    of_its_turn = Counter({key: count for key, count in counts.items() if key[1] != "leases"})
    everything = len(cluster.objects("pods", "default")) + len(
        cluster.objects("pods", "kube-system")
    )
    assert of_its_turn == {
        ("get", "namespaces"): 1,
        ("get", "mutatingadmissionpolicies"): 1,
        ("get", "mutatingadmissionpolicybindings"): 1,
        ("get", "configmaps"): 1,
        ("list", "nodepools"): 1,
        ("list", "nodes"): 1,
        ("list", "pods"): -(-everything // PAGE) + 1,  # One page of those that wait.
        ("watch", "nodepools"): 1,
        ("watch", "nodes"): 1,
        ("watch", "pods"): 2,
    }
    assert repeated <= NODES


def current(cluster: Cluster) -> object:
    """The Nodes that the status of the NodePool shows."""
    found = json.loads(cluster.kubectl("get", "nodepool", "many", "-o", "json"))
    return found.get("status", {}).get("currentNodes")


def running(cluster: Cluster) -> object:
    """The Pods of the Deployment that are ready."""
    found = json.loads(cluster.kubectl("get", "deployment", "many", "-o", "json"))
    return found.get("status", {}).get("readyReplicas")


def reports(plane: Plane) -> int:
    """How many reports of the agent lie in the log."""
    return sum(entry.subject.startswith("np.evt.agent.") for entry in log_of(plane))
