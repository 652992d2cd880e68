"""A real Prometheus beside a control plane, and what it answers."""

import json
import math
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from nodepool.local.ports import HOST
from testbed.pages import PageFailure, page
from testbed.ports import free_port

DEPLOY = Path(__file__).parents[2] / "deploy"
PATIENCE_S = 30.0
PAUSE_S = 0.05


class Prometheus:
    """A running Prometheus. url: its address."""

    def __init__(self, url: str) -> None:
        self.url = url

    def query(self, expr: str) -> Sequence[Mapping[str, Any]]:
        """The series that an expression has now."""
        return self._results("query", query=expr)

    def query_range(
        self, expr: str, start: float, end: float, step: float
    ) -> Sequence[Mapping[str, Any]]:
        """The series that an expression has over time."""
        return self._results("query_range", query=expr, start=start, end=end, step=step)

    def values(self, label: str, match: str) -> Sequence[str]:
        """The values of a label of the series that a selector chooses."""
        found: Sequence[str] = self.get(f"/api/v1/label/{label}/values", **{"match[]": match})
        return found

    def _results(self, path: str, **parameters: object) -> Sequence[Mapping[str, Any]]:
        found: Sequence[Mapping[str, Any]] = self.get(f"/api/v1/{path}", **parameters)["result"]
        return found

    def get(self, path: str, **parameters: object) -> Any:
        """The data of an answer; raises AssertionError with its error."""
        try:
            return json.loads(self.page(f"{path}?{urlencode(parameters)}"))["data"]
        except PageFailure as failure:
            raise AssertionError(f"{parameters}: {failure.text}") from failure

    def page(self, path: str) -> str:
        """What lies at a path."""
        return page(self.url + path, timeout_s=30)


def has_values(found: Sequence[Mapping[str, Any]], above: float = -math.inf) -> int:
    """How many of the series have a number above this one."""
    return sum(
        any(float(value) > above for _, value in series.get("values", [series.get("value")]))
        for series in found
    )


def config(targets: Mapping[str, str], interval: str, exporter: str = "") -> Mapping[str, object]:
    """Return a configuration with the rules of this repository.

    targets: addresses, with their service. exporter: the address of the servers' figures, if any.
    """
    servers = [{"job_name": "nats", "static_configs": [{"targets": [exporter]}]}]
    return {
        "global": {"scrape_interval": interval, "evaluation_interval": interval},
        "rule_files": [str(DEPLOY / "prometheus" / "nodepool.rules.yml")],
        "scrape_configs": [
            {
                "job_name": "nodepool",
                "static_configs": [
                    {"targets": [address], "labels": {"service": service}}
                    for address, service in targets.items()
                ],
            },
            *(servers if exporter else []),
        ],
    }


def program() -> str:
    """The Prometheus on PATH; skips the test where there is none."""
    found = shutil.which("prometheus")
    if found is None:
        pytest.skip("there is no prometheus on PATH")
    return found


@contextmanager
def prometheus(folder: Path, *options: str) -> Iterator[Prometheus]:
    """A Prometheus with these options that is ready; it ends with the context.

    folder: where its log is written.
    """
    url = f"http://{HOST}:{free_port()}"
    command = [
        program(),
        f"--web.listen-address={url.removeprefix('http://')}",
        f"--web.external-url={url}",
        *options,
    ]
    with (
        (folder / "prometheus.log").open("ab") as log,
        subprocess.Popen(command, stdout=log, stderr=log) as process,
    ):
        try:
            running = Prometheus(url)
            _wait_until_ready(running, process)
            yield running
        finally:
            process.terminate()


def _wait_until_ready(running: Prometheus, process: "subprocess.Popen[bytes]") -> None:
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        with suppress(OSError):
            running.page("/-/ready")
            return
        with suppress(subprocess.TimeoutExpired):
            raise AssertionError(f"Prometheus ended with {process.wait(PAUSE_S)}")
    raise TimeoutError("Prometheus is not ready")
