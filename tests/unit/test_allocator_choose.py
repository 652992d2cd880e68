"""Which Nodes leave in a scale-down, and which may stay when the target rises again."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.choose import reprieved_racks, surplus_racks
from allocator.members import Member
from nodepool.contract.model import RemovalReason, ScaleDownStrategy

IDLE_ONLY, PREFER_IDLE = ScaleDownStrategy.IDLE_ONLY, ScaleDownStrategy.PREFER_IDLE
SCALE_DOWN = RemovalReason.SCALE_DOWN

members = st.dictionaries(
    st.sampled_from([f"g{number}" for number in range(10)]),
    st.builds(
        Member,
        assignment=st.integers(1, 5),
        registered=st.booleans(),
        active=st.booleans(),
        cordoned=st.booleans(),
        batch=st.integers(1, 3),
        removal=st.none() | st.sampled_from(RemovalReason),
    ),
)
strategies = st.sampled_from(ScaleDownStrategy)
counts = st.integers(0, 12)


def victims(
    members: Iterable[tuple[str, Member]], count: int, strategy: ScaleDownStrategy
) -> tuple[str, ...]:
    """Return at most `count` Nodes to remove, of a type that does not come in racks."""
    nodes = list(members)
    wanted = sum(member.removal is None for _, member in nodes) - count
    return tuple(surplus_racks(nodes, 1, max(0, wanted), strategy).leaving)


def reprieved(members: Iterable[tuple[str, Member]], count: int) -> tuple[str, ...]:
    """Return at most `count` leaving Nodes that may stay, of a type that does not come in racks."""
    nodes = list(members)
    wanted = sum(member.removal is None for _, member in nodes) + count
    return tuple(reprieved_racks(nodes, 1, wanted, frozenset()))


def booting(batch: int) -> Member:
    """Return a Node that has not registered yet."""
    return Member(1, batch=batch)


def idle(batch: int, removal: RemovalReason | None = None, *, cordoned: bool = False) -> Member:
    """Return a registered Node on which nothing runs."""
    return Member(1, registered=True, removal=removal, batch=batch, cordoned=cordoned)


def active(batch: int, removal: RemovalReason | None = None, *, cordoned: bool = False) -> Member:
    """Return a registered Node on which workloads run."""
    return replace(idle(batch, removal, cordoned=cordoned), active=True)


def test_unregistered_nodes_leave_first_then_idle_ones_then_active_ones() -> None:
    nodes = {"a": active(9), "i": idle(8), "b": booting(1)}

    assert victims(nodes.items(), 3, PREFER_IDLE) == ("b", "i", "a")


def test_an_active_node_leaves_after_every_idle_one_even_if_it_is_cordoned() -> None:
    nodes = {
        "active": active(9),
        "cordoned active": active(8, cordoned=True),
        "idle": idle(7),
        "cordoned idle": idle(1, cordoned=True),
    }

    leaving = victims(nodes.items(), 4, PREFER_IDLE)

    assert leaving == ("cordoned idle", "idle", "cordoned active", "active")


def test_nodes_of_one_batch_leave_by_name_whatever_the_numbers_of_their_assignments() -> None:
    nodes = {
        name: Member(number, registered=True, batch=1)
        for number, name in ((3, "a"), (2, "b"), (1, "c"))
    }

    assert victims(nodes.items(), 2, IDLE_ONLY) == ("a", "b")


def test_idle_only_never_removes_an_active_node() -> None:
    nodes = {"a": active(9), "i": idle(8), "b": booting(1)}

    assert victims(nodes.items(), 3, IDLE_ONLY) == ("b", "i")


def test_among_equals_the_newest_leaves_first_and_names_break_ties() -> None:
    nodes = {"old": idle(1), "z": idle(7), "y": idle(7), "new": idle(8)}

    assert victims(nodes.items(), 4, IDLE_ONLY) == ("new", "y", "z", "old")


def test_no_more_nodes_are_chosen_than_asked_for() -> None:
    nodes = {"old": idle(1), "new": idle(2)}

    assert victims(nodes.items(), 1, IDLE_ONLY) == ("new",)
    assert victims(nodes.items(), 0, IDLE_ONLY) == ()


@pytest.mark.parametrize("removal", list(RemovalReason))
def test_a_node_that_is_leaving_is_not_chosen_again(removal: RemovalReason) -> None:
    nodes = {"leaving": idle(9, removal), "staying": idle(1)}

    assert victims(nodes.items(), 2, IDLE_ONLY) == ("staying",)


def test_an_empty_pool_has_no_victims() -> None:
    assert victims({}, 3, PREFER_IDLE) == ()


# Laws of the order.


def rank(name: str, member: Member) -> tuple[bool, bool, bool, int, str]:
    """Return the place of a Node in the order of removal.

    Unregistered Nodes come first, then idle, then active ones; in each of the last two groups
    cordoned Nodes come first; among equals the newest batch, then the name.
    """
    registered = member.registered
    usable = registered and not member.cordoned
    return registered, registered and member.active, usable, -member.batch, name


@given(members, counts, strategies)
def test_every_node_that_stays_ranks_behind_all_that_leave(
    nodes: Mapping[str, Member], count: int, strategy: ScaleDownStrategy
) -> None:
    chosen = victims(nodes.items(), count, strategy)

    may_leave = {
        name
        for name, member in nodes.items()
        if member.removal is None and (strategy is PREFER_IDLE or not member.active)
    }
    ranks = [rank(name, nodes[name]) for name in chosen]
    assert set(chosen) <= may_leave
    assert len(chosen) == len(set(chosen)) == min(count, len(may_leave))
    assert ranks == sorted(ranks)
    for name in may_leave - set(chosen):
        assert all(rank(name, nodes[name]) > leaving for leaving in ranks)


@given(members, counts, strategies)
def test_the_choice_does_not_depend_on_the_order_in_which_nodes_are_listed(
    nodes: Mapping[str, Member], count: int, strategy: ScaleDownStrategy
) -> None:
    backwards = {name: nodes[name] for name in reversed(list(nodes))}

    assert victims(backwards.items(), count, strategy) == victims(nodes.items(), count, strategy)
    assert reprieved(backwards.items(), count) == reprieved(nodes.items(), count)


@given(members, counts, strategies)
def test_choosing_more_only_adds_to_the_choice(
    nodes: Mapping[str, Member], count: int, strategy: ScaleDownStrategy
) -> None:
    fewer, more = (
        victims(nodes.items(), count, strategy),
        victims(nodes.items(), count + 1, strategy),
    )

    assert more[: len(fewer)] == fewer


# A target that rises again.


def test_the_node_that_would_leave_last_is_the_first_that_may_stay() -> None:
    nodes = {
        "active": active(9, SCALE_DOWN),
        "new": idle(8, SCALE_DOWN),
        "old": idle(1, SCALE_DOWN),
        "booting": Member(2, removal=SCALE_DOWN),
    }

    assert reprieved(nodes.items(), 9) == ("active", "old", "new", "booting")
    assert reprieved(nodes.items(), 2) == ("active", "old")


@pytest.mark.parametrize("removal", [None, *sorted(set(RemovalReason) - {SCALE_DOWN})])
def test_only_a_removal_for_a_scale_down_is_taken_back(removal: RemovalReason | None) -> None:
    assert reprieved({"node": idle(1, removal)}.items(), 1) == ()


@given(members, counts)
def test_nodes_that_may_stay_are_the_victims_of_the_scale_down_in_reverse_order(
    nodes: Mapping[str, Member], count: int
) -> None:
    leaving = {name: member for name, member in nodes.items() if member.removal is SCALE_DOWN}

    staying = reprieved(nodes.items(), count)

    ranks = [rank(name, leaving[name]) for name in staying]
    assert len(staying) == min(count, len(leaving))
    assert ranks == sorted(ranks, reverse=True)
