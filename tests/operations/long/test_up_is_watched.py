"""The line that `nodepool up` prints starts a Prometheus that sees every service."""

import asyncio
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bus.harness import until
from nodepool.contract.services import SERVICES
from support.prometheus import program, prometheus
from testbed.ports import free_port

PATIENCE_S = 120.0
LINE = "to watch them all: prometheus "


def printed_options(process: "subprocess.Popen[str]") -> list[str]:
    """The options of the Prometheus in what a control plane prints."""
    assert process.stdout is not None
    line = next(line for line in process.stdout if line.startswith(LINE))
    return shlex.split(line.removeprefix(LINE))


@pytest.mark.timeout(2 * PATIENCE_S)
def test_the_line_that_is_printed_starts_a_prometheus_that_sees_every_service(
    tmp_path: Path,
) -> None:
    program()
    # given a control plane
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join(sys.path),
        "NODEPOOL_NATS_PORT": str(free_port()),
    }
    command = [sys.executable, "-m", "nodepool.cli", "up", "--data-dir", str(tmp_path / "data")]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            options = printed_options(process)

            # when the line that it prints is typed
            with prometheus(tmp_path, *options) as running:

                def seen() -> bool:
                    ready = running.query("nodepool_ready == 1")
                    return {each["metric"]["nodepool_service"] for each in ready} == {*SERVICES}

                # then every service is seen, and the alerts are there with their pages
                asyncio.run(until(seen, PATIENCE_S))
                limit = "nodepool_storage_used_bytes / nodepool_storage_limit_bytes"
                asyncio.run(until(lambda: len(running.query(limit)) == 1, PATIENCE_S))
                groups = running.get("/api/v1/rules", type="alert")["groups"]
                names = [rule["name"] for group in groups for rule in group["rules"]]
                assert len(names) > len(SERVICES)
                assert running.page(f"/user/{names[0]}.md").startswith(f"# {names[0]}\n")
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(30)
