from collections.abc import Generator
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from immutables import Map

from nodepool.contract.commands import ScaleNodePool
from nodepool.contract.decode import Unreadable
from nodepool.contract.events import CommandRefused, Wake
from nodepool.contract.messages import Command, pool_fields
from nodepool.contract.outcomes import CommandOutcome, build_acceptance
from nodepool.contract.subjects import Address
from nodepool.engine.bounds import OUTPUTS_MAX
from nodepool.engine.folded import Folded, due
from nodepool.engine.snapshot import dump
from nodepool.engine.step import KEYS_MAX, REPORT_MAX, Step, fold, replay, step
from nodepool.service import Context, Failure
from nodepool.state.work import IMMEDIATELY
from support.sample_service import (
    JOB,
    NAME,
    REPORT_FAULTS,
    SERVICE,
    Enqueue,
    Fault,
    Hears,
    Job,
    JobQueued,
    PagePrinted,
    PaperJammed,
    PrintNow,
    Says,
    State,
    enqueue,
    page,
    pages,
    pages_added,
    paper,
    print_now,
)

NOON = Context(7, datetime(2026, 1, 1, 12, tzinfo=UTC), "c1")
WAKE = Wake(service=NAME, due=NOON.time)
INITIAL = Folded(State())
Recorded = tuple[Says | CommandOutcome, ...]


def stepped(
    message: Hears | Wake | Unreadable, before: Folded[State] = INITIAL
) -> Step[State, Says]:
    """What one message comes to; a replay of its outputs must come to the same."""
    result = step(SERVICE, before, message, NOON)
    replayed = replay(SERVICE, before, message, result.outputs, NOON)
    assert replayed.failure is None
    assert list(dump(replayed.folded)) == list(dump(result.folded))
    return result


def refusal(command: Command, cause: str, field: str = "") -> CommandRefused:
    """The outcome of a command that could not be processed."""
    return CommandRefused(
        **pool_fields(JOB),
        command=type(command).__name__,
        reason="InternalError",
        field=field,
        message=cause,
    )


def jam(cause: str) -> PaperJammed:
    """The report of an event that could not be processed."""
    return PaperJammed(**pool_fields(JOB), cause=cause)


# An input that can be processed.


def test_an_input_is_folded_then_decided_on_and_then_its_outputs_are_folded() -> None:
    command = enqueue(3)

    result = stepped(command)

    assert result.outputs == (
        build_acceptance(command, "configured"),
        JobQueued(**pool_fields(JOB), pages=3),
    )
    assert result.folded.state.jobs == Map({JOB: Job(pages=3)})
    assert result.failure is None


def test_an_event_without_outputs_is_folded_all_the_same() -> None:
    result = stepped(paper(5))

    assert result == Step(Folded(State(sheets=5)), ())


def test_replay_folds_the_recorded_outputs_and_decides_nothing() -> None:
    recorded: Recorded = (build_acceptance(print_now(1), "done"), *pages([0, 1, 2]))

    replayed = replay(SERVICE, INITIAL, print_now(1, fault=Fault.DECIDING), recorded, NOON)

    assert replayed.folded.state.pages == 3


def test_outcomes_are_folded_into_receipts_and_never_into_the_state() -> None:
    command = print_now(0)

    folded = fold(SERVICE, INITIAL, (build_acceptance(command, "done"),), NOON)

    assert folded.state == State()
    assert folded.receipts.outcome_of(command, NOON.id) == build_acceptance(command, "done")


# An input that cannot be processed.


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(print_now(3, fault=Fault.FOLDING_INPUT), id="folding the input"),
        pytest.param(print_now(3, fault=Fault.DECIDING), id="deciding"),
        pytest.param(enqueue(3, fault=Fault.FOLDING_OUTPUT), id="folding the output"),
    ],
)
def test_a_command_on_which_the_service_breaks_is_refused_and_changes_nothing(
    command: PrintNow | Enqueue,
) -> None:
    result = stepped(command)

    cause = f"Broken: {command.fault}"
    address = Address("cmd", "", ("acme", "prod", "train"), type(command).__name__)
    failure = Failure(address, type(command).__name__, "", cause, is_bug=True)
    assert result == Step(INITIAL, (refusal(command, cause),), failure)


def test_an_event_that_cannot_be_folded_changes_only_what_is_reported() -> None:
    result = stepped(paper(5, fault=Fault.FOLDING_INPUT))

    assert result.outputs == (jam("Broken: folding the input"),)
    assert result.folded.state == State(jams=1)
    assert result.failure is not None
    assert (result.failure.is_command, result.failure.is_bug) == (False, True)


def test_an_event_that_cannot_be_decided_on_stays_folded() -> None:
    result = stepped(paper(5, fault=Fault.DECIDING))

    assert result.outputs == (jam("Broken: deciding"),)
    assert result.folded.state == State(sheets=5, jams=1)


def test_an_event_of_which_the_concern_cannot_be_found_is_not_folded() -> None:
    result = stepped(pages_added(5, fault=Fault.CONCERNS))

    assert result.outputs == (jam("Broken: finding what it concerns"),)
    assert result.folded.state == State(jams=1)


def test_a_key_that_breaks_in_the_step_of_an_event_takes_the_whole_decision_with_it() -> None:
    before = Folded(State(jobs=State().jobs.set(JOB, Job(fault=Fault.RECONCILING))))

    result = stepped(pages_added(3), before)

    assert result.outputs == (jam("Broken: reconciling"),)
    assert result.folded.state.jobs[JOB] == Job(pages=3, fault=Fault.RECONCILING)
    assert result.folded.state.pages == 0


@pytest.mark.parametrize(
    ("fault", "count"), [(Fault.NO_OUTCOME, 0), (Fault.TWO_OUTCOMES, 2)], ids=["none", "two"]
)
def test_a_command_with_another_number_of_outcomes_than_one_is_refused(
    fault: Fault, count: int
) -> None:
    command = print_now(3, fault=fault)

    result = stepped(command)

    text = f"AssertionError: printer gives PrintNow {count} outcomes"
    assert result.outputs == (refusal(command, text),)
    assert result.folded == INITIAL


def test_an_event_with_an_outcome_is_a_bug() -> None:
    outcome = build_acceptance(print_now(0), "done")

    def decide(
        _state: State, _message: Hears, _context: Context
    ) -> Generator[CommandOutcome, State, None]:
        yield outcome

    service = replace(SERVICE, decide=decide)

    result = step(service, INITIAL, paper(), NOON)

    assert result.outputs == (jam("AssertionError: printer gives PaperDelivered 1 outcomes"),)


def test_an_output_that_the_service_does_not_declare_is_a_bug() -> None:
    undeclared = replace(SERVICE, says=JobQueued | PaperJammed)

    result = step(undeclared, INITIAL, print_now(1), NOON)

    text = "AssertionError: printer does not declare that it says PagePrinted"
    assert result.outputs == (refusal(print_now(1), text),)


def test_an_unreadable_command_is_refused_and_its_refusal_remembered() -> None:
    address = Address("cmd", "", ("acme", "prod", "train"), "PrintNow")

    result = stepped(Unreadable(address, "c1", "pages", "is required"))

    (outcome,) = result.outputs
    assert isinstance(outcome, CommandRefused)
    assert (outcome.reason, outcome.field, outcome.message) == ("Invalid", "pages", "is required")
    assert result.folded.receipts.outcome_of(print_now(1), "c1") == outcome
    assert result.failure == Failure(address, "PrintNow", "pages", "is required")


def test_an_unreadable_event_is_reported() -> None:
    address = Address("evt", "store", ("acme", "prod", "train"), "PaperDelivered")

    result = stepped(Unreadable(address, "1", "sheets", "is required"))

    assert result.outputs == (jam("is required"),)
    assert result.failure is not None
    assert not result.failure.is_bug


# A report that breaks itself.


@pytest.mark.parametrize("fault", [Fault.REPORTING, Fault.FOLDING_REPORT])
def test_a_report_that_breaks_is_left_out_and_the_failure_names_both_causes(fault: Fault) -> None:
    result = stepped(paper(5, fault=fault))

    assert result.outputs == ()
    assert result.folded.state == State(sheets=5)
    assert result.failure is not None
    assert result.failure.cause.startswith(f"Broken: {fault}; its report fails too: Broken: ")


def test_a_report_has_a_bound_and_all_keys_of_a_wake_leave_room_beside_theirs() -> None:
    result = stepped(paper(5, fault=Fault.LONG_REPORT))

    assert result.outputs == (jam("Broken: a long report"),) * REPORT_MAX
    assert result.folded.state == State(sheets=5, jams=REPORT_MAX)
    assert REPORT_MAX * KEYS_MAX < OUTPUTS_MAX


@pytest.mark.parametrize("fault", REPORT_FAULTS)
def test_a_report_that_breaks_on_a_key_leaves_the_other_keys_their_turn(fault: Fault) -> None:
    broken, sound = JOB, type(JOB)("acme/prod/other")
    before = fold(
        SERVICE,
        INITIAL,
        [
            JobQueued(**pool_fields(broken), pages=1, fault=fault),
            JobQueued(**pool_fields(sound), pages=1),
        ],
        NOON,
    )

    result = stepped(WAKE, before)

    assert page(0, sound) in result.outputs
    assert result.failure is not None
    assert result.failure.key == broken
    assert due(SERVICE, result.folded.state) is None


# A decision has a bound.


def test_a_decision_of_as_many_outputs_as_are_allowed_is_taken_whole() -> None:
    result = stepped(print_now(OUTPUTS_MAX - 1))

    assert OUTPUTS_MAX == 900
    assert len(result.outputs) == OUTPUTS_MAX
    assert result.failure is None
    assert due(SERVICE, result.folded.state) is None


def test_a_decision_of_one_output_more_is_a_bug() -> None:
    command = print_now(OUTPUTS_MAX)

    result = stepped(command)

    text = "AssertionError: printer decides on more than 900 messages at once"
    assert result.outputs == (refusal(command, text),)
    assert result.folded == INITIAL


def test_a_decision_without_an_end_is_stopped() -> None:
    def decide(_state: State, _message: Hears, _context: Context) -> Generator[Says, State, None]:
        while True:
            yield page(0)

    endless = replace(SERVICE, decide=decide)

    result = step(endless, INITIAL, print_now(1), NOON)

    assert isinstance(result.outputs[0], CommandRefused)


# What a replay makes of messages that the service did not say.


@pytest.mark.parametrize(
    "message", [print_now(1), paper(1), WAKE], ids=["command", "event", "wake"]
)
def test_a_recorded_message_that_cannot_be_folded_is_passed_over(message: Hears | Wake) -> None:
    outcome: CommandOutcome = build_acceptance(print_now(1), "done")
    foreign = JobQueued(**pool_fields(JOB), pages=1, fault=Fault.FOLDING_OUTPUT)
    before = Folded(State(sheets=1))

    replayed = replay(SERVICE, before, message, (outcome, foreign, page(0)), NOON)

    without = replay(SERVICE, before, message, (outcome, page(0)), NOON)
    assert replayed.folded == without.folded
    assert replayed.folded.state.pages == 1
    assert replayed.failure is not None
    text = "the recorded JobQueued cannot be folded: Broken: folding the output"
    assert replayed.failure.cause == text


def test_a_service_without_a_reconciler_is_never_woken() -> None:
    state = State(work=State().work.put(JOB))

    assert due(SERVICE, state) == IMMEDIATELY
    assert due(replace(SERVICE, reconciler=None), state) is None


def test_messages_of_other_services_are_no_inputs() -> None:
    assert ScaleNodePool.__name__ not in SERVICE.inputs
    assert set(SERVICE.inputs) == {"PrintNow", "Enqueue", "PaperDelivered", "PagesAdded", "Wake"}
    assert PagePrinted.__name__ in SERVICE.outputs
