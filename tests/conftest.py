"""Command line options of the whole test suite."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--seeds",
        type=int,
        default=45,
        metavar="N",
        help="how many simulations of faults to run (default: 45)",
    )
    parser.addoption(
        "--seed",
        type=int,
        default=None,
        metavar="S",
        help="run the simulation of this seed only",
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Names every test that could not run on this machine, and why."""
    for report in terminalreporter.stats.get("skipped", []):
        if isinstance(report.longrepr, tuple):
            reason = str(report.longrepr[2]).removeprefix("Skipped: ")
            terminalreporter.write_line(f"could not run: {report.nodeid}: {reason}", red=True)
