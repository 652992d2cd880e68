"""The floor of the log: who holds it, and when the log is trimmed there."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodepool.archive.floor import (
    Extent,
    Facts,
    Keep,
    Patience,
    Standing,
    find_floor,
    is_set_due,
    list_holders,
    measure,
)
from nodepool.archive.manifests import Snapshot, SnapshotSet

MADE = "2026-11-28T00:00:01+00:00"
KEEP = Keep(seconds=2_592_000, bytes=100_000)


def snapshots(**committed: int) -> SnapshotSet:
    """A set with a snapshot of each service up to a position."""
    made = {
        name: Snapshot(
            committed=position,
            expected_sequence=position + 1,
            bytes=1,
            sha256="0" * 64,
            time=MADE,
            parts=(),
        )
        for name, position in committed.items()
    }
    return SnapshotSet(log="a", made=MADE, snapshots=made)


FACTS = Facts(
    log=Extent(first=101, last=1_100, bytes=500_000),
    read_back=1_000,
    sets=[snapshots(quota=970, fleet=960)],
    services={"quota": Standing(1_090, 985), "fleet": Standing(1_095, 990, is_optional=True)},
    young=990,
)
"""A log of which nobody needs much."""


@pytest.mark.parametrize(
    ("others", "name", "first"),
    [
        ({}, "size", 901),
        ({"read_back": 500}, "archive", 501),
        ({"read_back": 0}, "archive", 101),
        ({"sets": [snapshots(quota=970, fleet=800)]}, "snapshot set", 801),
        ({"sets": [*FACTS.sets, snapshots(quota=700, fleet=960)]}, "snapshot set", 701),
        ({"sets": [snapshots(quota=970)]}, "snapshot set", 101),
        ({"sets": []}, "snapshot set", 101),
        ({"services": {**FACTS.services, "quota": Standing(1_090, 600)}}, "quota", 601),
        ({"services": {**FACTS.services, "quota": Standing(1_090, None)}}, "quota", 101),
        ({"services": {**FACTS.services, "quota": Standing(0, None)}}, "quota", 101),
        ({"services": {**FACTS.services, "quota": Standing(500, 600)}}, "quota", 500),
        ({"young": 300}, "age", 300),
    ],
)
def test_the_floor_is_where_the_holder_is_that_needs_most(
    others: Mapping[str, object], name: str, first: int
) -> None:
    holders = list_holders(replace(FACTS, **others), KEEP)  # type: ignore[arg-type]

    assert find_floor(holders)[:2] == (name, first)


@pytest.mark.parametrize("gone", [Standing(is_optional=True), Standing(2_000, 1_990, True)])
def test_a_service_in_whose_place_something_else_may_be_holds_nothing_once_it_is_absent(
    gone: Standing,
) -> None:
    # given a service that has not committed for long, or never, and is in no snapshot set any more
    log = Extent(1, 1_000_000, 500_000_000)
    services = {"quota": Standing(999_000, 998_000), "fleet": gone}
    sets = [snapshots(quota=997_000)]
    facts = Facts(log, 1_000_000, sets, services, young=999_000)
    assert find_floor(list_holders(facts, KEEP)).name == "snapshot set"

    # when a service that must be there has not committed for long, then it holds the log
    services["fleet"] = replace(gone, is_optional=False)
    assert find_floor(list_holders(facts, KEEP)).first <= 1_991


@pytest.mark.parametrize(
    ("others", "is_due"),
    [
        ({}, False),
        ({"sets": [snapshots(quota=860, fleet=960)]}, False),
        ({"sets": [snapshots(quota=840, fleet=960)]}, True),
        ({"sets": [*FACTS.sets, snapshots(quota=840, fleet=960)]}, True),
        ({"sets": [snapshots(quota=840, fleet=960)], "young": 840}, False),
        ({"sets": [snapshots(quota=840, fleet=960)], "read_back": 850}, False),
    ],
)
def test_another_set_is_due_once_sets_alone_hold_a_quarter_of_what_is_kept(
    others: Mapping[str, object], is_due: bool
) -> None:
    facts = replace(FACTS, **others)  # type: ignore[arg-type]

    holders = list_holders(facts, KEEP)

    assert is_set_due(holders, facts.log, KEEP) is is_due


def test_what_goes_is_counted_and_its_size_estimated() -> None:
    assert measure(FACTS.log, 901) == (800, 400_000)
    assert measure(FACTS.log, 101) == (0, 0)


@given(
    st.integers(1, 10**9),
    st.integers(0, 10**6),
    st.integers(0, 10**12),
    st.integers(1, 10**13),
)
def test_the_size_that_is_kept_never_lies_outside_the_log(
    first: int, count: int, size: int, kept: int
) -> None:
    log = Extent(first, first + count - 1, size if count else 0)
    facts = replace(FACTS, log=log)

    (holder,) = [each for each in list_holders(facts, Keep(1, kept)) if each.name == "size"]

    assert log.first <= holder.first <= log.last + 1


# When the log is trimmed.


def test_a_floor_is_known_for_a_while_before_the_log_is_trimmed_there() -> None:
    # given a floor that has just become known
    patience, due = Patience().wait(500, 10.0, 600)
    assert due == 0

    # when it moves on meanwhile, then it is not trimmed before its time, nor any further
    patience, due = patience.wait(700, 609.0, 600)
    assert due == 0
    patience, due = patience.wait(800, 610.0, 600)
    assert due == 500

    # and what has become known since waits in its turn
    patience, due = patience.wait(800, 1_209.0, 600)
    assert due == 0
    _, due = patience.wait(900, 1_210.0, 600)
    assert due == 800


def test_a_floor_that_has_gone_back_waits_anew() -> None:
    patience, _ = Patience().wait(500, 0.0, 600)

    patience, due = patience.wait(300, 700.0, 600)
    assert due == 0
    _, due = patience.wait(300, 1_300.0, 600)
    assert due == 300


@given(st.lists(st.tuples(st.integers(0, 50), st.floats(0, 1_000)), max_size=60))
def test_nothing_is_trimmed_that_was_not_below_every_floor_of_the_last_ten_minutes(
    looks: list[tuple[int, float]],
) -> None:
    patience, now, seen = Patience(), 0.0, list[tuple[float, int]]()
    for floor, pause in looks:
        now += pause
        seen.append((now, floor))
        patience, due = patience.wait(floor, now, 600)
        if due:
            assert due > 1
            assert due <= min(each for at, each in seen if at >= now - 600)
