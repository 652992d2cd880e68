from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodepool.contract.events import Wake
from nodepool.contract.keys import PoolKey, pool_key
from nodepool.contract.messages import pool_fields
from nodepool.engine.bounds import OUTPUTS_MAX
from nodepool.engine.folded import Folded, due
from nodepool.engine.snapshot import dump, load
from nodepool.engine.step import KEYS_MAX, Step, fold, replay, step
from nodepool.service import Context
from nodepool.state.work import IMMEDIATELY
from support.sample_service import (
    JOB,
    NAME,
    SERVICE,
    Fault,
    Hears,
    Job,
    JobQueued,
    PagePrinted,
    PaperJammed,
    Says,
    State,
    page,
    pages,
    pages_added,
)

NOON = Context(7, datetime(2026, 1, 1, 12, tzinfo=UTC), "c1")
JOBS = [pool_key("acme", "prod", f"job-{number:04}") for number in range(1_000)]
Printed = Step[State, Says]


def queued(pages: int, job: PoolKey = JOB, delay_s: float | None = None, fault: str = "") -> Says:
    """A job that is ready, or due so many seconds after noon."""
    due = None if delay_s is None else NOON.time + timedelta(seconds=delay_s)
    return JobQueued(**pool_fields(job), pages=pages, due=due, fault=Fault(fault))


def given_jobs(*jobs: Says) -> Folded[State]:
    """What is folded once these jobs are queued."""
    return fold(SERVICE, Folded(State()), jobs, NOON)


def woken(before: Folded[State], after_s: float = 0) -> Printed:
    """What one wake comes to; a replay of its outputs must come to the same."""
    return processed(Wake(service=NAME, due=NOON.time), before, after_s)


def processed(message: Hears | Wake, before: Folded[State], after_s: float = 0) -> Printed:
    """What one message comes to; a replay of its outputs must come to the same."""
    context = NOON._replace(time=NOON.time + timedelta(seconds=after_s))
    result = step(SERVICE, before, message, context)
    replayed = replay(SERVICE, before, message, result.outputs, context)
    assert replayed.failure is None
    assert list(dump(replayed.folded)) == list(dump(result.folded))
    return result


def woken_until_idle(before: Folded[State]) -> Iterator[Printed]:
    """The steps of one wake after another, until nothing is due at noon."""
    folded = before
    while (moment := due(SERVICE, folded.state)) is not None and moment <= NOON.time:
        result = woken(folded)
        folded = result.folded
        yield result


# One wake takes the keys that are due, and no more.


def test_a_wake_does_the_work_of_every_key_that_is_ready_in_the_order_in_which_they_came() -> None:
    before = given_jobs(queued(1, JOBS[2]), queued(2, JOBS[0]), queued(1, JOBS[1]))

    result = woken(before)

    assert result.outputs == (
        page(0, JOBS[2]),
        *pages([1, 2], JOBS[0]),
        page(3, JOBS[1]),
    )
    assert due(SERVICE, result.folded.state) is None


def test_a_wake_that_comes_too_early_does_nothing() -> None:
    before = given_jobs(queued(1, delay_s=60))

    result = woken(before, after_s=59.999999)

    assert result == Step(before, ())
    assert due(SERVICE, before.state) == NOON.time + timedelta(seconds=60)


def test_a_wake_does_what_is_due_and_leaves_alone_what_is_not() -> None:
    before = given_jobs(queued(1, JOBS[0], 10), queued(1, JOBS[1], 20), queued(1, JOBS[2], 30))

    result = woken(before, after_s=20)

    assert result.outputs == (page(0, JOBS[0]), page(1, JOBS[1]))
    assert due(SERVICE, result.folded.state) == NOON.time + timedelta(seconds=30)
    last = woken(result.folded, after_s=30)
    assert last.outputs == (page(2, JOBS[2]),)
    assert due(SERVICE, last.folded.state) is None


def test_the_moment_of_a_key_outlasts_a_wake_for_which_the_key_is_merely_ready() -> None:
    later = given_jobs(queued(1, delay_s=60))
    before = replace(later, state=replace(later.state, work=later.state.work.put(JOB)))

    result = woken(before)

    assert result.outputs == ()
    assert due(SERVICE, result.folded.state) == NOON.time + timedelta(seconds=60)
    assert woken(result.folded, after_s=60).outputs == (page(0),)


def test_a_wake_takes_a_bounded_number_of_keys_and_the_next_wake_takes_the_others() -> None:
    assert KEYS_MAX == 400
    before = given_jobs(*(queued(1, job) for job in JOBS[:500]))

    first = woken(before)
    second = woken(first.folded)

    assert first.outputs == tuple(page(number, JOBS[number]) for number in range(400))
    assert due(SERVICE, first.folded.state) == IMMEDIATELY
    assert second.outputs == tuple(page(number, JOBS[number]) for number in range(400, 500))
    assert due(SERVICE, second.folded.state) is None


def test_of_the_keys_that_are_due_the_bound_leaves_the_latest() -> None:
    jobs = [queued(1, job, delay_s=-number) for number, job in enumerate(JOBS[:401])]

    result = woken(given_jobs(*jobs))

    assert result.outputs[0] == page(0, JOBS[400])
    assert len(result.outputs) == 400
    assert woken(result.folded).outputs == (page(400, JOBS[0]),)


# A key that breaks.


@pytest.mark.parametrize("fault", [Fault.RECONCILING, Fault.FOLDING_PAGE])
def test_a_key_that_breaks_is_reported_and_the_other_keys_have_their_turn(fault: Fault) -> None:
    before = given_jobs(queued(1, JOBS[0]), queued(3, JOBS[1], fault=fault), queued(1, JOBS[2]))

    result = woken(before)

    assert result.outputs == (
        page(0, JOBS[0]),
        PaperJammed(**pool_fields(JOBS[1]), cause=f"Broken: {fault}"),
        page(1, JOBS[2]),
    )
    assert result.folded.state.jobs[JOBS[1]] == Job(pages=3, fault=fault)
    assert result.failure is not None
    assert (result.failure.input, result.failure.key) == ("Wake", JOBS[1])
    assert (result.failure.cause, result.failure.is_bug) == (f"Broken: {fault}", True)


def test_a_key_that_breaks_leaves_the_work_queue_until_something_puts_it_there_again() -> None:
    result = woken(given_jobs(queued(3, fault=Fault.RECONCILING)))

    assert due(SERVICE, result.folded.state) is None
    again = fold(SERVICE, result.folded, [queued(0)], NOON)
    assert woken(again).outputs == pages([0, 1, 2])


def test_the_failure_of_a_wake_names_every_key_that_broke() -> None:
    before = given_jobs(*(queued(1, job, fault=Fault.RECONCILING) for job in JOBS[:2]))

    result = woken(before)

    assert len(result.outputs) == 2
    assert result.failure is not None
    assert result.failure.key == ""
    text = "Broken: reconciling"
    assert result.failure.cause == f"{JOBS[0]}: {text}; {JOBS[1]}: {text}"


def test_the_failure_of_a_wake_stays_short_where_every_key_breaks() -> None:
    before = given_jobs(*(queued(1, job, fault=Fault.RECONCILING) for job in JOBS[:KEYS_MAX]))

    result = woken(before)

    assert len(result.outputs) == KEYS_MAX
    assert result.failure is not None
    assert result.failure.cause.count("Broken") == 10
    assert result.failure.cause.endswith("; and 390 keys more")


def test_keys_that_break_do_not_starve_the_one_behind_them_that_has_much_to_say() -> None:
    broken = [queued(1, job, fault=Fault.LONG_REPORT) for job in JOBS[: KEYS_MAX - 1]]
    before = given_jobs(*broken, queued(950))

    results = list(woken_until_idle(before))

    assert sum(output == page(0) for result in results for output in result.outputs) == 1
    assert results[-1].folded.state.pages == 950


def test_a_key_that_breaks_in_a_wake_that_is_stopped_is_tried_and_reported_again() -> None:
    before = given_jobs(queued(1, JOBS[0], fault=Fault.RECONCILING), queued(900, JOBS[1]))

    first, second = woken_until_idle(before)

    report = PaperJammed(**pool_fields(JOBS[0]), cause="Broken: reconciling")
    assert first.outputs == (report, *pages(range(899), JOBS[1]))
    assert second.outputs == (report, page(899, JOBS[1]))
    assert due(SERVICE, second.folded.state) is None


# A step has a bound, and the rest follows.


def test_work_that_ends_exactly_at_the_bound_is_followed_by_one_wake_for_nothing() -> None:
    first, second = woken_until_idle(given_jobs(queued(OUTPUTS_MAX)))

    assert first.outputs == pages(range(OUTPUTS_MAX))
    assert second.outputs == ()


def test_work_beyond_the_bound_goes_on_at_the_next_wake_where_it_stopped() -> None:
    first, second = woken_until_idle(given_jobs(queued(OUTPUTS_MAX + 1)))

    assert first.outputs == pages(range(OUTPUTS_MAX))
    assert second.outputs == (page(OUTPUTS_MAX),)


def test_keys_that_a_wake_did_not_come_to_have_their_turn_after_the_one_that_was_stopped() -> None:
    before = given_jobs(queued(1_000, JOBS[0]), queued(2, JOBS[1]))

    outputs = [output for result in woken_until_idle(before) for output in result.outputs]

    assert outputs == [*pages(range(1_000), JOBS[0]), *pages([1_000, 1_001], JOBS[1])]


def test_what_concerns_a_key_is_said_in_the_same_step_and_the_rest_after_a_wake() -> None:
    first = processed(pages_added(1_000), Folded(State()))
    second = woken(first.folded)

    assert first.outputs == pages(range(OUTPUTS_MAX))
    assert second.outputs == pages(range(OUTPUTS_MAX, 1_000))
    assert due(SERVICE, second.folded.state) is None


def test_a_decision_that_fills_the_step_leaves_its_key_to_the_next_wake() -> None:
    def decide(_state: State, _message: Hears, _context: Context) -> Generator[Says, State, None]:
        for event in pages(range(OUTPUTS_MAX)):
            yield event

    both = replace(SERVICE, decide=decide)

    result = step(both, Folded(State()), pages_added(1_000), NOON)

    assert result.outputs == pages(range(OUTPUTS_MAX))
    assert due(SERVICE, result.folded.state) == IMMEDIATELY
    replayed = replay(both, Folded(State()), pages_added(1_000), result.outputs, NOON)
    assert replayed.folded == result.folded


def test_a_key_that_never_ends_is_stopped_at_every_wake_and_other_keys_have_theirs() -> None:
    before = given_jobs(queued(10**9, JOBS[0]), *(queued(1, job) for job in JOBS[1 : 2 * KEYS_MAX]))

    first = woken(before)
    second = woken(first.folded)

    assert len(first.outputs) == OUTPUTS_MAX
    assert {output.path for output in first.outputs} == {("acme", "prod", "job-0000")}
    assert {output.path[2] for output in second.outputs} == {
        f"job-{number:04}" for number in range(KEYS_MAX, 2 * KEYS_MAX)
    }


@dataclass(frozen=True)
class Order:
    """A job to queue: which one, and how many pages."""

    job: PoolKey
    pages: int


sizes = st.integers(0, 5) | st.sampled_from([899, 900, 901, 1_799, 1_800, 1_801])
orders = st.lists(st.builds(Order, st.sampled_from(JOBS[:4]), sizes), max_size=6)


@settings(max_examples=15, deadline=None)
@given(orders)
def test_bounded_steps_say_the_same_in_the_same_order_as_one_step_without_bound(
    orders: Sequence[Order],
) -> None:
    before = given_jobs(*(queued(order.pages, order.job) for order in orders))

    results = list(woken_until_idle(before))

    totals = Counter[PoolKey]()
    for order in orders:
        totals[order.job] += order.pages
    unbounded = [
        job for job in dict.fromkeys(order.job for order in orders) for _ in range(totals[job])
    ]
    outputs = [output for result in results for output in result.outputs]
    assert outputs == [page(number, job) for number, job in enumerate(unbounded)]
    assert all(len(result.outputs) <= OUTPUTS_MAX for result in results)
    assert len(results) <= len(outputs) // OUTPUTS_MAX + 1


@settings(max_examples=15, deadline=None)
@given(orders, st.data())
def test_steps_go_on_from_a_snapshot_between_two_wakes_as_if_there_were_none(
    orders: Sequence[Order], data: st.DataObject
) -> None:
    before = given_jobs(*(queued(order.pages, order.job) for order in orders))
    results = list(woken_until_idle(before))
    stop = data.draw(st.integers(0, len(results)))
    between = before if stop == 0 else results[stop - 1].folded

    restored = load(State, dump(between))

    assert restored == between
    assert list(woken_until_idle(restored)) == results[stop:]


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(JOBS[:4]), sizes), max_size=5))
def test_no_input_leads_to_more_messages_than_a_commit_holds(
    added: list[tuple[PoolKey, int]],
) -> None:
    folded, outputs = Folded(State()), list[object]()

    for job, count in added:
        result = processed(pages_added(count, job), folded)
        assert len(result.outputs) <= OUTPUTS_MAX
        folded, outputs = result.folded, [*outputs, *result.outputs]
    for result in woken_until_idle(folded):
        outputs += result.outputs

    printed = Counter(event.key for event in outputs if isinstance(event, PagePrinted))
    assert printed == sum((Counter({job: count}) for job, count in added), Counter())
    assert [event.number for event in outputs if isinstance(event, PagePrinted)] == list(
        range(len(outputs))
    )
