"""Process one input: fold it, decide on it, and fold its outputs, both live and on replay."""

from collections.abc import Generator, Iterable, Sequence
from itertools import islice
from typing import Generic, NamedTuple

from nodepool.contract.decode import Unreadable
from nodepool.contract.events import CommandAccepted, CommandRefused, Wake
from nodepool.contract.exceptions import NO_FAILURE, describe
from nodepool.contract.messages import Command, Message
from nodepool.contract.outcomes import CommandOutcome
from nodepool.engine.bounds import OUTPUTS_MAX, Size, check, fill_a_step, size_of
from nodepool.engine.failures import bug, merge_failures, refusal, unreadable
from nodepool.engine.folded import Folded, with_work, work_of
from nodepool.service import Context, Failure, I, O, S, Service
from nodepool.state.values import replace

KEYS_MAX = 400
"""The most keys that one `Wake` takes from the work queue; part of the log's format."""
OUTCOMES = frozenset((CommandAccepted, CommandRefused))
REPORT_MAX = 2
"""The most events that report one failure.

Even if all keys of a `Wake` fail, their reports leave room for the next key that succeeds.
"""


class Step(NamedTuple, Generic[S, O]):
    """What processing one input leads to.

    folded: the folded value after the input and its outputs.
    outputs: the messages to store, which fit in one commit.
    failure: why the input, or a key of a `Wake`, could not be processed; None if nothing failed.
    """

    folded: Folded[S]
    outputs: tuple[O | CommandOutcome, ...]
    failure: Failure | None = None


class Replayed(NamedTuple, Generic[S]):
    """What replaying one input leads to.

    folded: the folded value after the input and its recorded outputs.
    failure: why a recorded output could not be folded; None if all outputs were folded.
    """

    folded: Folded[S]
    failure: Failure | None = None


def step(
    service: Service[S, I, O], before: Folded[S], message: I | Wake | Unreadable, context: Context
) -> Step[S, O]:
    """Fold an input, decide on it, and fold the outputs; raise NO_FAILURE and nothing else.

    A command that was processed before leads to the outcome it had then, and to nothing else.

    If a function of the service raises, the input fails and none of its outputs is kept. A failed
    command is refused; the service reports any other failed input with `on_failure`. An input that
    cannot be folded leaves the state as it was. An input that cannot be decided on stays folded.

    The outputs fit one commit; a key for which outputs are still missing is in the work queue. An
    output that the log does not take fails the input too, so that the commit can be stored.
    """
    if isinstance(message, Unreadable):
        return _answer_failure(service, before, unreadable(message), context)
    if isinstance(message, Command):
        outcome = before.receipts.outcome_of(message, context.id)
        if outcome is not None:
            return Step(before, (outcome,))
    try:
        folded, keys = _fold_input(service, before, message, context)
    except NO_FAILURE:
        raise
    except Exception as error:  # The input is not folded, neither live nor on replay.
        return _answer_failure(service, before, bug(message, error), context)
    if isinstance(message, Wake):
        return _reconcile_keys(service, folded, message, keys, context)
    try:
        return _fold_decision(service, folded, message, keys, context)
    except NO_FAILURE:
        raise
    except Exception as error:  # A broken invariant: this input fails, others are processed.
        return _answer_failure(service, folded, bug(message, error), context)


def replay(
    service: Service[S, I, O],
    before: Folded[S],
    message: I | Wake | Unreadable,
    recorded: Sequence[O | CommandOutcome],
    context: Context,
) -> Replayed[S]:
    """Fold an input and the outputs that the log holds for it; decide nothing.

    Raise NO_FAILURE and nothing else.

    An output that cannot be folded is passed over: the service did not say it, or said it in
    another release.
    """
    if isinstance(message, Unreadable):
        return _refold_outputs(service, before, message, recorded, context)
    if isinstance(message, Command) and before.receipts.outcome_of(message, context.id) is not None:
        return Replayed(before)
    try:
        folded, keys = _fold_input(service, before, message, context)
    except NO_FAILURE:
        raise
    except Exception:  # The input was not folded live either.
        return _refold_outputs(service, before, message, recorded, context)
    folded, failure = _refold_outputs(service, folded, message, recorded, context)
    return Replayed(_requeue_keys(folded, keys, recorded), failure)


def fold(
    service: Service[S, I, O],
    before: Folded[S],
    outputs: Iterable[O | CommandOutcome],
    context: Context,
) -> Folded[S]:
    """Fold these outputs: outcomes into the receipts, events into the state."""
    state, receipts = before.state, before.receipts
    for output in outputs:
        if isinstance(output, (CommandAccepted, CommandRefused)):  # Twice as fast as with a union.
            receipts = receipts.put(context.id, output)
        else:
            state = service.evolve(state, output, context)
    return Folded(state, receipts)


def _fold_input(
    service: Service[S, I, O], before: Folded[S], message: I | Wake, context: Context
) -> tuple[Folded[S], tuple[str, ...]]:
    """Fold the input; return the result and the keys that must be reconciled for the input."""
    if isinstance(message, Wake):
        keys, work = work_of(before.state).work.take(context.time, KEYS_MAX)
        return with_work(before, work), keys
    state = service.evolve(before.state, message, context)
    folded = before if state is before.state else Folded(state, before.receipts)
    if service.reconciler is None:
        return folded, ()
    concerned = service.reconciler.concerns(folded.state, message)
    return folded, () if concerned is None else (concerned,)


def _fold_decision(
    service: Service[S, I, O],
    folded: Folded[S],
    message: I,
    keys: tuple[str, ...],
    context: Context,
) -> Step[S, O]:
    """Fold the decision on a message, then the missing events of the key that it concerns."""
    folded, outputs = _decision(service, folded, message, context)
    for key in keys:
        folded, missing = _missing(service, folded, key, size_of(outputs), context)
        outputs += missing
    return Step(_requeue_keys(folded, keys, outputs), tuple(outputs))


def _reconcile_keys(
    service: Service[S, I, O],
    folded: Folded[S],
    message: Wake,
    keys: tuple[str, ...],
    context: Context,
) -> Step[S, O]:
    """Fold the missing events of the keys of a `Wake`; a key that fails does not block others."""
    outputs: list[O | CommandOutcome] = []
    size = Size()
    failures: list[Failure] = []
    for key in keys:
        try:
            folded, missing = _missing(service, folded, key, size, context)
        except NO_FAILURE:
            raise
        except Exception as error:
            is_retry = key in work_of(folded.state).work.failures
            failure = replace(bug(message, error), key=key, is_retry=is_retry)
            room = OUTPUTS_MAX - len(outputs)
            report = _report_failure(service, folded, failure, room, context)
            folded, missing = report.folded, [*report.outputs]
            failures.append(report.failure or failure)
        outputs += missing
        size = size.with_all(missing)
        if size.is_full:
            break
    return Step(_requeue_keys(folded, keys, outputs), tuple(outputs), merge_failures(failures))


def _decision(
    service: Service[S, I, O], folded: Folded[S], message: I, context: Context
) -> tuple[Folded[S], list[O | CommandOutcome]]:
    """Fold what the service decides; raise AssertionError for a decision that breaks the rules."""
    events = service.decide(folded.state, message, context)
    folded, outputs = _fold_events(service, folded, events, context, most=OUTPUTS_MAX + 1)
    if len(outputs) > OUTPUTS_MAX:
        raise AssertionError(f"{service.name} decides on more than {OUTPUTS_MAX} messages at once")
    is_command = isinstance(message, Command)
    if outputs or is_command:
        outcomes = sum(type(output) in OUTCOMES for output in outputs)
        if outcomes != is_command:
            name = type(message).__name__
            raise AssertionError(f"{service.name} gives {name} {outcomes} outcomes")
    return folded, outputs


def _missing(
    service: Service[S, I, O], folded: Folded[S], key: str, size: Size, context: Context
) -> tuple[Folded[S], list[O | CommandOutcome]]:
    """Fold the events that are missing for a key, as many as fit a step that has `size` already."""
    reconciler = service.reconciler
    assert reconciler is not None, f"{service.name} reconciles nothing"
    if size.is_full:
        return folded, []
    events = reconciler.reconcile(folded.state, key, context)
    return _fold_events(service, folded, events, context, size=size)


def _fold_events(
    service: Service[S, I, O],
    folded: Folded[S],
    events: Generator[O | CommandOutcome, S, None],
    context: Context,
    *,
    most: int | None = None,
    size: Size | None = None,
) -> tuple[Folded[S], list[O | CommandOutcome]]:
    """Fold each event that a generator yields, and send the state after it back.

    most: after how many events the generator is stopped.
    size: of the step before them; the generator is stopped when they fill the step.
    """
    outputs: list[O | CommandOutcome] = []
    event = next(events, None)
    while event is not None:
        _check_declared(service, event)
        outputs.append(event)
        folded = fold(service, folded, (event,), context)
        size = size.plus(event) if size is not None else None
        if (size is not None and size.is_full) or len(outputs) == most:
            events.close()
            break
        try:
            event = events.send(folded.state)
        except StopIteration:
            break
    return folded, outputs


def _check_declared(service: Service[S, I, O], output: O | CommandOutcome) -> None:
    """Raise AssertionError for an output that a replay would not recognise.

    Raise Unstorable for an output that the log does not take.
    """
    name = type(output).__name__
    if name not in service.outputs:
        raise AssertionError(f"{service.name} does not declare that it says {name}")
    check(output)


def _requeue_keys(
    folded: Folded[S], keys: tuple[str, ...], outputs: Sequence[O | CommandOutcome]
) -> Folded[S]:
    """Put the keys of a step that was stopped at its bound back into the work queue, as ready.

    All keys are put back, in their order, because a replay cannot tell at which key the step was
    stopped. A key that was finished has no more events. A key that failed fails and is reported
    again. A key that never finishes keeps the other keys of its `Wake` waiting: that is a bug of
    the service.
    """
    if not keys or not fill_a_step(outputs):
        return folded
    work = work_of(folded.state).work
    for key in keys:
        work = work.put(key)
    return with_work(folded, work)


def _refold_outputs(
    service: Service[S, I, O],
    folded: Folded[S],
    message: Message | Unreadable,
    recorded: Sequence[O | CommandOutcome],
    context: Context,
) -> Replayed[S]:
    failure: Failure | None = None
    for output in recorded:
        try:
            folded = fold(service, folded, (output,), context)
        except NO_FAILURE:
            raise
        except Exception as error:
            of = unreadable(message) if isinstance(message, Unreadable) else bug(message, error)
            cause = f"the recorded {type(output).__name__} cannot be folded: {describe(error)}"
            failure = replace(of, field="", cause=cause, is_bug=True)
    return Replayed(folded, failure)


def _answer_failure(
    service: Service[S, I, O], folded: Folded[S], failure: Failure, context: Context
) -> Step[S, O]:
    if failure.is_command:
        outputs = (refusal(failure),)
        return Step(fold(service, folded, outputs, context), outputs, failure)
    return _report_failure(service, folded, failure, REPORT_MAX, context)


def _report_failure(
    service: Service[S, I, O], folded: Folded[S], failure: Failure, room: int, context: Context
) -> Step[S, O]:
    """Return the failure with the events that report it; without events if the report fails."""
    try:
        outputs = tuple(islice(service.on_failure(folded.state, failure), min(room, REPORT_MAX)))
        for output in outputs:
            _check_declared(service, output)
        return Step(fold(service, folded, outputs, context), outputs, failure)
    except NO_FAILURE:
        raise
    except Exception as error:
        cause = f"{failure.cause}; its report fails too: {describe(error)}"
        return Step(folded, (), replace(failure, cause=cause))
