"""What an organisation may send through the front door, and whose turn it is."""

import asyncio

import pytest

from gateway.budgets import HOUR_S, ORGS_MAX, Rate, Storage
from gateway.host.waiting import FairPlaces
from gateway.turns import Turns


def test_a_rate_allows_a_burst_and_then_so_much_per_second() -> None:
    # given an organisation that has used up its burst
    rate = Rate(per_second=2, burst=3)
    assert [rate.take("acme", 10.0) for _ in range(3)] == [0, 0, 0]

    # when it sends more, then it has to wait until there is a token
    assert rate.take("acme", 10.0) == pytest.approx(0.5)
    assert rate.take("acme", 10.5) == 0
    assert rate.take("acme", 10.5) == pytest.approx(0.5)


def test_a_rate_is_never_more_than_the_burst_and_each_organisation_has_its_own() -> None:
    rate = Rate(per_second=2, burst=3)
    rate.take("acme", 0.0, 3)

    assert rate.take("umbra", 0.0, 3) == 0
    assert rate.take("acme", 1_000.0, 4) == pytest.approx(0.5)
    assert rate.take("acme", 1_000.0, 3) == 0


def test_a_rate_remembers_a_bounded_number_of_organisations() -> None:
    rate = Rate(per_second=1, burst=1)

    for number in range(ORGS_MAX + 10):
        rate.take(f"org{number}", 0.0)

    assert len(rate._buckets) == ORGS_MAX


def test_a_debt_is_paid_before_there_are_tokens_again() -> None:
    # given an organisation that has taken all its tokens, and owes as many
    rate = Rate(per_second=10, burst=20)
    assert rate.take("acme", 0.0, 20) == 0
    rate.owe("acme", 0.0, 20)

    # then it waits for twice as long
    assert rate.take("acme", 0.0) == pytest.approx(2.1)
    assert rate.take("acme", 2.1) == 0
    assert rate.take("umbra", 0.0) == 0


def test_bytes_are_bounded_within_any_hour() -> None:
    # given an organisation that has stored as much as it may
    storage = Storage(per_hour=100)
    assert storage.take("acme", 0.0, 60) == 0
    assert storage.take("acme", 600.0, 40) == 0

    # when it stores more, then it has to wait until enough of it is an hour ago
    assert storage.take("acme", 700.0, 10) == pytest.approx(HOUR_S - 700)
    assert storage.take("acme", 700.0, 70) == pytest.approx(HOUR_S - 100)
    assert storage.take("umbra", 700.0, 100) == 0
    assert storage.take("acme", HOUR_S + 1, 60) == 0
    assert storage.take("acme", HOUR_S + 1, 1) > 0
    assert storage.used(HOUR_S + 1) == {"umbra": 100, "acme": 100}
    # and what is an hour ago is not shown, though nobody has sent anything since
    assert storage.used(2 * HOUR_S - 1) == {"umbra": 0, "acme": 60}
    assert storage.used(3 * HOUR_S) == {"umbra": 0, "acme": 0}


def test_what_is_larger_than_the_whole_budget_never_fits() -> None:
    storage = Storage(per_hour=100)

    assert storage.take("acme", 0.0, 101) == HOUR_S
    assert storage.take("acme", HOUR_S, 101) == HOUR_S


def test_turns_go_from_one_organisation_to_the_next() -> None:
    # given an organisation that has sent much, and two that have sent little
    turns: Turns[str] = Turns(most=3)
    added = [turns.put("a", f"a{number}") for number in range(4)]
    turns.put("b", "b0")
    turns.put("c", "c0")

    # when all is taken, then the one that floods delays itself, and lost what was too much
    assert added == [True, True, True, False]
    assert len(turns) == 5
    assert [turns.next() for _ in range(6)] == ["a0", "b0", "c0", "a1", "a2", None]


def test_bytes_that_were_stored_before_a_start_count_until_they_are_an_hour_old() -> None:
    # given an organisation that has stored some now
    storage = Storage(per_hour=100)
    assert storage.take("acme", 7_200.0, 30) == 0

    # when it becomes known what was stored before, in any order, and some of it too long ago
    for at, size in ((7_000.0, 20), (5_400.0, 10), (7_200.0, 5), (7_001.0, 1), (3_000.0, 99)):
        storage.note("acme", 7_200.0, at, size)

    # then it counts as what was stored in this hour
    assert storage.used(7_200.0) == {"acme": 66}
    assert storage.take("acme", 7_200.0, 40) == pytest.approx(5_400 + HOUR_S - 7_200)
    assert storage.take("acme", 5_400 + HOUR_S, 44) == 0
    assert storage.used(20_000.0) == {"acme": 0}


async def test_who_gives_up_waiting_for_a_place_costs_nobody_a_place() -> None:
    # given one place that is taken, and two who wait for it, of whom the first gives up
    places, order = FairPlaces(1, 8), list[str]()

    async def work(org: str) -> None:
        async with places.place(org) as has_place:
            assert has_place
            order.append(org)

    async with places.place("acme"):
        gone, next_one = (asyncio.create_task(work(org)) for org in ("umbra", "other"))
        await asyncio.sleep(0)
        gone.cancel()

    # when the place is free at the moment at which another one gives up
    await next_one
    async with places.place("acme"):
        late = asyncio.create_task(work("umbra"))
        await asyncio.sleep(0)
    late.cancel()
    await asyncio.gather(gone, late, return_exceptions=True)

    # then it is there for the next one
    await work("acme")
    assert order == ["other", "acme"]
