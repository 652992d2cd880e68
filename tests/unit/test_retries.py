import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from nodepool.contract.events import Wake
from nodepool.contract.keys import pool_key
from nodepool.contract.log import Entry
from nodepool.engine.bounds import OUTPUTS_MAX
from nodepool.engine.folded import Folded, due
from nodepool.engine.proposal import Input, Processed
from nodepool.engine.replica import Replica
from nodepool.engine.step import Step, replay, step
from nodepool.engine.world import Log
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
    PrinterReplica,
    Says,
    State,
    commit,
    enqueue,
    evolve,
    fire,
    page,
    print_now,
    read,
    store,
)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MINUTES = [1, 5, 15, 15]


def retrying(state: State, message: Hears | Says, context: Context) -> State:
    """The state of a printer that tries a job again that jammed."""
    state = evolve(state, message, context)
    match message:
        case PaperJammed(key=key):
            return replace(state, work=state.work.retry_later(key, context.time))
        case PagePrinted(key=key):
            return replace(state, work=state.work.clear_failures(key))
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


# What is due again as soon as it has failed.


def stubborn(state: State, message: Hears | Says, context: Context) -> State:
    """The state of a printer that tries a job again as soon as it has jammed."""
    state = evolve(state, message, context)
    match message:
        case PaperJammed(key=key):
            return replace(state, work=state.work.put(key))
        case _:
            return state


OTHER = pool_key("acme", "prod", "other")


def given_a_stubborn_printer() -> tuple[Log, PrinterReplica]:
    """A job that breaks at each wake, and has done so once."""
    log, live = Log(NOON), Replica(replace(SERVICE, evolve=stubborn))
    store(log, enqueue(1, fault=Fault.RECONCILING))
    commit(live, log)
    wake(live, log)
    return log, live


def wake(live: PrinterReplica, log: Log) -> None:
    """Wakes the printer, which commits what comes of it."""
    fire(live, log)
    assert commit(live, log)


def letters(log: Log) -> list[str]:
    """The causes of all dead letters."""
    dead = [entry for entry in log.entries if entry.subject == f"np.dead.{NAME}"]
    return [json.loads(entry.content)["cause"] for entry in dead]


def test_a_wake_that_fails_as_the_one_before_it_did_has_no_dead_letter() -> None:
    log, live = given_a_stubborn_printer()

    for _ in range(5):
        wake(live, log)

    assert letters(log) == ["acme/prod/train: Broken: reconciling"]
    assert live.state.jams == 6


def test_a_wake_that_fails_for_another_reason_has_a_dead_letter_again() -> None:
    log, live = given_a_stubborn_printer()

    store(log, enqueue(1, OTHER, fault=Fault.RECONCILING))
    commit(live, log)
    for _ in range(3):
        wake(live, log)

    broken = "Broken: reconciling"
    assert letters(log) == [
        f"acme/prod/train: {broken}",
        f"acme/prod/train: {broken}; acme/prod/other: {broken}",
    ]


def test_a_wake_that_was_undone_has_its_dead_letter_when_it_is_processed_again() -> None:
    log, live = Log(NOON), Replica(replace(SERVICE, evolve=stubborn))
    store(log, enqueue(1, fault=Fault.RECONCILING))
    commit(live, log)
    fire(live, log)
    read(live, log)
    live.propose()
    live.undo_proposal()

    commit(live, log)

    assert letters(log) == ["acme/prod/train: Broken: reconciling"]


def test_a_wake_that_waits_for_the_next_commit_has_its_dead_letter_in_that_one() -> None:
    log, live = Log(NOON), Replica(replace(SERVICE, evolve=stubborn))
    store(log, enqueue(1, fault=Fault.RECONCILING))
    commit(live, log)
    store(log, print_now(OUTPUTS_MAX - 1))
    fire(live, log)

    commit(live, log)
    commit(live, log)

    assert letters(log) == ["acme/prod/train: Broken: reconciling"]


def jam() -> PaperJammed:
    """The report of the job."""
    return PaperJammed(org="acme", cluster="prod", pool="train", cause="Broken: reconciling")


def parked(result: Step[State, Says]) -> Failure | None:
    """The failure that has a dead letter, where there is any."""
    entry = Entry(7, NOON, f"np.evt.clock.{NAME}._._.Wake", b"", {})
    return Processed(Input(entry, Wake), (), result.failure).parked
