from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from nodepool.contract.keys import PoolKey
from nodepool.contract.model import ComputeClass, NodePoolSpec, SchedulingPriority
from nodepool.state.ranking import Rank, Ranking, rank

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def spec(compute_class: str = "default", priority: int | None = None) -> NodePoolSpec:
    """The spec of a NodePool of this class and priority."""
    scheduling = None if priority is None else SchedulingPriority(value=priority)
    return NodePoolSpec(
        instance_type="gd-8xh100ib-i128",
        target_nodes=1,
        compute_class=ComputeClass(compute_class),
        scheduling_priority=scheduling,
    )


def test_default_comes_before_spot_then_high_priority_then_the_longest_wait_then_the_key() -> None:
    later = NOON + timedelta(microseconds=1)
    ranks = {
        "urgent": rank(spec(priority=5), later, PoolKey("z")),
        "first": rank(spec(), NOON, PoolKey("y")),
        "its twin": rank(spec(priority=0), NOON, PoolKey("z")),
        "late": rank(spec(), later, PoolKey("a")),
        "patient": rank(spec(priority=-1), NOON, PoolKey("a")),
        "urgent spot": rank(spec("spot", 2**31 - 1), NOON, PoolKey("a")),
        "spot": rank(spec("spot"), NOON, PoolKey("a")),
    }

    served = sorted(ranks, key=lambda name: ranks[name])

    assert served == list(ranks)


def test_a_nodepool_without_a_rank_before_joins_the_ranking_at_its_place() -> None:
    first, second = rank(spec(priority=1), NOON, PoolKey("a")), rank(spec(), NOON, PoolKey("b"))

    ranking = Ranking().moved(None, second).moved(None, first)

    assert list(ranking) == ["a", "b"]
    assert len(ranking) == 2


def test_a_nodepool_without_a_rank_afterwards_leaves_the_ranking() -> None:
    its_rank = rank(spec(), NOON, PoolKey("a"))

    ranking = Ranking().moved(None, its_rank).moved(its_rank, None)

    assert ranking == Ranking()


def test_a_nodepool_moves_when_its_rank_changes() -> None:
    other, before = rank(spec(), NOON, PoolKey("a")), rank(spec("spot"), NOON, PoolKey("b"))
    after = rank(spec(priority=1), NOON, PoolKey("b"))
    ranking = Ranking().moved(None, other).moved(None, before)

    assert list(ranking) == ["a", "b"]
    assert list(ranking.moved(before, after)) == ["b", "a"]


def test_the_same_rank_gives_the_same_ranking() -> None:
    its_rank = rank(spec(), NOON, PoolKey("a"))
    ranking = Ranking().moved(None, its_rank)

    assert ranking.moved(its_rank, its_rank) is ranking
    assert ranking.moved(None, None) is ranking


ranks = st.builds(
    lambda spot, priority, minutes, key: (
        spot,
        priority,
        NOON + timedelta(minutes=minutes),
        PoolKey(key),
    ),
    st.booleans(),
    st.integers(-1, 1),
    st.integers(0, 2),
    st.sampled_from("abcd"),
)


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.none() | ranks), max_size=30))
def test_a_ranking_is_always_the_sorted_ranks_of_those_that_wait(
    changes: list[tuple[str, Rank | None]],
) -> None:
    ranking, model = Ranking(), dict[str, Rank]()
    for key, after in changes:
        moved = None if after is None else (*after[:3], PoolKey(key))
        ranking = ranking.moved(model.pop(key, None), moved)
        if moved is not None:
            model[key] = moved

        assert ranking.ranks == tuple(sorted(model.values()))
