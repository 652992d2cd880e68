"""What a real Prometheus shows of real agents: every panel has data, and every runbook works."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from dashboards.agents import AGENTS
from dashboards.system import SYSTEM
from kube.frozen import WHY, frozen
from kube.shell import Shell
from nodepool.contract.agent_metrics import OF_THE_AGENT
from nodepool.contract.metrics import ALL
from nodepool.local.ports import HOST
from support.grafana import Asked, filled, queries_of
from support.metric_pages import lint, strangers
from support.prometheus import Prometheus, config, has_values, prometheus
from support.runbooks import OF_AGENTS, commands
from testbed.agent import Agent, agent_at_work
from testbed.cluster import WITHIN_S, Cluster, wait_until
from testbed.kubelets import Kubelets
from testbed.plane import CLUSTER, H100, ORG, Plane

POOL = "watched"
CONSTANT = ("nodepool_service", "org", "nodepool_cluster")
"""The labels that every series of an agent has."""
RATE = "8s"
WITHOUT_LEADER = "Clusters without a leading agent"
ANY = {"Objects that wait"}
"""Panels that may be above 0 or not, as it happens: an object may be compared at once."""
WAITING = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "waits"},
    "spec": {
        "nodeSelector": {"example.com/there-is": "none"},
        "containers": [{"name": "only", "image": "none"}],
    },
}
LABELS = '{"spec": {"nodeLabels": {"team": "research"}}}'
GONE = f'ALERTS{{alertname="NodepoolAgentNotAtWork", org="{ORG}", nodepool_cluster="{CLUSTER}"}}'


class Watched(NamedTuple):
    """Two replicas of an agent, the first of which leads, and the Prometheus that watches them."""

    agents: tuple[Agent, Agent]
    prometheus: Prometheus
    began: float

    def series(self, asked: Asked, above: float = -1.0) -> int:
        """How many series of a query were above a number since it began."""
        range_s = int(time.time() - self.began)
        expr = filled(asked.expr, {"service": ".*", "__rate_interval": RATE}, range_s)
        if asked.instant:
            return has_values(self.prometheus.query(expr), above)
        end = time.time()
        return has_values(self.prometheus.query_range(expr, end - range_s, end, 1), above)


@pytest.fixture
def watched(account: Path, plane: Plane, kubelets: Kubelets, tmp_path: Path) -> Iterator[Watched]:
    """Both at work, and read each second."""
    assert kubelets.never == set()
    with (
        agent_at_work(tmp_path, account, plane.url, name="one") as first,
        Agent(tmp_path, account, plane.url, name="two") as second,
        watching(tmp_path, first, second) as running,
    ):
        second.wait_until_ready()
        leads = lambda: bool(running.query("nodepool_leading == 1"))  # noqa: E731
        wait_until("Prometheus sees one that leads", leads, WITHIN_S)
        yield Watched((first, second), running, time.time())


@contextmanager
def watching(folder: Path, *agents: Agent) -> Iterator[Prometheus]:
    """A Prometheus that reads the metrics of these agents, with all rules."""
    file = folder / "prometheus.yml"
    file.write_text(json.dumps(config({f"{HOST}:{each.port}": "agent" for each in agents}, "1s")))
    options = (f"--config.file={file}", f"--storage.tsdb.path={folder / 'prometheus'}")
    with prometheus(folder, *options) as running:
        yield running


@contextmanager
def a_frozen_node(cluster: Cluster, plane: Plane) -> Iterator[str]:
    """A Node that is to get a label, which the API server refuses, beside a Pod that waits."""
    plane.apply(POOL, instanceType=H100, targetNodes=1)
    plane.wait(POOL)
    (node,) = plane.nodes(POOL)
    cluster.kubectl("create", "-f", "-", given=json.dumps(WAITING))
    with frozen(cluster, "", "v1", "nodes", node):
        cluster.kubectl("patch", "nodepool", POOL, "--type=merge", "-p", LABELS)
        yield node
    cluster.kubectl("delete", "pod", "waits")
    cluster.kubectl("delete", "nodepool", POOL, "--timeout=60s")


def test_every_panel_of_agents_has_data_and_every_page_about_them_works(
    declared: Cluster, plane: Plane, watched: Watched
) -> None:
    asked = list(queries_of(SYSTEM, AGENTS))
    running = watched.prometheus
    with a_frozen_node(declared, plane) as node:
        # given what an agent does, what it fails at, and what Prometheus has read of that
        refused = f'increase(nodepool_agent_actions_total{{result="refused"}}[{RATE}]) > 0'
        wait_until("it is refused", lambda: bool(running.query(refused)), WITHIN_S)

        # then the page of each is as the list of metrics has it
        pages = [each.page() for each in watched.agents]
        assert [strangers(page, (*ALL, *OF_THE_AGENT), CONSTANT) for page in pages] == [[], []]
        assert [lint(page) for page in pages] == ["", ""]
        assert [each for each in OF_THE_AGENT if f"# TYPE {each.name} " not in pages[0]] == []

        # and each panel shows it
        wait_until("Prometheus has it", lambda: all(map(watched.series, asked)), WITHIN_S)

        def flat() -> set[str]:
            return {each.panel for each in asked if not watched.series(each, above=0.0)}

        wait_until("all of it is in use", lambda: flat() - ANY == {WITHOUT_LEADER}, WITHIN_S)

        # and each command of the pages ends as it should, and one shows what is refused
        shell = Shell(
            declared,
            {
                "PROMETHEUS": running.url,
                "INSTANCE": f"{HOST}:{watched.agents[0].port}",
                "CLUSTER": CLUSTER,
            },
        )
        lines = [each for page in OF_AGENTS for each in commands(page)]
        typed = {line: shell.run(line) for line, _ in lines}
        assert [
            (line, typed[line].code, typed[line].error)
            for line, code in lines
            if typed[line].code != code or "error" in typed[line].error
        ] == []
        shown = "".join(each.out for each in typed.values())
        assert [each for each in (f"Node {node} cannot be updated", WHY) if each not in shown] == []
        assert 'action="Patch", ' in shown

    # when both are gone
    for each in watched.agents:
        each.stop()

    # then that is shown, and an alert is about to say so
    (without,) = (each for each in asked if each.panel == WITHOUT_LEADER)
    wait_until("it is shown", lambda: watched.series(without, above=0.0) == 1, WITHIN_S)
    wait_until("an alert is pending", lambda: bool(running.query(GONE)), WITHIN_S)
