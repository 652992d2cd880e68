"""Tables on a terminal: their width and colours; and what is being deleted."""

from collections.abc import Mapping
from datetime import UTC, datetime

import pytest

from nodepool.cli import terminal
from nodepool.cli.formats import Format
from nodepool.cli.layout import Heading, Screen, Table
from nodepool.cli.names import CLUSTER, INSTANCE_TYPE, MACHINE, NODEPOOL, ZONE
from nodepool.cli.sources import Item, instance_types, zones
from nodepool.cli.tables import header, paint, row
from nodepool.cli.view import View
from nodepool.contract.conditions import HEALTHY
from nodepool.contract.documents import Document

NOW = datetime(2025, 6, 10, 14, 48, 54, tzinfo=UTC)
RED, YELLOW, END = "\x1b[31m", "\x1b[33m", "\x1b[0m"


def pool(
    name: str,
    type: str,
    *,
    in_progress: int = 0,
    validated: str = "Valid",
    capacity: str = "Sufficient",
    quota: str = "Under",
    **metadata: object,
) -> Document:
    reasons = {"Validated": validated, "Capacity": capacity, "Quota": quota}
    conditions = [
        {"type": kind, "reason": reason, "status": "True"} for kind, reason in reasons.items()
    ]
    return {
        "metadata": {"name": name, "creationTimestamp": "2025-06-10T14:48:00Z", **metadata},
        "spec": {"instanceType": type, "targetNodes": 8},
        "status": {"conditions": conditions, "currentNodes": 8, "inProgress": in_progress},
    }


EXAMPLES = [
    pool("batch", "gd-8xa100-i128"),
    pool("services", "cd-gp-i64-erapids"),
    pool("training", "gd-8xh100ib-i128"),
]


def rows(documents: list[Document]) -> list[list[str]]:
    return [row(NODEPOOL, document, NOW, wide=False) for document in documents]


def test_the_example_nodepools_fit_in_80_columns() -> None:
    table = Table(header(NODEPOOL, wide=False), Screen(80))

    lines = table.lines(rows(EXAMPLES))

    assert max(map(len, lines)) <= 80
    titles = "NAME INSTANCE TYPE TARGET CURRENT VALIDATED CAPACITY QUOTA AGE"
    assert " ".join(lines[0].split()) == titles


def test_a_column_is_left_out_only_where_it_says_nothing_new() -> None:
    busy = [*EXAMPLES, pool("new", "gd-8xh100ib-i128", in_progress=3, quota="Over")]
    table = Table(header(NODEPOOL, wide=False), Screen(80))

    lines = table.lines(rows(busy))

    assert max(map(len, lines)) <= 80
    titles = "NAME INSTANCE TYPE TARGET INPROGRESS CURRENT CAPACITY QUOTA AGE"
    assert " ".join(lines[0].split()) == titles


def test_columns_stand_closest_where_each_says_something_new() -> None:
    busy = [
        *EXAMPLES,
        pool("typo", "gd-8xh100", validated="Invalid"),
        pool("research", "gd-8xh100ib-i128", in_progress=3, capacity="Partial", quota="Over"),
    ]
    table = Table(header(NODEPOOL, wide=False), Screen(84))

    lines = table.lines(rows(busy))

    assert max(map(len, lines)) <= 84
    assert lines[0] == (
        "NAME     INSTANCE TYPE     TARGET INPROGRESS CURRENT VALIDATED CAPACITY   QUOTA AGE"
    )


def test_nothing_is_left_out_where_there_is_room_or_no_limit() -> None:
    wide = Table(header(NODEPOOL, wide=False), Screen(120)).lines(rows(EXAMPLES))
    piped = Table(header(NODEPOOL, wide=False)).lines(rows(EXAMPLES))

    assert wide == piped
    assert piped[0].split()[3:6] == ["TARGET", "INPROGRESS", "CURRENT"]


def test_a_watch_shows_a_left_out_column_below_a_new_header_once_it_says_something() -> None:
    table = Table([Heading("NAME"), Heading("BUSY", "0"), Heading("LAST")], Screen(17))

    first = table.lines([["a-name", "0", "long"]])
    same = table.lines([["a-name", "0", "long"]])
    then = table.lines([["a-name", "7", "long"]])

    assert first == ["NAME    LAST", "a-name  long"]
    assert same == ["a-name  long"]
    assert then == ["NAME   BUSY  LAST", "a-name 7     long"]


def test_a_table_without_headers_gets_none_later() -> None:
    table = Table([Heading("NAME"), Heading("BUSY", "0"), Heading("LAST")], Screen(15))
    table.without_header()

    assert table.lines([["a-long-name", "0", "l"]]) == ["a-long-name  l"]
    assert table.lines([["a-long-name", "1", "l"]]) == ["a-long-name 1     l"]


def test_a_nodepool_that_is_being_deleted_looks_like_it() -> None:
    deleting = pool("a", "t", deletionTimestamp="2025-06-10T14:48:30Z")

    assert row(NODEPOOL, deleting, NOW, wide=False)[5:8] == ["Terminating", "-", "-"]


@pytest.mark.parametrize(
    ("title", "text", "shown"),
    [
        ("QUOTA", "Over", f"{RED}Over{END}"),
        ("CAPACITY", "Partial", f"{YELLOW}Partial{END}"),
        ("VALIDATED", "Terminating", f"{YELLOW}Terminating{END}"),
        ("STATUS", "Ready,SchedulingDisabled", f"{YELLOW}Ready,SchedulingDisabled{END}"),
        ("STATUS", "NotReady", f"{RED}NotReady{END}"),
        ("TYPE", "Warning", f"{YELLOW}Warning{END}"),
        ("STATE", "Triage", f"{RED}Triage{END}"),
        ("STATE", "Free", "Free"),
        ("NAME", "Over", "Over"),
    ],
)
def test_what_is_not_healthy_has_a_colour(title: str, text: str, shown: str) -> None:
    assert paint(title, text) == shown


def test_a_healthy_reason_has_no_colour() -> None:
    assert [paint("QUOTA", str(reason)) for reason in HEALTHY] == [str(each) for each in HEALTHY]


def test_a_colour_takes_no_room_in_a_column() -> None:
    table = Table(["QUOTA", "AGE"], Screen(80, paint))

    assert table.lines([["Over", "5s"]]) == ["QUOTA   AGE", f"{RED}Over{END}    5s"]


class Output:
    """A standard output that is a terminal or not."""

    def __init__(self, *, is_terminal: bool) -> None:
        self.isatty = lambda: is_terminal


@pytest.mark.parametrize(
    ("is_terminal", "environment", "width", "coloured"),
    [
        (True, {}, 91, True),
        (True, {"NO_COLOR": ""}, 91, True),
        (True, {"NO_COLOR": "1"}, 91, False),
        (True, {"TERM": "dumb"}, 91, False),
        (False, {}, None, False),
    ],
)
def test_colours_and_widths_are_those_of_the_terminal(
    is_terminal: bool,
    environment: Mapping[str, str],
    width: int | None,
    coloured: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stdout", Output(is_terminal=is_terminal))
    monkeypatch.setenv("COLUMNS", "91")

    screen = terminal.screen(paint, environment)

    assert screen.width == width
    assert (screen.paint("QUOTA", "Over") != "Over") is coloured


# Types that no bucket holds, or that may lack fields.


def test_zones_and_instance_types_show_their_machines() -> None:
    capacity = [
        {"zone": "RNO2A", "instanceType": "gd-8xa100-i128", "free": 3, "assigned": 1, "triage": 0},
        {"zone": "US-EAST-04A", "instanceType": "gd-8xa100-i128", "free": 4, "assigned": 0},
    ]
    cells = {
        each[0]: each[1:]
        for kind, documents in (
            (ZONE, zones(capacity)),
            (INSTANCE_TYPE, instance_types(capacity)),
        )
        for each in (row(kind, document, NOW, wide=False) for document in documents)
    }

    assert cells["RNO2A"] == ["RNO2", "general", "8", "3", "1", "0"]
    assert cells["gd-8xa100-i128"] == ["gpu", "A100", "8", "128", "7"]


def test_machines_and_clusters_show_a_dash_for_what_is_missing() -> None:
    machine = {
        "metadata": {"name": "g1"},
        "spec": {"instanceType": "t", "zone": "Z"},
        "status": {"state": "Triage", "fault": "boot", "cause": "disk"},
    }
    cluster = {"metadata": {"name": "prod"}, "spec": {"org": "acme", "zone": "Z"}}

    assert row(MACHINE, machine, NOW, wide=True) == ["g1", "Z", "t", "Triage", "-", "boot", "disk"]
    assert row(CLUSTER, cluster, NOW, wide=True) == ["prod", "acme", "Z", "-"]
    assert row(MACHINE, {}, NOW, wide=False) == ["-"] * 6


def waiting(document: Document, position: int) -> Document:
    """A NodePool with this place in the queue; with no place where it is 0."""
    status = document["status"]
    assert isinstance(status, dict)
    place = {"queuePosition": position} if position else {}
    return {**document, "status": {**status, **place}}


@pytest.mark.parametrize(("positions", "has_column"), [((0, 0), False), ((0, 3), True)])
def test_the_place_in_the_queue_has_a_column_where_a_nodepool_waits(
    positions: tuple[int, int], has_column: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    items = [
        Item(name, waiting(pool(name, "gd-8xa100-i128"), position))
        for name, position in zip("ab", positions, strict=True)
    ]

    view = View(NODEPOOL, format=Format("wide")).fit_columns(items)
    view.print_items(view.table(), items)

    titles, *lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ("QUEUEPOSITION" in titles) is has_column
    assert titles[-1] == "AGE"
    if has_column:
        assert [line[-2] for line in lines] == ["-", "3"]
