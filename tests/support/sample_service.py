"""A small service for tests of the engine: a print shop, which can be made to break anywhere.

A job is a NodePool's identity and a number of pages. `PrintNow` prints in the decision itself,
`Enqueue` leaves the pages to the work queue, at once or after a delay; both name the `Fault` that
is to show. Pages are numbered through all jobs, so that one lost or printed twice is seen.
"""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import ClassVar, assert_never

from immutables import Map

from nodepool.contract.keys import PoolKey, as_pool_key
from nodepool.contract.messages import Command, Event, Message, OfPool, envelope_of, pool_fields
from nodepool.contract.outcomes import CommandOutcome, build_acceptance, build_refusal
from nodepool.contract.subjects import subject_of
from nodepool.engine.records import Record
from nodepool.engine.replica import Replica
from nodepool.engine.wakes import wake, wake_subject
from nodepool.engine.world import Log
from nodepool.service import Context, Failure, Reconciler, Service, commit_subject
from nodepool.state.values import replace
from nodepool.state.work import WithWork

NAME = "printer"


class Fault(StrEnum):
    """Where the service breaks; only the events have a report that may break."""

    NONE = ""
    FOLDING_INPUT = "folding the input"
    CONCERNS = "finding what it concerns"
    DECIDING = "deciding"
    NO_OUTCOME = "no outcome"
    TWO_OUTCOMES = "two outcomes"
    FOLDING_OUTPUT = "folding the output"
    RECONCILING = "reconciling"
    FOLDING_PAGE = "folding a page"
    REPORTING = "reporting"
    FOLDING_REPORT = "folding the report"
    LONG_REPORT = "a long report"


REPORT_FAULTS = (Fault.REPORTING, Fault.FOLDING_REPORT, Fault.LONG_REPORT)
"""The decision on such an event breaks, and then the report of that is the matter."""


class Broken(Exception):
    """What the service raises where it is made to break."""


class PrintNow(Command, OfPool):
    """Prints these pages at once, in the decision on the command."""

    pages: int
    dry_run: bool = False
    fault: Fault = Fault.NONE


class Enqueue(Command, OfPool):
    """Makes a job of these pages, to be printed from the work queue after `delay_s` seconds."""

    pages: int
    delay_s: float | None = None
    fault: Fault = Fault.NONE


class PaperDelivered(Event, OfPool):
    """An event of another service that is counted, and nothing is said of it."""

    speaker: ClassVar[str] = "store"

    sheets: int = 1
    fault: Fault = Fault.NONE


class PagesAdded(Event, OfPool):
    """An event of another service: a job has more pages, and is printed on right now."""

    speaker: ClassVar[str] = "desk"

    pages: int
    fault: Fault = Fault.NONE


class JobQueued(Event, OfPool):
    """A job has these pages more; `due` is when it may be printed, None for at once."""

    speaker: ClassVar[str] = NAME

    pages: int
    due: datetime | None = None
    fault: Fault = Fault.NONE


class PagePrinted(Event, OfPool):
    """A page of a job; `number` counts the pages of all jobs."""

    speaker: ClassVar[str] = NAME

    number: int


class PaperJammed(Event, OfPool):
    """The report of an input that could not be processed."""

    speaker: ClassVar[str] = NAME

    cause: str


Hears = PrintNow | Enqueue | PaperDelivered | PagesAdded
Says = JobQueued | PagePrinted | PaperJammed


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be printed under one key.

    pages: how many in all.
    printed: how many of them are.
    due: not before this moment; None for no such moment.
    fault: where printing it breaks.
    """

    pages: int = 0
    printed: int = 0
    due: datetime | None = None
    fault: Fault = Fault.NONE


@dataclass(frozen=True, slots=True)
class State(WithWork[PoolKey]):
    """Jobs, and what was counted.

    pages: how many pages were printed for all jobs.
    sheets: how many sheets of paper came.
    jams: how many failures were reported.
    """

    jobs: Map[PoolKey, Job] = Map()
    pages: int = 0
    sheets: int = 0
    jams: int = 0


def evolve(state: State, message: Hears | Says, _context: Context) -> State:
    """The state after a message; commands leave it as it is."""
    match message:
        case PrintNow() | Enqueue():
            _break(message, Fault.FOLDING_INPUT)
            return state
        case PaperDelivered(sheets=sheets):
            _break(message, Fault.FOLDING_INPUT)
            return replace(state, sheets=state.sheets + sheets)
        case PagesAdded(key=key, pages=pages):
            job = state.jobs.get(key, Job())
            return _stored(state, key, replace(job, pages=job.pages + pages))
        case JobQueued():
            return _queued(state, message)
        case PagePrinted(key=key):
            job = state.jobs.get(key, Job())
            _break(job, Fault.FOLDING_PAGE)
            state = replace(state, pages=state.pages + 1)
            return _stored(state, key, replace(job, printed=job.printed + 1))
        case PaperJammed(cause=cause):
            if Fault.FOLDING_REPORT in cause:
                raise Broken("folding the report")
            return replace(state, jams=state.jams + 1)
        case _:
            assert_never(message)


def _queued(state: State, event: JobQueued) -> State:
    _break(event, Fault.FOLDING_OUTPUT)
    job = state.jobs.get(event.key, Job())
    job = replace(job, pages=job.pages + event.pages, due=event.due, fault=event.fault)
    work = state.work
    work = work.put(event.key) if event.due is None else work.put_at(event.key, event.due)
    return replace(_stored(state, event.key, job), work=work)


def _stored(state: State, key: PoolKey, job: Job) -> State:
    return replace(state, jobs=state.jobs.set(key, job))


def _break(where: PrintNow | Enqueue | PaperDelivered | JobQueued | Job, fault: Fault) -> None:
    if where.fault is fault:
        raise Broken(f"{fault}")


def decide(
    state: State, message: Hears, context: Context
) -> Generator[Says | CommandOutcome, State, None]:
    """The outcome of a command, and the pages or the job that it leads to."""
    match message:
        case PrintNow():
            yield from _printed_now(state, message)
        case Enqueue(key=key, pages=pages, delay_s=delay, fault=fault):
            yield build_acceptance(message, "configured")
            due = None if delay is None else context.time + timedelta(seconds=delay)
            yield JobQueued(**pool_fields(key), pages=pages, due=due, fault=fault)
        case PaperDelivered(fault=fault):
            if fault is Fault.DECIDING or fault in REPORT_FAULTS:
                raise Broken(f"{fault}")
        case PagesAdded():
            return
        case _:
            assert_never(message)


def _printed_now(state: State, command: PrintNow) -> Iterator[Says | CommandOutcome]:
    if command.pages < 0:
        yield build_refusal(command, "pages", "must not be negative")
        return
    if command.fault is not Fault.NO_OUTCOME:
        yield build_acceptance(command, "done", dry_run=command.dry_run)
    if command.fault is Fault.TWO_OUTCOMES:
        yield build_acceptance(command, "unchanged")
    if command.dry_run:
        return
    for number in range(command.pages):
        yield PagePrinted(**pool_fields(command.key), number=state.pages + number)
    if command.fault is Fault.DECIDING:
        raise Broken("deciding")


def reconcile(state: State, key: PoolKey, context: Context) -> Generator[Says, State, None]:
    """The pages of a job that are not printed yet, once it is due."""
    job = state.jobs.get(key, Job())
    if job.due is not None and context.time < job.due:
        return
    for number in range(job.pages - job.printed):
        yield PagePrinted(**pool_fields(key), number=state.pages + number)
    if job.fault in (Fault.RECONCILING, *REPORT_FAULTS):
        raise Broken(f"{job.fault}")


def concerns(_state: State, message: Hears) -> PoolKey | None:
    """A job with more pages is printed on in the same step."""
    match message:
        case PagesAdded(fault=Fault.CONCERNS):
            raise Broken("finding what it concerns")
        case PagesAdded(key=key):
            return key
        case PrintNow() | Enqueue() | PaperDelivered():
            return None
        case _:
            assert_never(message)


def on_failure(_state: State, failure: Failure) -> Iterator[Says]:
    """One report of a failure, or as many as `LONG_REPORT` says, which is too many."""
    pool = as_pool_key(failure.key) if failure.key else failure.pool
    if pool is None:
        return
    for _ in range(2_000 if Fault.LONG_REPORT in failure.cause else 1):
        yield PaperJammed(**pool_fields(pool), cause=failure.cause)
    if failure.cause.endswith(f": {Fault.REPORTING}"):
        raise Broken("reporting")


SERVICE = Service(
    name=NAME,
    hears=Hears,
    says=Says,
    initial=State(),
    evolve=evolve,
    decide=decide,
    reconciler=Reconciler(reconcile, concerns),
    on_failure=on_failure,
)


# The messages, about one job unless another is named.

JOB = PoolKey("acme/prod/train")


def print_now(
    pages: int, job: PoolKey = JOB, *, fault: Fault = Fault.NONE, dry_run: bool = False
) -> PrintNow:
    """A command that leads to so many pages and the outcome."""
    return PrintNow(**pool_fields(job), pages=pages, fault=fault, dry_run=dry_run)


def enqueue(
    pages: int, job: PoolKey = JOB, *, delay_s: float | None = None, fault: Fault = Fault.NONE
) -> Enqueue:
    """A command that leads to a job, and the job later to so many pages."""
    return Enqueue(**pool_fields(job), pages=pages, delay_s=delay_s, fault=fault)


def paper(sheets: int = 1, *, fault: Fault = Fault.NONE) -> PaperDelivered:
    """An event that leads to no output."""
    return PaperDelivered(**pool_fields(JOB), sheets=sheets, fault=fault)


def pages_added(pages: int, job: PoolKey = JOB, *, fault: Fault = Fault.NONE) -> PagesAdded:
    """An event that leads to so many pages at once, or at the next wakes."""
    return PagesAdded(**pool_fields(job), pages=pages, fault=fault)


def page(number: int, job: PoolKey = JOB) -> PagePrinted:
    """A page."""
    return PagePrinted(**pool_fields(job), number=number)


def pages(numbers: Sequence[int], job: PoolKey = JOB) -> tuple[PagePrinted, ...]:
    """Pages of one job."""
    return tuple(page(number, job) for number in numbers)


# A log of them, and a replica that reads it.

PrinterReplica = Replica[State, Hears, Says]


def store(log: Log, message: Message, id: str = "", cause: int | None = None) -> int:
    """Puts a message on the log as its speaker or a client does; its position."""
    speaker = getattr(message, "speaker", "")
    envelope = envelope_of(type(message)).model_construct(
        id=id or f"c{len(log.entries) + 1}",
        type=type(message).__name__,
        source=speaker or "test",
        causeposition=cause,
        data=message,
    )
    return log.append(subject_of(message, speaker), envelope.encode())


def store_record(
    log: Log, position: int, outputs: int = 0, *, follows: int | None = None, skipped: bool = False
) -> int:
    """Puts a commit record of the service on the log; by default it follows the one before it."""
    subject = commit_subject(NAME)
    before = log.last.get(subject, 0) if follows is None else follows
    return log.append(subject, Record(position, outputs, before, log.id, skipped).encode())


def fire(replica: PrinterReplica, log: Log) -> int | None:
    """Lets a replica wake its service; the position of the `Wake`, None where another one came."""
    due = replica.due()
    assert due is not None, "nothing is due"
    content = wake(NAME, due, replica.read_to).encode()
    return log.append_after(replica.last_wake, wake_subject(NAME), content)


def read(replica: PrinterReplica, log: Log) -> None:
    """Lets a replica read to the end of the log."""
    for entry in log.entries[replica.read_to :]:
        if SERVICE.wants(entry.subject):
            replica.read(entry)
        else:
            replica.read_to = entry.position


def commit(replica: PrinterReplica, log: Log) -> bool:
    """Lets a replica read on and commit its outputs; whether they were stored."""
    read(replica, log)
    proposal = replica.propose()
    if proposal is None or not proposal.worth_storing:
        return False
    position = log.commit(proposal)
    if position is None:
        replica.note_conflict()
        return False
    replica.confirm_proposal(proposal, position)
    return True
