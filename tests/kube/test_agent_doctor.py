"""What `nodepool doctor` finds of the agent of a cluster."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from kube.agent import agent_at_work
from kube.plane import CLUSTER, ORG, Plane
from nodepool.cli.app import run


def doctor(url: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, Mapping[str, str]]:
    """Its exit code, and the status of what it finds of agents."""
    capsys.readouterr()
    code = run(["--url", url, "doctor", "-o", "json"])
    checks = json.loads(capsys.readouterr().out)["checks"]
    of_agents = (each for each in checks if each["check"].startswith("agent "))
    return code, {each["check"]: each["status"] for each in of_agents}


def test_a_cluster_of_kubernetes_whose_agent_is_not_at_work_is_a_problem(
    account: Path, plane: Plane, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"agent {ORG}/{CLUSTER}"

    with agent_at_work(tmp_path, account, plane.url):
        at_work = doctor(plane.url, capsys)
    gone = doctor(plane.url, capsys)

    assert (at_work, gone) == ((0, {name: "ok"}), (1, {name: "problem"}))
