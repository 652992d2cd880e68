"""Several services in one process: the pages that they share, and the names that a user gives."""

import asyncio
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from nodepool.host.hosting import AnyRuntime, Hosted, Hosting
from nodepool.host.settings import Settings, SettingsError
from quota.decide import SERVICE as QUOTA
from testbed.pages import fetch
from validator.decide import SERVICE as VALIDATOR

NOWHERE = "nats://127.0.0.1:1"


def address(port: int, path: str) -> str:
    """Where a page lies."""
    return f"http://127.0.0.1:{port}{path}"


async def test_the_services_of_a_process_share_one_page_of_metrics(tmp_path: Path) -> None:
    # given two services in one process, which reach no server
    settings = Settings(NOWHERE, metrics_port=0, log_file=str(tmp_path / "{service}.log"))
    hosting = Hosting([Hosted(VALIDATOR), Hosted(QUOTA)], settings)
    stop = asyncio.Event()
    running = asyncio.create_task(hosting.run(stop))
    await asyncio.sleep(0)

    # when their pages are read
    _, text = await asyncio.to_thread(fetch, address(hosting.port, "/metrics"))
    ready = await asyncio.to_thread(fetch, address(hosting.port, "/readyz"))
    stop.set()
    await running

    # then each family is there once, with the series of both; those of the process are there once
    families = list(text_string_to_metric_families(text))
    names = [family.name for family in families]
    assert len(names) == len({*names})
    of_services = {
        family.name: {sample.labels.get("nodepool_service") for sample in family.samples}
        for family in families
        if family.name in ("nodepool_ready", "nodepool_dead_letters", "process_open_fds")
    }
    assert of_services == {
        "nodepool_ready": {"validator", "quota"},
        "nodepool_dead_letters": {"validator", "quota"},
        "process_open_fds": {None},
    }

    # and the readiness names the service that is not ready, each of which has a log of its own
    assert ready[0] == 503
    assert ready[1].startswith("not ready: validator: ")
    logs = await asyncio.to_thread(os.listdir, tmp_path)
    assert sorted(logs) == ["quota.log", "validator.log"]


async def test_settings_without_a_port_serve_nothing(tmp_path: Path) -> None:
    # given settings without a port
    settings = Settings(NOWHERE, metrics_port=-1, log_file=str(tmp_path / "quota.log"))
    hosting = Hosting([Hosted(QUOTA)], settings)
    stop = asyncio.Event()
    stop.set()

    # when the service runs
    await hosting.run(stop)

    # then there are no pages
    assert hosting.port == -1


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ((), "name services"),
        (("valdator",), "valdator is named twice or is no service"),
        (("quota", "quota"), "quota is named twice or is no service"),
    ],
)
def test_wrong_names_of_services_end_with_one_line(arguments: tuple[str, ...], line: str) -> None:
    # given names of which one is wrong
    # when a process is to run these services
    command = [sys.executable, "-m", "nodepool.host", *arguments]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PYTHONPATH": ":".join(sys.path)},
    )

    # then it ends, and says which name is wrong and which services there are
    assert done.returncode == 1
    assert done.stderr.startswith(f"nodepool.host: {line}; the services are validator, quota, ")
    assert len(done.stderr.splitlines()) == 1


def test_a_port_that_is_taken_ends_the_process_with_one_line() -> None:
    # given a port on which something listens
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        # when two services are to serve their pages there
        done = subprocess.run(
            [sys.executable, "-m", "nodepool.host", "validator", "quota"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={"PYTHONPATH": ":".join(sys.path), "NODEPOOL_METRICS_PORT": str(port)},
        )

    # then the line names both services and the port
    fault = f"cannot serve metrics on 127.0.0.1:{port}: Address already in use"
    assert done.stderr == f"validator, quota: {fault}\n"
    assert done.returncode == 1


def test_services_of_one_process_need_a_log_file_each() -> None:
    # given a log file for several services
    settings = Settings(NOWHERE, log_file="all.log")

    # when a process is to run two of them
    # then it says how each can have its own
    with pytest.raises(SettingsError) as refused:
        Hosting([Hosted(VALIDATOR), Hosted(QUOTA)], settings)
    assert str(refused.value) == (
        "NODEPOOL_LOG_FILE is 'all.log'; several services need {service} in it, so that each has a"
        " file of its own"
    )


class Bridge:
    """What works beside a replica, and may crash with an error."""

    obstacle = "the world is not there"

    def __init__(self, runtime: AnyRuntime, error: Exception | None = None) -> None:
        self._log, self._error = runtime.telemetry.log, error

    async def run(self, stop: asyncio.Event) -> None:
        """Works until the process stops, and then takes a moment to end."""
        self._log.info("edge begun")
        if self._error is not None:
            raise self._error
        await stop.wait()
        await asyncio.sleep(0)
        self._log.info("edge ended")


async def test_an_edge_works_beside_its_replica_and_ends_before_it(tmp_path: Path) -> None:
    # given a service with an edge
    log = tmp_path / "quota.log"
    settings = Settings(NOWHERE, metrics_port=-1, log_file=str(log))
    hosting = Hosting([Hosted(QUOTA, edge=Bridge)], settings)
    stop = asyncio.Event()

    # when it works, and is stopped
    running = asyncio.create_task(hosting.run(stop))
    await asyncio.sleep(0.01)
    stop.set()
    await running

    # then the replica has served the edge until its end
    events = [json.loads(line)["event"] for line in log.read_text().splitlines()]
    assert [each for each in events if each.startswith(("edge", "stop"))] == [
        "edge begun",
        "edge ended",
        "stopping",
    ]


async def test_an_edge_that_crashes_ends_the_process_of_its_service(tmp_path: Path) -> None:
    # given a service whose edge crashes
    settings = Settings(NOWHERE, metrics_port=-1, log_file=str(tmp_path / "quota.log"))
    error = ValueError("no world")
    hosting = Hosting([Hosted(QUOTA, edge=lambda runtime: Bridge(runtime, error))], settings)

    # when it works
    # then its error ends the process
    with pytest.raises(ValueError, match="no world"):
        await hosting.run(asyncio.Event())
