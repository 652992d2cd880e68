"""What a real Prometheus reads from a service: every series, and the traces of messages."""

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

import pytest

from bus.harness import connected, launched, send, until
from nodepool.contract.commands import SetQuota
from nodepool.local.server import NatsServer
from support.constants import H100, ZONE
from testbed.pages import page
from testbed.ports import free_port

TRACE = "0af7651916cd43dd8448eb211c80319c"
CONFIGURATION = """\
scrape_configs:
  - job_name: nodepool
    scrape_interval: 500ms
    scrape_timeout: 500ms
    static_configs:
      - targets: ["127.0.0.1:{port}"]
"""


class Prometheus:
    """A Prometheus server that scrapes one service."""

    def __init__(self, port: int) -> None:
        self._port = port

    def get(self, path: str, **query: str) -> list[dict[str, object]]:
        """The result of a request to its API; nothing where it does not answer."""
        address = f"http://127.0.0.1:{self._port}/api/v1/{path}?{urlencode(query)}"
        try:
            data = json.loads(page(address))["data"]
        except OSError:
            return []
        result: list[dict[str, object]] = data["result"] if path == "query" else data
        return result

    def value(self, query: str) -> str:
        """The value of a query with one result, as text; empty where there is none."""
        match self.get("query", query=query):
            case [{"value": [_, str(value)]}]:
                return value
        return ""


@contextmanager
def prometheus(folder: Path, scraped: int) -> Iterator[Prometheus]:
    """A Prometheus that keeps exemplars and scrapes a port; skips the test where there is none."""
    binary = shutil.which("prometheus")
    if binary is None:
        pytest.skip("prometheus is not installed, so nothing was scraped by it")
    config, port = folder / "prometheus.yml", free_port()
    config.write_text(CONFIGURATION.format(port=scraped))
    options = {
        "config.file": str(config),
        "storage.tsdb.path": str(folder / "prometheus"),
        "web.listen-address": f"127.0.0.1:{port}",
        "enable-feature": "exemplar-storage",
        "log.level": "error",
    }
    command = [binary, *(f"--{name}={value}" for name, value in options.items())]
    with subprocess.Popen(command) as process:
        try:
            yield Prometheus(port)
        finally:
            process.terminate()


async def test_prometheus_leads_from_a_slow_command_to_its_trace(
    server: NatsServer, tmp_path: Path
) -> None:
    with (
        launched("quota", server, tmp_path, port := free_port(), traces="console"),
        prometheus(tmp_path, port) as database,
    ):
        # given a service with traces that is scraped
        await until(lambda: database.value("nodepool_ready") == "1")

        # when it has processed a command that belongs to a trace
        async with connected(server.url) as connection:
            command = SetQuota(org="acme", zone=ZONE, instance_type=H100, limit=1)
            await send(connection, command, "c1", f"00-{TRACE}-b7ad6b7169203331-01")

        # then Prometheus has the command, and at each histogram the trace
        accepted = 'sum(nodepool_commands_total{result="accepted",command="SetQuota"})'
        await until(lambda: database.value(accepted) == "1")
        await until(lambda: all(traces(database, name) == {TRACE} for name in HISTOGRAMS))

        # and it takes the page as OpenMetrics, without a complaint
        await until(lambda: database.value("up") == "1")
        await until(lambda: [it["lastError"] for it in targets(database)] == [""])


HISTOGRAMS = (
    "nodepool_message_age_seconds_bucket",
    "nodepool_command_seconds_bucket",
    "nodepool_commit_seconds_bucket",
)


def traces(database: Prometheus, name: str) -> set[str]:
    """The traces that the exemplars of a metric name."""
    since, until = str(time.time() - 600), str(time.time() + 600)
    found = database.get("query_exemplars", query=name, start=since, end=until)
    return {
        exemplar["labels"]["trace_id"]
        for series in found
        for exemplar in series["exemplars"]  # type: ignore[attr-defined]  # As the API has it.
    }


def targets(database: Prometheus) -> list[dict[str, object]]:
    """What it scrapes, and how that goes."""
    address = f"http://127.0.0.1:{database._port}/api/v1/targets"
    found: list[dict[str, object]] = json.loads(page(address))["data"]["activeTargets"]
    return found
