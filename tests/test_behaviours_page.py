"""`flow/BEHAVIOURS.md` has every documented name, and names tests that exist."""

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

from nodepool.cli.names import NODEPOOL
from nodepool.cli.schema import NodePoolShape
from nodepool.cli.tables import COLUMNS
from nodepool.contract import conditions, events
from nodepool.contract.availability import Availability
from nodepool.contract.events import KubernetesEvent
from nodepool.contract.model import MANAGED_TAINTS, RemovalReason, ScaleDownStrategy
from nodepool.contract.reference import describe_model
from nodepool.contract.timetable import DRAIN_AFTER, GONE_AFTER

TESTS = Path(__file__).parent
ROOT = TESTS.parent
PAGE = TESTS / "flow" / "BEHAVIOURS.md"
HEAD = "| Nr | Behaviour | Shown by |"
LINE = re.compile(r"\| ([NWS]\d+) \| (.+) \| (.+) \|")
NAMED = re.compile(r"`([\w/]+\.py)(?:::(\w+))?`")
"""A test, as a line names it: `folder/file.py::test_name`, or a whole file."""
KUBERNETES = "belongs to Kubernetes"
KEY = re.compile(
    r'"((?:[a-z0-9-]+\.)+(?:coreweave\.(?:cloud|com)|kubernetes\.io)/[A-Za-z0-9._-]+)"'
)
"""The key of a label, an annotation or a taint, as the sources write it."""
FOREIGN = frozenset(
    {
        "app.kubernetes.io/part-of",
        "compute.coreweave.com/v1alpha1",
        "kubectl.kubernetes.io/last-applied-configuration",
    }
)
"""What looks like such a key, and is a version, or belongs to another program."""


@cache
def _page() -> str:
    return PAGE.read_text(encoding="utf-8")


def _lines() -> list[tuple[str, str, str]]:
    """Number, behaviour and tests of each line."""
    matches = (LINE.fullmatch(line) for line in _page().splitlines())
    return [(match[1], match[2], match[3]) for match in matches if match]


def _event_reasons() -> Iterator[str]:
    """The reason of every Kubernetes Event that is said."""
    for item in vars(events).values():
        if (
            isinstance(item, type)
            and issubclass(item, KubernetesEvent)
            and item.__module__ != (KubernetesEvent.__module__)
        ):
            yield item.reason


def _condition_names() -> Iterator[str]:
    """The type of every condition of a NodePool, and its reasons."""
    for kind in conditions.ORDER:
        yield kind.__name__
        yield from (reason.value for reason in kind)


def _node_conditions() -> Iterator[str]:
    """The conditions of Nodes that the documents of the read model have."""
    text = (ROOT / "services/aggregator/documents.py").read_text(encoding="utf-8")
    yield from re.findall(r'"(CW\w+)"', text)


def _fields() -> Iterator[str]:
    """The fields of a spec and of a status, and those of what they hold."""
    for part in describe_model(NodePoolShape, "nodepool").fields:
        if part.name in ("spec", "status"):
            for field in part.fields:
                yield field.name
                if field.name in ("image", "lifecycle", "schedulingPriority", "rackStatus"):
                    yield from (inner.name for inner in field.fields)


def _keys() -> Iterator[str]:
    """The key of every label, annotation and taint that the sources of the product name."""
    for folder in ("services", "shared/nodepool"):
        for path in (ROOT / folder).rglob("*.py"):
            yield from set(KEY.findall(path.read_text(encoding="utf-8"))) - FOREIGN


def test_every_section_names_its_public_page_and_has_a_table() -> None:
    sections = _page().split("\n## ")[1:]

    wrong = [
        section.splitlines()[0]
        for section in sections
        if not section.splitlines()[2].startswith("https://docs.coreweave.com/")
        or section.splitlines()[4] != HEAD
    ]

    assert wrong == []
    assert len(sections) > 20


def test_lines_are_numbered_in_their_order() -> None:
    table_lines = [each for each in _page().splitlines() if re.match(r"\| [NWS]\d", each)]
    numbers: dict[str, list[int]] = {}
    for number, _, _ in _lines():
        numbers.setdefault(number[0], []).append(int(number[1:]))

    assert len(table_lines) == len(_lines()), "a line has a number, a behaviour and its tests"
    assert numbers == {kind: list(range(1, len(each) + 1)) for kind, each in numbers.items()}


def test_no_behaviour_stands_twice_in_a_section() -> None:
    twice = []
    for section in _page().split("\n## ")[1:]:
        found = Counter(match[2] for match in map(LINE.fullmatch, section.splitlines()) if match)
        twice += [text for text, count in found.items() if count > 1]

    assert twice == []


@pytest.mark.parametrize("line", _lines(), ids=lambda line: line[0])
def test_a_behaviour_is_shown_by_tests_that_exist(line: tuple[str, str, str]) -> None:
    _, _, shown = line

    named = NAMED.findall(shown)

    assert named or shown == KUBERNETES, "name a test, or say that it belongs to Kubernetes"
    assert [each for each in named if not _exists(*each)] == []


def _exists(file: str, name: str) -> bool:
    path = TESTS / file
    return path.exists() and (not name or name in _names_in(path))


@cache
def _names_in(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, functions))


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(_event_reasons, id="events"),
        pytest.param(_condition_names, id="conditions and reasons"),
        pytest.param(_node_conditions, id="conditions of Nodes"),
        pytest.param(lambda: (column.title for column in COLUMNS[NODEPOOL]), id="columns"),
        pytest.param(_fields, id="fields"),
        pytest.param(_keys, id="labels and annotations"),
        pytest.param(lambda: (taint.key for taint in MANAGED_TAINTS), id="taints"),
        pytest.param(lambda: (tag.value for tag in Availability), id="tags"),
        pytest.param(lambda: (*RemovalReason, *ScaleDownStrategy), id="values"),
    ],
)
def test_every_documented_name_stands_on_the_page(names: Callable[[], Iterable[str]]) -> None:
    spans = re.findall(r"`([^`]+)`", _page())
    on_page = {*spans, *(part for span in spans for part in re.split(r"[.: ]+", span))}

    missing = set(names()) - on_page

    assert sorted(missing) == [], "add a line to tests/flow/BEHAVIOURS.md"


def test_the_times_of_the_stages_stand_on_the_page() -> None:
    stages = {f"At {int(after.total_seconds()) // 60}:00 " for after in (DRAIN_AFTER, GONE_AFTER)}

    assert [stage for stage in sorted({"At 0:00 ", *stages}) if stage not in _page()] == []
