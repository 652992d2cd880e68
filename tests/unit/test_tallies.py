import math
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodepool.contract.metrics import (
    MACHINES,
    NODE_FAILURES,
    NODE_JOIN,
    Histogram,
    Metric,
    Sample,
)
from nodepool.engine.folded import Folded
from nodepool.engine.snapshot import dump, load
from nodepool.state import tallies
from nodepool.state.tallies import Counters, Histograms, Levels

THREE = Metric("nodepool_test_seconds", "histogram", "How long.", ("zone",), (1, 2, 5))
ZONES = st.sampled_from(("a", "b", "c"))


def observed(*values: float) -> Histogram:
    """The histogram of these values."""
    histograms = Histograms()
    for value in values:
        histograms = histograms.observe(THREE, value, "a")
    return histograms.values["a",]


def test_a_counter_of_each_label_grows_on_its_own() -> None:
    counters = Counters().add("z", "x", "boot").add("z", "x", "lost", by=2.5).add("z", "x", "boot")

    assert list(counters.samples(NODE_FAILURES)) == [
        Sample(NODE_FAILURES, ("z", "x", "boot"), 2),
        Sample(NODE_FAILURES, ("z", "x", "lost"), 2.5),
    ]


def test_what_may_be_counted_is_shown_before_its_first_count() -> None:
    boot, lost = ("z", "x", "boot"), ("z", "x", "lost")

    assert list(Counters().add(*lost).samples(NODE_FAILURES, [lost, boot])) == [
        Sample(NODE_FAILURES, boot, 0),
        Sample(NODE_FAILURES, lost, 1),
    ]
    assert list(Histograms().observe(THREE, 6, "b").samples(THREE, [("a",), ("b",)])) == [
        Sample(THREE, ("a",), Histogram((0, 0, 0, 0), 0)),
        Sample(THREE, ("b",), Histogram((0, 0, 0, 1), 6)),
    ]


def test_a_value_belongs_to_the_first_bucket_that_is_not_below_it() -> None:
    assert observed(0, 1, 1.5, 2, 6) == Histogram((2, 2, 0, 1), 10.5)


def test_a_histogram_of_other_buckets_begins_anew() -> None:
    kept = Histograms().observe(THREE, 1, "a")

    assert kept.observe(THREE._replace(buckets=(1,)), 9, "a").values["a",] == Histogram((0, 1), 9)


def test_what_there_is_none_of_any_more_has_no_level() -> None:
    free, failed = ("z", "x", "free", ""), ("z", "x", "triage", "BootFailed")
    levels = Levels().move(None, free).move(None, free).move(free, failed)
    assert dict(levels.values) == {free: 1, failed: 1}
    assert [labels for _, labels, _ in levels.samples(MACHINES)] == [free, failed]

    levels = levels.move(failed, None).move(free, None)

    assert levels == Levels()


@pytest.mark.parametrize("series", [3, 40])
def test_more_series_than_may_be_are_counted_as_others(
    series: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tallies, "SERIES_MAX", 2)
    counters, histograms = Counters(), Histograms()

    for number in range(series):
        counters = counters.add(str(number))
        histograms = histograms.observe(THREE, 1, str(number))
    counters = counters.add("0")

    assert dict(counters.values) == {("0",): 2, ("1",): 1, ("other",): series - 2}
    assert sum(histograms.values["other",].counts) == series - 2


@given(st.lists(st.tuples(ZONES, st.floats(0, 10))))
def test_a_histogram_counts_each_value_once(values: list[tuple[str, float]]) -> None:
    histograms = Histograms()
    for zone, value in values:
        histograms = histograms.observe(THREE, value, zone)

    assert sum(sum(each.counts) for each in histograms.values.values()) == len(values)
    total = math.fsum(each.sum for each in histograms.values.values())
    assert total == pytest.approx(math.fsum(value for _, value in values))


@given(st.lists(st.tuples(st.integers(0, 5), st.none() | ZONES)))
def test_levels_add_up_to_what_there_is(moves: list[tuple[int, str | None]]) -> None:
    places: dict[int, tuple[str] | None] = {}
    levels = Levels()
    for thing, zone in moves:
        after = None if zone is None else (zone,)
        levels = levels.move(places.get(thing), after)
        places[thing] = after

    there = [labels for labels in places.values() if labels is not None]
    assert dict(levels.values) == {labels: there.count(labels) for labels in set(there)}


@dataclass(frozen=True, slots=True)
class State:
    """A state that counts."""

    counters: Counters
    histograms: Histograms
    levels: Levels


def test_what_was_counted_comes_back_from_a_snapshot_as_it_was() -> None:
    state = State(
        Counters().add("a", by=0.1).add("b"),
        Histograms().observe(NODE_JOIN, 0.1, "z", "x"),
        Levels().move(None, ("a", "b")),
    )

    lines = list(dump(Folded(state)))

    assert load(State, lines).state == state
    assert list(dump(load(State, lines))) == lines
