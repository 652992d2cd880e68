"""Which machines complete racks, and which racks leave."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.choose import Surplus, reprieved_racks, surplus_racks
from allocator.members import Member, Members
from nodepool.contract.model import RemovalReason, ScaleDownStrategy
from nodepool.placement.racks import Delivery, deliveries, lacking

SIZE = 3
IDLE_ONLY, PREFER_IDLE = ScaleDownStrategy.IDLE_ONLY, ScaleDownStrategy.PREFER_IDLE
SCALE_DOWN = RemovalReason.SCALE_DOWN
Counts = dict[str, int]


# What is given.


@pytest.mark.parametrize(
    ("goal", "held", "free", "expected"),
    [
        pytest.param(6, {}, {"a": 3, "b": 4}, [("a", 3), ("b", 3)], id="whole racks by name"),
        pytest.param(6, {}, {"": 7}, [("", 6)], id="several of one domain"),
        pytest.param(6, {}, {"a": 2, "b": 2}, [], id="no domain has a rack"),
        pytest.param(3, {"a": 2}, {"a": 1, "b": 3}, [("a", 1)], id="what a rack lacks"),
        pytest.param(3, {"a": 2}, {"b": 3}, [], id="not of another rack"),
        pytest.param(3, {"a": 1}, {"a": 1}, [], id="not a part of what it lacks"),
        pytest.param(6, {"a": 2}, {"b": 3}, [("b", 3)], id="a new rack beside one that lacks"),
        pytest.param(6, {"a": 1, "b": 2}, {"c": 3}, [], id="no third rack beside two that lack"),
        pytest.param(5, {"a": 3}, {"b": 3}, [], id="no part of a grant"),
        pytest.param(7, {"a": 3, "b": 1, "c": 2}, {"b": 2, "c": 1}, [("c", 1)], id="fullest first"),
        pytest.param(3, {"a": 3, "b": 1}, {"b": 2}, [], id="none beyond the goal"),
    ],
)
def test_a_pool_is_given_what_completes_racks(
    goal: int, held: Counts, free: Counts, expected: list[tuple[str, int]]
) -> None:
    parts = lacking(SIZE, -(-goal // SIZE), held)

    assert deliveries(SIZE, goal, held, free, parts, goal) == [Delivery(*each) for each in expected]


counts = st.dictionaries(st.sampled_from("abcd"), st.integers(1, 8), max_size=4)


@given(st.integers(0, 30), st.integers(0, 3), counts, counts)
def test_what_is_given_is_free_and_wanted_and_leaves_whole_racks_below_the_goal(
    goal: int, more: int, held: Counts, free: Counts
) -> None:
    parts = lacking(SIZE, -(-goal // SIZE) + more, held)
    given_ = deliveries(SIZE, goal, held, free, parts, goal)

    total: Counter[str] = Counter()
    for part in given_:
        total[part.domain] += part.machines
    assert all(count <= free.get(domain, 0) for domain, count in total.items())
    room = max(0, goal - sum(held.values()))
    assert total.total() <= room
    broken = [each for each in total if (held.get(each, 0) + total[each]) % SIZE]
    assert len(broken) <= (total.total() == room)


@given(counts, counts, st.integers(0, 12))
def test_what_is_lacking_is_the_rest_of_the_fullest_racks_that_stay(
    held: Counts, leaving: Counts, racks: int
) -> None:
    held = Counter(held) + Counter(leaving)
    stay = {domain: held[domain] - leaving.get(domain, 0) for domain in held}
    begun = {domain: count % SIZE for domain, count in stay.items() if count % SIZE}

    parts = {part.domain: part.machines for part in lacking(SIZE, racks, held, leaving)}

    assert all(begun[domain] + machines == SIZE for domain, machines in parts.items())
    assert len(parts) == max(0, min(len(begun), racks - sum(n // SIZE for n in stay.values())))
    fullest = min((begun[domain] for domain in parts), default=SIZE)
    assert all(begun[domain] <= fullest for domain in begun.keys() - parts.keys())


# Which racks leave. A Node is `domain` and a number; its number is its assignment and its batch.


def nodes(*names: str, active: str = "", leaving: str = "") -> list[tuple[str, Member]]:
    """Registered Nodes; those named in `active` are, and those in `leaving` leave."""
    return [
        (
            name,
            Member(
                int(name[1:]),
                registered=True,
                active=name in active.split(),
                removal=SCALE_DOWN if name in leaving.split() else None,
                domain=name[0],
                batch=int(name[1:]),
            ),
        )
        for name in names
    ]


A, B, C = ("a1", "a2", "a3"), ("b4", "b5", "b6"), ("c7", "c8", "c9")


@pytest.mark.parametrize(
    ("members", "wanted", "strategy", "expected"),
    [
        pytest.param(nodes(*A, *B), 2, IDLE_ONLY, Surplus(0, []), id="none"),
        pytest.param(nodes(*A, *B), 1, IDLE_ONLY, Surplus(3, ["b6", "b5", "b4"]), id="the newest"),
        pytest.param(
            nodes("a1", "a2", *B), 1, IDLE_ONLY, Surplus(2, ["a2", "a1"]), id="the incomplete"
        ),
        pytest.param(
            nodes(*A, *B, active="b5"),
            1,
            PREFER_IDLE,
            Surplus(3, ["a3", "a2", "a1"]),
            id="the idle",
        ),
        pytest.param(
            nodes(*A, *B, active="a1 b5 b6"),
            1,
            PREFER_IDLE,
            Surplus(3, ["a3", "a2", "a1"]),
            id="the one with less work",
        ),
        pytest.param(
            nodes(*A, *B, active="a1 b5"), 1, IDLE_ONLY, Surplus(3, []), id="none is idle"
        ),
        pytest.param(
            nodes(*A, "b4", active="b4"), 1, IDLE_ONLY, Surplus(1, []), id="no whole one instead"
        ),
        pytest.param(
            nodes(*A, *B, "c7", "c8", active="c7"),
            1,
            IDLE_ONLY,
            Surplus(5, ["b6", "b5", "b4"]),
            id="no second whole one instead",
        ),
        pytest.param(
            nodes(*A, *B, leaving="b4 b5 b6"), 1, IDLE_ONLY, Surplus(0, []), id="one leaves already"
        ),
        pytest.param(
            nodes("a1", "a2", "a3", "a4", "a5"), 1, IDLE_ONLY, Surplus(2, ["a5", "a4"]), id="a part"
        ),
        pytest.param(
            nodes(*A, *B, *C), 0, IDLE_ONLY, Surplus(9, [*C[::-1], *B[::-1], *A[::-1]]), id="all"
        ),
    ],
)
def test_the_least_useful_racks_leave_as_a_whole(
    members: list[tuple[str, Member]],
    wanted: int,
    strategy: ScaleDownStrategy,
    expected: Surplus,
) -> None:
    assert surplus_racks(members, SIZE, wanted, strategy) == expected


@pytest.mark.parametrize(
    ("members", "wanted", "leaving", "expected"),
    [
        pytest.param(nodes(*A, *B, leaving="b4 b5 b6"), 1, "", [], id="enough stay"),
        pytest.param(
            nodes(*A, *B, leaving="b4 b5 b6"), 2, "", ["b4", "b5", "b6"], id="a rack is wanted"
        ),
        pytest.param(
            nodes(*A, *B, leaving="b5 b6"), 1, "", ["b5", "b6"], id="a part of the rack stays"
        ),
        pytest.param(nodes(*A, *B, leaving="b5 b6"), 1, "b4", [], id="the rest leaves as well"),
        pytest.param(
            nodes(*A, "b4", "b5", *C, leaving="a1 a2 a3 b4 b5"),
            2,
            "",
            ["a1", "a2", "a3"],
            id="the fullest",
        ),
        pytest.param(
            nodes("a1", "a2", "a3", "a4", "a5", leaving="a3 a4 a5"), 1, "", ["a3"], id="one domain"
        ),
    ],
)
def test_racks_are_spared_as_a_whole(
    members: list[tuple[str, Member]], wanted: int, leaving: str, expected: list[str]
) -> None:
    spared = reprieved_racks(members, SIZE, wanted, frozenset(leaving.split()))

    assert list(spared) == expected


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from([None, SCALE_DOWN]), st.booleans()),
        max_size=20,
    )
)
def test_the_counts_of_racks_follow_from_the_nodes(
    drawn: list[tuple[str, RemovalReason | None, bool]],
) -> None:
    members = Members(SIZE)

    for number, (domain, removal, goes) in enumerate(drawn):
        members = members.put(f"n{number}", Member(number, domain=domain))
        members = members.put(f"n{number}", Member(number, domain=domain, removal=removal))
        members = members.put(f"n{number}", None) if goes else members

    kept = [each for each in drawn if not each[2]]
    held = Counter(domain for domain, _, _ in kept)
    staying = Counter(domain for domain, removal, _ in kept if removal is None)
    assert {domain: each.held for domain, each in members.domains.items()} == dict(held)
    assert members.counts.racks == sum(-(-count // SIZE) for count in held.values())
    assert members.counts.racks_staying == sum(-(-count // SIZE) for count in staying.values())
    assert members.counts.split == sum(
        staying[domain] % SIZE > 0 and held[domain] > staying[domain] for domain in held
    )
