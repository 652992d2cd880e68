"""Each row of `FAULTS.md` names tests that exist."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PAGE = TESTS / "FAULTS.md"
NAMED = re.compile(r"`([\w/]+\.py)(?:::(\w+))?`")
"""A test, as a row names it: `folder/file.py::test_name`, or a whole file."""


@cache
def _names_in(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, functions))


def _rows() -> list[str]:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line.startswith("| ") and "---" not in line[:6]]


def test_every_table_has_the_same_columns() -> None:
    heads = {row for row in _rows() if row.startswith("| Fault |")}

    assert heads == {"| Fault | What is promised | What was seen | The test |"}
    assert [row for row in _rows() if row.count(" | ") != 3] == []


@pytest.mark.parametrize("row", _rows(), ids=lambda row: row.split("|")[1].strip()[:60])
def test_a_row_names_tests_that_exist(row: str) -> None:
    if row.startswith("| Fault |"):
        return

    named = NAMED.findall(row.rpartition(" | ")[2])

    assert named, "the last cell of a row names the tests that show it"
    assert [each for each in named if not _exists(*each)] == []


def _exists(file: str, name: str) -> bool:
    path = TESTS / file
    return path.exists() and (not name or name in _names_in(path))
