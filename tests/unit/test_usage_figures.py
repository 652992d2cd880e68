"""The metric of the running month: the same numbers as a replay, without the time of any Node."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from random import Random

import pytest

import aggregator.decide
from aggregator.counted import count_nodes
from aggregator.figures.usage import UsageFigures
from aggregator.state import State
from nodepool.contract import metrics
from nodepool.contract.keys import NodeKey
from nodepool.contract.log import Entry, LogId
from nodepool.engine.past import read_into, state_of
from nodepool.engine.replica import Replica
from nodepool.engine.world import START
from nodepool.state.tallies import Labels
from nodepool.usage.nodes import CountedNode, event_of, evolve
from support.reference.usage import count_usage
from support.replay import scenario_log
from support.simulation.driver import simulated_log

MICROSECOND = timedelta(microseconds=1)
MONTH = (START + timedelta(days=40)).replace(day=1)


def states_at(entries: Sequence[Entry], places: Iterable[int]) -> Iterator[State]:
    """Yield the state of an aggregator after it has read the messages before each place."""
    replica = Replica(aggregator.decide.SERVICE, log=LogId("simulation"))
    for place in places:
        read_into(replica, entries[:place])
        yield state_of(replica)


def figures_at(entries: Sequence[Entry], places: Iterable[int]) -> Iterator[UsageFigures]:
    """Return the figures of an aggregator after the messages before each place."""
    return (state.figures.usage for state in states_at(entries, places))


def counted(entries: Sequence[Entry], since: datetime, until: datetime) -> dict[Labels, int]:
    """The microseconds of each use by organisation and type, as the reference counts them."""
    sums = Counter[Labels]()
    for (group, use, _), micros in count_usage(entries, since, until).items():
        sums[group[0], group[3], use] += micros
    return dict(sums)


def shown(figures: UsageFigures) -> dict[Labels, float]:
    return {
        each.labels: float(each.value)  # type: ignore[arg-type]  # No histogram.
        for each in figures.samples()
        if each.metric is metrics.NODE_USE_SECONDS
    }


@pytest.mark.parametrize("seed", [0, 2, 5, 6])
def test_the_aggregator_knows_the_nodes_as_a_replay_of_their_events_does(seed: int) -> None:
    entries, nodes = simulated_log(seed).entries, dict[NodeKey, CountedNode]()
    places, seen = sorted(Random(seed).sample(range(1, len(entries)), 12)), Counter[str]()
    states = states_at(entries, places)

    for place, entry in enumerate(entries, 1):
        event = event_of(entry)
        if event is not None:
            after = evolve(nodes.get(event.node_key), event)
            nodes.pop(event.node_key, None)
            nodes |= {} if after is None else {event.node_key: after}
        if place in places:
            assert count_nodes(next(states)) == nodes
            seen.update(node.use.value for node in nodes.values())

    assert seen, "there were Nodes"


@pytest.mark.parametrize("seed", range(4))
def test_the_seconds_of_a_month_are_those_of_a_replay(seed: int) -> None:
    entries = simulated_log(seed).entries

    places = sorted(Random(seed).sample(range(len(entries) // 4, len(entries)), 6))
    for place, figures in zip(places, figures_at(entries, places), strict=True):
        at = datetime.fromtimestamp(0, tz=START.tzinfo) + figures.at * MICROSECOND
        expected = counted(entries[:place], START, at)

        assert shown(figures) == pytest.approx(
            {labels: expected.get(labels, 0) / 1e6 for labels in shown(figures)}
        )
        assert expected.keys() <= shown(figures).keys()


def test_a_new_month_begins_with_the_nodes_that_there_are_and_without_their_past() -> None:
    # given a log in the middle of which a month begins
    log = scenario_log()
    middle = log[len(log) // 2].time
    entries = [entry._replace(time=entry.time - middle + MONTH) for entry in log]

    (figures,) = figures_at(entries, [len(entries)])

    at = datetime.fromtimestamp(0, tz=START.tzinfo) + figures.at * MICROSECOND
    assert at > MONTH
    expected = counted(entries, MONTH, at)
    assert {labels: seconds for labels, seconds in shown(figures).items() if seconds} == {
        labels: micros / 1e6 for labels, micros in expected.items()
    }
    # and what nobody had this month is forgotten
    assert all(level.nodes or level.micros(figures.at) for level in figures.levels.values())


def test_the_figures_take_as_much_room_after_a_year_as_after_a_month() -> None:
    figures = UsageFigures()
    for day in range(400):
        # given an organisation that comes with each day, and goes with it
        labels = [(f"org-{day}", "t", use) for use in ("used", "idle", "lost")]
        for one, other in zip(labels, (*labels[1:], labels[0]), strict=True):
            figures = figures.move(None, one, START + timedelta(days=day))
            figures = figures.move(one, other, START + timedelta(days=day, hours=1))
            figures = figures.move(other, None, START + timedelta(days=day, hours=2))

    assert len(figures.levels) <= 3 * 31
