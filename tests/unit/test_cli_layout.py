from datetime import UTC, datetime, timedelta

import pytest

from nodepool.cli.layout import Table, align_columns, escape_text, visible
from nodepool.cli.names import CAPACITY, NODE, NODEPOOL, QUOTA
from nodepool.cli.tables import has_rare, header, pools_table, row
from nodepool.cli.times import age, duration_s, human, moment

NOW = datetime(2025, 6, 10, 14, 48, 54, tzinfo=UTC)


def condition(kind: str, reason: str, status: str = "True") -> dict[str, str]:
    return {"type": kind, "status": status, "reason": reason, "message": ""}


POOL = {
    "metadata": {"name": "test-pool", "creationTimestamp": "2025-06-09T14:48:54Z"},
    "spec": {"instanceType": "gd-8xa100-i128", "targetNodes": 1},
    "status": {
        "conditions": [
            condition("Validated", "Valid"),
            condition("Capacity", "Sufficient"),
            condition("Quota", "Under"),
            condition("AtTarget", "TargetMet"),
        ],
        "currentNodes": 1,
        "inProgress": 0,
    },
}


def test_nodepools_are_listed_as_the_reference_lists_them() -> None:
    table = Table(header(NODEPOOL, wide=False))

    lines = table.lines([row(NODEPOOL, POOL, NOW, wide=False)])

    titles = "NAME INSTANCE TYPE TARGET INPROGRESS CURRENT VALIDATED CAPACITY QUOTA AGE"
    assert [" ".join(line.split()) for line in lines] == [
        titles,
        "test-pool gd-8xa100-i128 1 0 1 Valid Sufficient Under 24h",
    ]
    assert lines[0].startswith("NAME        INSTANCE TYPE    TARGET   INPROGRESS   CURRENT")
    assert lines[1].startswith("test-pool   gd-8xa100-i128   1        0            1")


def test_the_wide_columns_stand_before_age_and_show_a_dash_for_what_is_absent() -> None:
    titles = [str(title) for title in header(NODEPOOL, wide=True)]

    cells = dict(zip(titles, row(NODEPOOL, POOL, NOW, wide=True), strict=True))

    assert titles[-5:] == ["ALLOCATEDNODES", "ALLOCATED", "ALLOCATEDREASON", "ACCEPTED", "AGE"]
    assert [cells[title] for title in titles[-5:]] == ["-", "-", "-", "-", "24h"]


def test_the_deprecated_columns_show_their_conditions_where_there_are_any() -> None:
    old = [condition("Allocated", "Complete"), condition("Accepted", "Accepted")]
    pool = {**POOL, "status": {"conditions": old, "allocatedNodes": 3}}

    cells = row(NODEPOOL, pool, NOW, wide=True)

    assert cells[-5:-1] == ["3", "True", "Complete", "Accepted"]
    assert cells[5:8] == ["-", "-", "-"]


def test_a_table_of_nodepools_ends_without_a_newline() -> None:
    assert pools_table([]).startswith("NAME   INSTANCE TYPE   TARGET")
    assert len(pools_table([POOL, POOL]).split("\n")) == 3


def test_a_cordoned_node_is_shown_as_kubectl_shows_it() -> None:
    node = {
        "metadata": {
            "name": "g0000a1",
            "labels": {
                "compute.coreweave.com/node-pool": "training",
                "node.kubernetes.io/instance-type": "gd-8xa100-i128",
            },
            "creationTimestamp": "2025-06-10T14:48:00Z",
        },
        "spec": {"unschedulable": True},
        "status": {
            "conditions": [
                condition("CWRegistered", "Registered"),
                condition("CWActive", "NoWorkloads", "False"),
            ]
        },
    }

    cells = row(NODE, node, NOW, wide=False)

    status = "Ready,SchedulingDisabled"
    assert cells == ["g0000a1", status, "training", "gd-8xa100-i128", "False", "54s"]


def test_quotas_show_what_is_left_and_never_less_than_nothing() -> None:
    quota = {"zone": "Z", "instanceType": "t", "limit": 2, "used": 5}

    assert row(QUOTA, quota, NOW, wide=False) == ["Z", "t", "2", "5", "0"]
    assert row(QUOTA, {**quota, "limit": None}, NOW, wide=False) == ["Z", "t", "-", "5", "-"]


def test_capacity_shows_the_machines_by_where_they_are() -> None:
    counts = {"free": 1, "assigned": 2, "triage": 3, "reclaimed": 4}

    shown = row(CAPACITY, {"zone": "Z", "instanceType": "t", **counts}, NOW, wide=True)

    assert shown == ["Z", "t", "1", "2", "3", "4"]


def test_capacity_has_a_wide_column_for_machines_that_are_being_wiped() -> None:
    document = {"zone": "Z", "instanceType": "t", "free": 1, "zap": 2}

    assert has_rare(CAPACITY, document)
    assert row(CAPACITY, document, NOW, wide=True, rare=True)[-1] == "2"


def test_a_watched_column_never_becomes_narrower() -> None:
    table = Table(["NAME", "X", "AGE"])

    first = table.lines([["a-long-name", "1", "2s"]])
    then = table.lines([["a", "1", "3s"]])

    assert first == ["NAME          X     AGE", "a-long-name   1     2s"]
    assert then == ["a             1     3s"]


def test_a_cell_shows_its_first_line_only() -> None:
    table = Table(["A", "B"]).without_header()

    assert table.lines([["one\ntwo", "end"]]) == ["one...   end"]


def test_nothing_shown_can_command_the_terminal() -> None:
    assert escape_text("a\x1b[31m\rb\tc\n") == "a^[[31m\\rb c\\n"
    assert visible("bell\a del\x7f csi\x9b31m\u202eback") == (
        "bell^G del\\u007f csi\\u009b31m\\u202eback"
    )
    assert visible("é\t\n") == "é\t\n"


def test_a_column_ends_where_a_line_has_no_cell_in_it() -> None:
    lines = align_columns([["a:", "1"], ["long name:", "2"], ["Header:"], ["b:", "3"], ["", "4"]])

    assert lines == ["a:          1", "long name:  2", "Header:", "b:  3", "    4"]


def test_columns_further_right_are_laid_out_within_their_own_block() -> None:
    lines = align_columns([["a", "bbb", "c"], ["a", "b", "c"], ["aaaa", "b"]])

    assert lines == ["a     bbb  c", "a     b    c", "aaaa  b"]


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (-5, "<invalid>"),
        (-1.5, "0s"),
        (0, "0s"),
        (5, "5s"),
        (119, "119s"),
        (120, "2m"),
        (150, "2m30s"),
        (599, "9m59s"),
        (600, "10m"),
        (45 * 60, "45m"),
        (3 * 3600 - 1, "179m"),
        (3 * 3600, "3h"),
        (3 * 3600 + 20 * 60, "3h20m"),
        (8 * 3600 + 59 * 60, "8h"),
        (24 * 3600, "24h"),
        (47 * 3600, "47h"),
        (48 * 3600, "2d"),
        (53 * 3600, "2d5h"),
        (8 * 86_400, "8d"),
        (9 * 86_400 + 3600, "9d"),
        (729 * 86_400, "729d"),
        (730 * 86_400, "2y"),
        (800 * 86_400, "2y70d"),
        (8 * 365 * 86_400, "8y"),
    ],
)
def test_ages_are_written_as_kubectl_writes_them(seconds: float, shown: str) -> None:
    assert human(seconds) == shown


def test_an_age_counts_from_a_moment_and_is_unknown_without_one() -> None:
    since = (NOW - timedelta(minutes=150)).strftime("%Y-%m-%dT%H:%M:%SZ")

    assert age(since, NOW) == "150m"
    assert age("", NOW) == "<unknown>"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0), ("60s", 60), ("1m30s", 90), ("1.5h", 5400), ("200ms", 0.2), ("0s", 0)],
)
def test_durations_are_read_as_go_reads_them(text: str, seconds: float) -> None:
    assert duration_s(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "60", "5 s", "1d", "-5s", "s"])
def test_other_texts_are_no_durations_and_the_error_shows_one_that_is(text: str) -> None:
    with pytest.raises(ValueError, match="write it as 60s"):
        duration_s(text)


@pytest.mark.parametrize(
    "text", ["2026-01-01T12:00:00Z", "2026-01-01T14:00:00+02:00", "2026-01-01T12:00:00"]
)
def test_every_timestamp_can_be_compared_with_every_other(text: str) -> None:
    assert moment(text) == datetime(2026, 1, 1, 12, tzinfo=UTC)
    assert moment("yesterday") is None
