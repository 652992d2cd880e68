"""A server for each test, and a loud word at the end about what could not be run."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bus.harness import BINARY
from nodepool.local.ports import free_port
from nodepool.local.server import NatsServer

COULD_NOT_RUN = pytest.StashKey[list[str]]()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsServer]:
    """A server that runs, with its data in a folder of this test."""
    with NatsServer(tmp_path / "nats", free_port(), BINARY) as running:
        yield running


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Names every test on a container engine that this machine cannot run."""
    for report in terminalreporter.stats.get("skipped", []):
        if "test_container" in report.nodeid and isinstance(report.longrepr, tuple):
            reason = str(report.longrepr[2]).removeprefix("Skipped: ")
            terminalreporter.write_line(f"could not run: {report.nodeid}: {reason}", red=True)
