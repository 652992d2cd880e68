"""Each row of `FAULTS.md` names tests that exist, and each file of tests that it stands for."""

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
    return [
        line
        for line in lines
        if line.startswith("| ") and not line.startswith(("| Fault", "| ---"))
    ]


@pytest.mark.parametrize("row", _rows(), ids=lambda row: row.split("|")[1].strip()[:60])
def test_a_row_of_the_page_of_faults_names_tests_that_exist(row: str) -> None:
    _, *cells, _ = row.split(" | ") if row.count(" | ") == 3 else ("", *row.split(" | "), "")
    named = NAMED.findall(row.rpartition(" | ")[2])

    missing = [
        f"{file}::{name}" if name else file
        for file, name in named
        if not (TESTS / file).exists() or (name and name not in _names_in(TESTS / file))
    ]

    assert named, "the last cell of a row names the tests that show it"
    assert missing == []
