"""What is changed in a module, and what is left alone."""

from pathlib import Path

import pytest

pytest.importorskip("libcst", reason="mutmut is locked for Python 3.11 and 3.12")

from mutation.mutants import Mutant, apply, find_changes, is_accepted, sample
from mutation.stories import FOLDERS, TESTS

ROOT = Path(__file__).parents[2]


def changes(source: str) -> list[str]:
    """Every text that a change makes of a module."""
    module, found = find_changes(source)
    return [apply(module, change) for change in found]


@pytest.mark.parametrize(
    ("source", "changed"),
    [
        ("def f(a): return a < 3", ["def f(a): return a <= 3", "def f(a): return a < 4"]),
        ("def f(a):\n    if a: g()\n", ["def f(a):\n    if not (a): g()\n"]),
        ("def f(a):\n    return replace(a, b=a)\n", ["def f(a):\n    return replace(a, )\n"]),
        (
            "class A:\n    @property\n    def b(self): return True\n",
            ["class A:\n    @property\n    def b(self): return False\n"],
        ),
    ],
)
def test_a_decision_is_changed(source: str, changed: list[str]) -> None:
    assert changes(source) == changed


def test_a_case_is_dropped_and_its_guard_turned_round_or_taken_away() -> None:
    found = changes(
        "def f(a):\n"
        "    match a:\n"
        "        case A() if a.b:\n"
        "            return g()\n"
        "        case _:\n"
        "            assert_never(a)\n"
    )

    assert [text.splitlines()[2] if "A()" in text else "        (no case A)" for text in found] == [
        "        (no case A)",
        "        case A() if not (a.b):",
        "        case A() :",
    ]


@pytest.mark.parametrize(
    "source",
    [
        'def f():\n    """Return 1."""\n    return g()\n',
        "def f(a: int | None) -> list[bool | int]: return a\n",
        'def f(a):\n    assert a != 1, "too many"\n',
        "def f(a, b): return zip(a, b, strict=True)\n",
        "LIMIT = 3\n",
        "@cache\ndef f(): return 1\n",
        "def f(a): return g(a, b=a)\n",
    ],
)
def test_what_states_or_describes_something_is_left_alone(source: str) -> None:
    assert changes(source) == []


def test_what_python_refuses_is_no_mutant() -> None:
    source = "match 1:\n    case _:\n        f()\n    case 1:\n        g()\n"

    assert [is_accepted(Mutant(Path("a.py"), "", text)) for text in ("a = 1\n", source)] == [
        True,
        False,
    ]


def test_only_modules_that_are_asked_for_are_changed() -> None:
    drawn = sample(ROOT, FOLDERS, 3, 1, "quota/line")

    assert {str(each.path) for each in drawn} == {"services/quota/line.py"}


def test_a_mutant_is_shown_as_a_patch_and_on_one_line() -> None:
    mutant = Mutant(Path("a/b.py"), "x = 1\nif a:\n    y = 2\n", "x = 1\nif a:\n    y = 3\n")

    assert mutant.diff.splitlines()[3:] == [" x = 1", " if a:", "-    y = 2", "+    y = 3"]
    assert str(mutant) == "a/b.py: - y = 2 + y = 3"


def test_the_tests_that_have_to_notice_exist() -> None:
    assert [name for name in TESTS if not (ROOT / name).is_file()] == []
