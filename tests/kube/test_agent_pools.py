"""A NodePool from kubectl to the bus and back, through a real agent."""

import json

from kube.node_pools import apply
from testbed.agent import Agent
from testbed.cluster import WITHIN_S, Cluster, wait_until
from testbed.plane import Plane


def test_a_nodepool_that_is_applied_gets_its_verdicts_and_its_events(
    cluster: Cluster, plane: Plane, agent: Agent
) -> None:
    # when it is applied with kubectl
    apply(cluster, "first")

    # then it is on the bus, and its verdicts come back as conditions of its generation
    cluster.kubectl("wait", "nodepool/first", "--for=condition=Validated", "--timeout=60s")
    found = json.loads(cluster.kubectl("get", "nodepool", "first", "-o", "json"))
    conditions = {each["type"]: each["status"] for each in found["status"]["conditions"]}
    assert conditions["Validated"] == "True"
    assert {each["observedGeneration"] for each in found["status"]["conditions"]} == {
        found["metadata"]["generation"]
    }

    # and kubectl describe shows its events
    wait_until(
        "it shows its events",
        lambda: "CWNodePoolCreated" in cluster.kubectl("describe", "nodepool", "first"),
        WITHIN_S,
    )

    # when it is deleted, it is gone on both sides
    cluster.kubectl("delete", "nodepool", "first", "--timeout=60s")
    wait_until("it is gone on the bus", lambda: plane.pool("first") is None, WITHIN_S)
    assert agent.obstacle() == ""
