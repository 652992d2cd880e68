"""A server for each test, and a note at the end about tests that could not run."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bus.harness import BINARY
from nodepool.local.ports import free_port
from nodepool.local.server import NatsServer


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsServer]:
    """A running server, with its data in a folder of this test."""
    with NatsServer(tmp_path / "nats", free_port(), BINARY) as running:
        yield running


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Names every test that needs a container engine where there is none."""
    for report in terminalreporter.stats.get("skipped", []):
        if "test_container" in report.nodeid and isinstance(report.longrepr, tuple):
            reason = str(report.longrepr[2]).removeprefix("Skipped: ")
            terminalreporter.write_line(f"could not run: {report.nodeid}: {reason}", red=True)
