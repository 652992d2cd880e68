"""What `nodepool doctor` finds of the agent of a cluster."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from kube.node_pools import takes_up
from nodepool.cli.app import run
from testbed.agent import agent_at_work
from testbed.cluster import WITHIN_S, Cluster, wait_until
from testbed.plane import CLUSTER, ORG, Plane


def doctor(url: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, Mapping[str, str]]:
    """Its exit code, and the status of what it finds of agents."""
    capsys.readouterr()
    code = run(["--url", url, "doctor", "-o", "json"])
    checks = json.loads(capsys.readouterr().out)["checks"]
    of_agents = (each for each in checks if each["check"].startswith("agent "))
    return code, {each["check"]: each["status"] for each in of_agents}


def test_an_agent_is_missed_while_its_cluster_has_a_node_pool(
    cluster: Cluster,
    account: Path,
    plane: Plane,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    name = f"agent {ORG}/{CLUSTER}"

    def finds(code: int, status: str) -> bool:
        return doctor(plane.url, capsys) == (code, {name: status})

    with agent_at_work(tmp_path, account, plane.url):
        takes_up(cluster, plane, "doctored", 0)
        wait_until("all is well", lambda: finds(0, "ok"), WITHIN_S)
    wait_until("it is missed", lambda: finds(1, "problem"), WITHIN_S)
    with agent_at_work(tmp_path, account, plane.url, name="again"):
        cluster.kubectl("delete", "nodepool", "doctored", "--timeout=60s")
