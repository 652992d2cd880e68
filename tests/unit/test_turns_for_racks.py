"""Who gets racks: by priority within an organisation, whatever the NodePools have of racks."""

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from hypothesis import example, given
from hypothesis import strategies as st
from immutables import Map

from capacity.pool import Pool
from nodepool.contract.keys import MachineKey, PoolKey
from nodepool.contract.model import NodePoolSpec, SchedulingPriority
from nodepool.placement.claims import Check, Grant
from nodepool.placement.line import Line, Shelf
from nodepool.placement.plan import Part, take_turns
from nodepool.placement.ranking import Ranking
from nodepool.placement.waits import Run, Wait
from support.reference import racks

SIZE, NOON = 18, datetime(2026, 1, 1, 12, tzinfo=UTC)
Counts = Mapping[str, int]


def given_to(pool: Pool, free: Counts) -> Counter[str]:
    """Return what the reference gives a NodePool of free machines."""
    held, goal = pool.domains, pool.held + pool.claim
    parts = racks.parts(SIZE, pool.spec.target, held, {})
    return racks.given(SIZE, goal, held, free, parts)


def order_of(pool: Pool) -> tuple[int, datetime | None, str]:
    """Return the place of a NodePool in its organisation."""
    return -pool.spec.priority, pool.wait.since, pool.key


def pool_of(
    key: str, minute: int, target: int, lost: list[int], priority: int, early: int, more: int
) -> Pool:
    """Return a NodePool that wants racks and has some, each of which has lost Nodes.

    early: how many of its positions began with the wait, `minute` minutes after noon.
    more: how many minutes later the others began.
    """
    held = {f"{key}{number}": SIZE - each for number, each in enumerate(lost[:target])}
    lacks = SIZE * target - sum(held.values())
    first, later = NOON + timedelta(minutes=minute), NOON + timedelta(minutes=minute + more)
    counts = Counter({first: min(early, lacks)}) + Counter({later: lacks - min(early, lacks)})
    runs = tuple(Run(*each) for each in sorted(counts.items()))
    spec = NodePoolSpec(
        instance_type="gb200-4x",
        target_nodes=SIZE * target,
        scheduling_priority=SchedulingPriority(value=priority),
    )
    return Pool(
        PoolKey(f"{key[0]}/prod/{key}"),
        key,
        "US-EAST-01A",
        1,
        spec,
        valid=True,
        grant=Grant(1, spec.target),
        check=Check(1, spec.target),
        wait=Wait(spec.target, first, runs),
        domains=Map(held),
    )


def pools_of(*keys: str) -> st.SearchStrategy[list[Pool]]:
    """NodePools with these keys."""
    lost, small = st.lists(st.sampled_from([0, 1, 2, 9, 17]), max_size=2), st.integers(0, 3)
    return st.tuples(
        *(
            st.builds(pool_of, st.just(key), small, small, lost, st.integers(0, 2), small, small)
            for key in keys
        )
    ).map(list)


whole_racks = st.lists(st.sampled_from([18, 17, 36]), max_size=4)
rests = st.dictionaries(
    st.sampled_from([f"{key}{number}" for key in ("a1", "a2", "b1") for number in range(3)]),
    st.sampled_from([1, 2, 9, 17]),
    max_size=4,
)
"""Machines of racks that may be held in part."""


def line_of(free: Counts) -> Line:
    """Return the line of so many machines of each NVLink domain."""
    queues = {
        domain: [MachineKey(f"{domain}/{number}") for number in range(count)]
        for domain, count in free.items()
    }
    return Line(queues, lambda: Shelf.of(queues, lambda _: {}))


def all_turns(pools: list[Pool], line: Line) -> dict[PoolKey, Counter[str]]:
    """Return what each NodePool takes in all turns, by NVLink domain."""
    ranking = Ranking()
    for pool in pools:
        ranking = ranking.move(None, pool.waiting)
    parts = {pool.key: Part(pool) for pool in pools}
    taken = {pool.key: Counter[str]() for pool in pools}

    def take(key: PoolKey, count: int) -> int:
        each = parts[key].take(line, count)
        taken[key].update(machine.partition("/")[0] for machine in parts[key].machines)
        return each

    take_turns(ranking, take, line, {})
    return taken


FIRST, OTHER = pool_of("a1", 2, 2, [1], 2, 0, 0), pool_of("a2", 0, 1, [], 0, 0, 0)
"""A NodePool with a rack that lacks a Node, and another one that has waited longer for a rack."""


@given(pools_of("a1", "a2", "a3"), whole_racks, rests)
@example([FIRST, OTHER], [18], {})
@example([FIRST, OTHER], [18], {"a10": 1})
def test_each_pool_of_an_organisation_takes_the_racks_that_it_lacks_before_the_next_one(
    pools: list[Pool], new: list[int], rest: Counts
) -> None:
    free = Counter({**{f"free{number}": count for number, count in enumerate(new)}, **rest})
    taken = all_turns(pools, line_of(free))

    for pool in sorted((each for each in pools if each.claim), key=order_of):
        assert taken[pool.key] == given_to(pool, free)
        free -= taken[pool.key]


@given(pools_of("a1", "a2", "b1"), whole_racks, rests)
def test_no_machine_stays_free_that_a_pool_of_any_organisation_could_be_given(
    pools: list[Pool], new: list[int], rest: Counts
) -> None:
    free = Counter({**{f"free{number}": count for number, count in enumerate(new)}, **rest})
    taken = all_turns(pools, line_of(free))

    for each in taken.values():
        free -= each
    for pool in pools:
        have = Counter(pool.domains) + taken[pool.key]
        parts = racks.parts(SIZE, pool.spec.target, have, {})
        assert not racks.given(SIZE, pool.held + pool.claim, have, free, parts)


@given(pools_of("a1"), whole_racks, rests, st.integers(1, 40))
@example([FIRST], [18], {}, 18)
@example([pool_of("a1", 0, 2, [10, 10], 0, 0, 0)], [], {"a10": 10, "a11": 8}, 18)
def test_a_pool_takes_as_many_machines_as_it_is_offered_if_they_fit_and_completes_racks(
    pools: list[Pool], new: list[int], rest: Counts, offered: int
) -> None:
    free = Counter({**{f"free{number}": count for number, count in enumerate(new)}, **rest})
    for pool in pools:
        part, most = Part(pool), given_to(pool, free).total()

        taken = part.take(line_of(free), offered)

        have = Counter(pool.domains)
        have.update(machine.partition("/")[0] for machine in part.machines)
        broken = [domain for domain in have if have[domain] % SIZE]
        assert min(offered, most) <= taken < offered + SIZE
        assert all(have[domain] == pool.domains.get(domain) for domain in broken)
