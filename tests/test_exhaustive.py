"""A message that a service hears or says and nowhere handles is a type error, in every service."""

import re
import subprocess
import sys
from functools import cache
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


@cache
def errors(folder: Path) -> str:
    """What mypy reports on all services once each hears and says one more message."""
    shadows: list[str] = []
    for service in SERVICES:
        original = ROOT / "services" / service / "__init__.py"
        changed = folder / f"{service}.py"
        changed.write_text(with_new_messages(original.read_text(encoding="utf-8")))
        shadows += ["--shadow-file", str(original.relative_to(ROOT)), str(changed)]
    command = [sys.executable, "-m", "mypy", f"--cache-dir={folder / 'cache'}", *shadows]
    packages = [argument for service in SERVICES for argument in ("--package", service)]
    found = subprocess.run(
        [*command, *packages], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert "error:" in found.stdout, found.stdout + found.stderr
    return found.stdout


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The errors, found once for all services."""
    return errors(tmp_path_factory.mktemp("mypy"))


@pytest.mark.parametrize("service", SERVICES)
def test_a_message_that_is_heard_and_not_handled_fails_the_type_check(
    service: str, report: str
) -> None:
    unhandled = re.compile(
        rf'^services/{service}/(\w+)\.py:.*"assert_never".*Unheard', re.MULTILINE
    )

    modules = set(unhandled.findall(report))

    matching = {
        name
        for name in ("state", "decide")
        if "assert_never" in (ROOT / "services" / service / f"{name}.py").read_text()
    }
    # The state of the aggregator has two parts; the events of the read model are in `changes`.
    assert modules >= (matching if "state" in matching else {*matching, "changes"}), report


@pytest.mark.parametrize("service", SERVICES)
def test_a_message_that_is_said_and_not_folded_fails_the_type_check(
    service: str, report: str
) -> None:
    messages = (ROOT / "services" / service / "__init__.py").read_text()
    unhandled = re.compile(rf'(?m)^services/{service}/state\.py:.*"assert_never".*Unsaid')

    assert bool(unhandled.search(report)) is ("Says = " in messages), report
