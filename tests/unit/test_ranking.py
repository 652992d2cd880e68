"""The order in which NodePools that wait for machines are served."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodepool.contract.keys import PoolKey
from nodepool.contract.model import ComputeClass, NodePoolSpec, SchedulingPriority
from nodepool.placement.ranking import Ranking, Waiting
from nodepool.placement.waits import Run
from support.reference.positions import Queued, Rival, position_of, shares

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def spec(priority: int = 0, compute_class: str = "default") -> NodePoolSpec:
    """Return the spec of a NodePool of this priority and class."""
    return NodePoolSpec(
        instance_type="gd-8xh100ib-i128",
        target_nodes=1,
        compute_class=ComputeClass(compute_class),
        scheduling_priority=SchedulingPriority(value=priority) if priority else None,
    )


def waits(
    key: str,
    minute: int,
    nodes: int = 1,
    priority: int = 0,
    compute_class: str = "default",
) -> Waiting:
    """Return a NodePool that has waited for so many Nodes since a minute after noon."""
    since = NOON + timedelta(minutes=minute)
    pool, key_ = spec(priority, compute_class), PoolKey(f"{key[0]}/prod/{key}")
    return Waiting.of(key_, pool, since, (Run(since, nodes),))


def ranking_of(*pools: Waiting) -> Ranking:
    """Return the ranking of these NodePools."""
    ranking = Ranking()
    for pool in pools:
        ranking = ranking.move(None, pool)
    return ranking


def turns(*pools: Waiting) -> list[str]:
    """Return the turns of NodePools, whose organisation is the first letter of their name."""
    return [f"{key.rpartition('/')[2]} {nodes}" for key, nodes in ranking_of(*pools).turns()]


def test_default_is_served_before_spot_and_then_the_longest_wait() -> None:
    late, spot, first = waits("a1", 2), waits("a2", 0, compute_class="spot"), waits("b1", 1)

    assert turns(late, spot, first) == ["b1 1", "a1 1", "a2 1"]


def test_a_priority_moves_no_nodepool_of_another_organisation() -> None:
    low, other, high = waits("a-low", 0), waits("b", 1), waits("a-high", 2, priority=5)

    assert turns(low, other, high) == ["a-high 1", "b 1", "a-low 1"]


def test_a_nodepool_fills_as_many_positions_of_its_organisation_as_it_lacks_nodes() -> None:
    low, other, high = waits("a-low", 0, 5), waits("b", 1, 2), waits("a-high", 2, 3, priority=5)

    assert turns(low, other, high) == ["a-high 3", "a-low 2", "b 2", "a-low 3"]


def test_a_nodepool_that_no_machine_fits_leaves_its_turn_to_the_next_of_its_organisation() -> None:
    ranking = ranking_of(waits("a-low", 0), waits("b", 1), waits("a-high", 2, priority=5))
    walk = ranking.turns()

    first, second = next(walk), walk.send(0)

    assert [key.rpartition("/")[2] for key, _ in (first, second)] == ["a-high", "a-low"]


def test_a_pool_that_no_machine_fits_lends_no_position_to_a_later_pool_of_its_priority() -> None:
    ranking = ranking_of(waits("a-strange", 0, 5), waits("b", 1), waits("a-late", 2))
    walk = ranking.turns()

    next(walk)

    assert walk.send(0).key == "b/prod/b"


def test_a_nodepool_in_the_place_of_another_one_leaves_it_a_later_position() -> None:
    low, high = waits("a-low", 0), waits("a-high", 2, priority=5)

    assert ranking_of(low, high).find_next_position(high.key) == (low.key, NOON)
    assert ranking_of(low, high).find_next_position(low.key) == (low.key, NOON)
    assert ranking_of(low).find_next_position(high.key) is None


def test_a_nodepool_moves_when_it_waits_otherwise() -> None:
    before, after = waits("b", 2, compute_class="spot"), waits("b", 0)
    ranking = ranking_of(waits("a", 1), before)

    assert [key[0] for key in ranking] == ["a", "b"]
    assert [key[0] for key in ranking.move(before, after)] == ["b", "a"]
    assert ranking.move(before, None).move(waits("a", 1), None) == Ranking()
    assert ranking.move(before, before) is ranking
    assert ranking.move(None, None) is ranking


@pytest.mark.parametrize("minute", [1, 3])
def test_a_nodepool_that_does_not_wait_cannot_leave_a_ranking(minute: int) -> None:
    with pytest.raises(AssertionError, match="does not wait at its rank"):
        ranking_of(waits("m", 2)).move(waits("m", minute), None)


pools = st.builds(
    waits,
    st.sampled_from(["a1", "a2", "a3", "b1", "b2", "c1"]),
    st.integers(0, 4),
    st.integers(1, 3),
    st.integers(-1, 1),
    st.sampled_from(["default", "spot"]),
)
some_pools = st.lists(pools, max_size=6, unique_by=lambda pool: pool.key)


def rivals(some: list[Waiting]) -> list[Rival]:
    """Return NodePools that wait as the reference model knows them."""
    return [
        Rival(
            pool.key,
            spec(pool.priority, "spot" if pool.is_spot else "default"),
            Queued(pool.since, [run.since for run in pool.runs for _ in range(run.nodes)]),
            sum(run.nodes for run in pool.runs),
        )
        for pool in some
    ]


@given(some_pools, st.integers(0, 12))
def test_machines_go_where_the_reference_model_says(some: list[Waiting], free: int) -> None:
    taken = {pool.key: 0 for pool in some}
    left = free
    for key, nodes in ranking_of(*some).turns():
        taken[key] += min(nodes, left)
        left -= min(nodes, left)

    expected = shares(rivals(some), free)
    assert taken == {key: expected[key][0] for key in taken}


@given(some_pools)
def test_machines_that_come_one_by_one_go_where_they_would_go_at_once(some: list[Waiting]) -> None:
    ranking, given_ = ranking_of(*some), list[str]()
    while len(ranking):
        key = next(ranking.turns()).key
        given_.append(key)
        owner, since = ranking.find_next_position(key) or (key, NOON)
        ranking = _filled(ranking, key, owner, since)

    at_once = [key for key, nodes in ranking_of(*some).turns() for _ in range(nodes)]
    assert given_ == at_once


def _filled(ranking: Ranking, key: PoolKey, owner: PoolKey, since: datetime) -> Ranking:
    """Return the ranking after a NodePool filled a position, which may be that of another one."""
    moments = {
        each: [run.since for run in ranking.waiting[each].runs for _ in range(run.nodes)]
        for each in {key, owner}
    }
    moments[owner].remove(since)
    if owner != key:
        moments[owner].append(moments[key].pop(0))
    for each, starts in moments.items():
        before = ranking.waiting[each]
        runs = tuple(Run(start, starts.count(start)) for start in sorted(set(starts)))
        ranking = ranking.move(before, before._replace(runs=runs) if runs else None)
    return ranking


@given(some_pools, st.data())
def test_a_priority_changes_no_share_of_an_organisation(
    some: list[Waiting], data: st.DataObject
) -> None:
    others = [pool._replace(priority=data.draw(st.integers(-1, 1))) for pool in some]

    def orgs(which: list[Waiting]) -> list[str]:
        return [key[0] for key, nodes in ranking_of(*which).turns() for _ in range(nodes)]

    assert orgs(some) == orgs(others)


@given(some_pools)
def test_the_position_that_is_filled_next_is_that_of_the_reference_model(
    some: list[Waiting],
) -> None:
    for rival in rivals(some):
        (moment, owner), _ = position_of(rival, rivals(some))
        assert ranking_of(*some).find_next_position(PoolKey(rival.key)) == (owner, moment)
