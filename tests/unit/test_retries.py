from dataclasses import replace
from datetime import UTC, datetime, timedelta

from nodepool.contract.events import Wake
from nodepool.contract.log import Entry
from nodepool.engine.folded import Folded, due
from nodepool.engine.proposal import Input, Processed
from nodepool.engine.step import Step, replay, step
from nodepool.service import Context, Failure
from support.sample_service import (
    JOB,
    NAME,
    SERVICE,
    Fault,
    Hears,
    Job,
    PagePrinted,
    PaperJammed,
    Says,
    State,
    evolve,
    page,
)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MINUTES = [1, 5, 15, 15]


def retrying(state: State, message: Hears | Says, context: Context) -> State:
    """The state of a printer that tries a job again that jammed."""
    state = evolve(state, message, context)
    match message:
        case PaperJammed(key=key):
            return replace(state, work=state.work.failed(key, context.time))
        case PagePrinted(key=key):
            return replace(state, work=state.work.succeeded(key))
        case _:
            return state


RETRYING = replace(SERVICE, evolve=retrying)


def woken(before: Folded[State], moment: datetime) -> Step[State, Says]:
    """What a wake at this moment comes to, live and on replay."""
    wake, context = Wake(service=NAME, due=moment), Context(7, moment)
    result = step(RETRYING, before, wake, context)
    assert replay(RETRYING, before, wake, result.outputs, context).folded == result.folded
    return result


def given_a_job(fault: Fault) -> Folded[State]:
    """A job of one page that is ready, and that breaks like this."""
    state = State(jobs=State().jobs.set(JOB, Job(pages=1, fault=fault)), work=State().work.put(JOB))
    return Folded(state)


def test_a_key_that_fails_is_tried_again_after_a_minute_then_five_then_fifteen() -> None:
    folded, moment = given_a_job(Fault.RECONCILING), NOON

    delays: list[timedelta] = []
    for _ in MINUTES:
        folded = woken(folded, moment).folded
        next_moment = due(RETRYING, folded.state)
        assert next_moment is not None
        delays.append(next_moment - moment)
        moment = next_moment

    assert delays == [timedelta(minutes=minutes) for minutes in MINUTES]


def test_a_retry_before_its_moment_does_nothing() -> None:
    folded = woken(given_a_job(Fault.RECONCILING), NOON).folded

    assert woken(folded, NOON + timedelta(seconds=59)).outputs == ()


def test_a_retry_that_succeeds_is_not_repeated_and_its_failures_are_forgotten() -> None:
    folded = woken(given_a_job(Fault.RECONCILING), NOON).folded
    mended = replace(folded.state, jobs=folded.state.jobs.set(JOB, Job(pages=1)))

    result = woken(Folded(mended), NOON + timedelta(minutes=1))

    assert result.outputs == (page(0),)
    assert due(RETRYING, result.folded.state) is None
    assert not result.folded.state.work.failures


def test_only_the_first_failure_of_a_key_has_a_dead_letter() -> None:
    first = woken(given_a_job(Fault.RECONCILING), NOON)
    second = woken(first.folded, NOON + timedelta(minutes=1))

    assert first.failure is not None
    assert second.failure == replace(first.failure, is_retry=True)
    assert (first.outputs, second.outputs) == ((jam(),), (jam(),))
    assert parked(first) == first.failure
    assert parked(second) is None


def jam() -> PaperJammed:
    """The report of the job."""
    return PaperJammed(org="acme", cluster="prod", pool="train", cause="Broken: reconciling")


def parked(result: Step[State, Says]) -> Failure | None:
    """The failure that has a dead letter, where there is any."""
    entry = Entry(7, NOON, f"np.evt.clock.{NAME}._._.Wake", b"", {})
    return Processed(Input(entry, RETRYING), (), result.failure).parked
