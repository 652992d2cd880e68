"""Command line options of the whole test suite, and how it is collected."""

import gc
from collections.abc import Generator

import pytest
from hypothesis import settings

from support.examples import USUAL


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Run coroutines of tests with asyncio only."""
    return "asyncio"


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
    parser.addoption(
        "--examples",
        type=int,
        default=USUAL,
        metavar="N",
        help=f"how many examples hypothesis tries for each property (default: {USUAL})",
    )
    parser.addoption(
        "--short",
        action="store_true",
        help="fail services at fewer of their inputs, and repeat no simulation without its fault",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Has each property tried on so many examples; how long one takes depends on the machine."""
    examples = config.getoption("--examples")
    settings.register_profile("suite", max_examples=examples, deadline=None)
    settings.load_profile("suite")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Makes all tests without a search for garbage, and keeps them out of each later one.

    The tests and what they import stay until the process ends. Searching them for garbage takes
    half the time of making them.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Names every test that could not run on this machine, and why."""
    for report in terminalreporter.stats.get("skipped", []):
        if isinstance(report.longrepr, tuple):
            reason = str(report.longrepr[2]).removeprefix("Skipped: ")
            terminalreporter.write_line(f"could not run: {report.nodeid}: {reason}", red=True)
