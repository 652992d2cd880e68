"""A message that a service hears or says and nowhere handles is a type error, in every service."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SERVICES = tuple(sorted(path.parent.name for path in ROOT.glob("services/*/decide.py")))
NEW_MESSAGES = """

class Unheard(Event, OfPool):
    speaker: ClassVar[str] = "validator"


class Unsaid(Event, OfPool):
    speaker: ClassVar[str] = "validator"
"""


def with_new_messages(text: str) -> str:
    """A service's `__init__.py` with one more message heard, and one more said if it says any.

    The service also decides on the message that it hears, unless it decides on none.
    """
    imports = "from typing import ClassVar\nfrom nodepool.contract.messages import Event, OfPool\n"
    name = "Decides" if "Decides = " in text else "Hears"
    head, heard = text.split(f"{name} = ", 1)
    heard = re.sub(r"\A(\(?)", rf"{name} = \1Unheard | ", heard)
    return (
        head + imports + NEW_MESSAGES + re.sub(r"(?m)^Says = (\(?)", r"Says = \1Unsaid | ", heard)
    )


def _matches(service: str, module: str) -> bool:
    path = ROOT / "services" / service / f"{module}.py"
    return path.exists() and "assert_never" in path.read_text(encoding="utf-8")


def list_matching(service: str) -> list[str]:
    """Return the modules of a service that have to handle each message that the service hears."""
    # The state of the aggregator has two parts; the events of the read model are in `changes`.
    states = "state" if _matches(service, "state") else "changes"
    return [f"{service}.{name}" for name in (states, "decide") if _matches(service, name)]


MATCHING = frozenset(module for service in SERVICES for module in list_matching(service))
"""The modules that mypy checks; it reads all others only for their types."""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return what mypy reports if each service hears and says one more message."""
    folder = tmp_path_factory.mktemp("mypy")
    shadows: list[str] = []
    for service in SERVICES:
        original = ROOT / "services" / service / "__init__.py"
        changed = folder / f"{service}.py"
        changed.write_text(with_new_messages(original.read_text(encoding="utf-8")))
        shadows += ["--shadow-file", str(original.relative_to(ROOT)), str(changed)]
    # A cache would only be written: nothing reads it again.
    options = ("--no-incremental", "--cache-dir=/dev/null", "--follow-imports=silent")
    modules = [argument for module in sorted(MATCHING) for argument in ("--module", module)]
    found = subprocess.run(
        [sys.executable, "-m", "mypy", *options, *shadows, *modules],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "error:" in found.stdout, found.stdout + found.stderr
    return found.stdout


def find_unhandled(message: str, report: str) -> set[str]:
    """Return the modules in which mypy finds a message that is not handled."""
    found = re.findall(rf'(?m)^services/(\w+)/(\w+)\.py:.*"assert_never".*{message}', report)
    return {f"{service}.{module}" for service, module in found}


# Two tests for all services: with a test for each, most processes of a run would start mypy.


def test_a_message_that_is_heard_and_not_handled_fails_the_type_check(report: str) -> None:
    assert {module.partition(".")[0] for module in MATCHING} == {*SERVICES}
    assert find_unhandled("Unheard", report) >= MATCHING, report


def test_a_message_that_is_said_and_not_folded_fails_the_type_check(report: str) -> None:
    saying = {
        f"{service}.state"
        for service in SERVICES
        if "Says = " in (ROOT / "services" / service / "__init__.py").read_text()
    }

    unfolded = find_unhandled("Unsaid", report)

    assert {module for module in unfolded if module.endswith(".state")} == saying, report
