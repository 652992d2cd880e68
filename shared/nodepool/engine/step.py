"""One input processed: folded, decided on, and its outputs folded; the same live and on replay."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from typing import Generic, NamedTuple

from nodepool.contract.decode import Unreadable
from nodepool.contract.events import CommandAccepted, CommandRefused, Wake
from nodepool.contract.messages import Command, Message
from nodepool.contract.outcomes import CommandOutcome
from nodepool.contract.subjects import Address
from nodepool.service import Context, Failure, I, O, S, Service, describe
from nodepool.state.receipts import Receipts
from nodepool.state.work import WithWork, WorkQueue

OUTPUTS_MAX = 900
"""The most messages that one input may lead to: the server takes 1,000 in an atomic batch.

It is part of the log's format: that an input led to so many tells a replay that there was more.
"""
KEYS_MAX = 400
"""The most keys that one `Wake` takes from the work queue."""


@dataclass(frozen=True, slots=True)
class Folded(Generic[S]):
    """What a replica has made of the log: the service's state, and the outcomes of its commands."""

    state: S
    receipts: Receipts = Receipts()


class Step(NamedTuple, Generic[S, O]):
    """What processing one input leads to: what is folded then, the outputs, a failure if any."""

    folded: Folded[S]
    outputs: tuple[O | CommandOutcome, ...]
    failure: Failure | None = None


def step(
    service: Service[S, I, O], before: Folded[S], message: I | Wake | Unreadable, context: Context
) -> Step[S, O]:
    """Folds an input, decides on it, and folds the outputs.

    A command that was processed before leads to the outcome it had then, and to nothing else. An
    input that cannot be processed changes nothing but what the service says of the failure. More
    than `OUTPUTS_MAX` outputs are never returned: what is missing then is in the work queue.
    """
    if isinstance(message, Unreadable):
        return _failed(service, before, _unreadable(message), context)
    if isinstance(message, Command):
        outcome = before.receipts.outcome_of(message, context.id)
        if outcome is not None:
            return Step(before, (outcome,))
    try:
        folded, keys = _taken(service, before, message, context)
    except Exception as error:  # The input is not folded at all, live and on replay alike.
        return _failed(service, before, _bug(message, error), context)
    if isinstance(message, Wake):
        return _reconciled(service, folded, message, keys, context)
    try:
        return _decided(service, folded, message, keys, context)
    except Exception as error:  # A broken invariant: this input fails, others are processed.
        return _failed(service, folded, _bug(message, error), context)


def replay(
    service: Service[S, I, O],
    before: Folded[S],
    message: I | Wake | Unreadable,
    recorded: tuple[O | CommandOutcome, ...],
    context: Context,
) -> Folded[S]:
    """What is folded after an input whose outputs the log holds already; nothing is decided."""
    if isinstance(message, Unreadable):
        return fold(service, before, recorded, context)
    if isinstance(message, Command) and before.receipts.outcome_of(message, context.id) is not None:
        return before
    try:
        folded, keys = _taken(service, before, message, context)
    except Exception:
        return fold(service, before, recorded, context)
    return _requeued(fold(service, folded, recorded, context), keys, len(recorded))


def fold(
    service: Service[S, I, O],
    before: Folded[S],
    outputs: Iterable[O | CommandOutcome],
    context: Context,
) -> Folded[S]:
    """What is folded after these outputs: outcomes into receipts, events into the state."""
    state, receipts = before.state, before.receipts
    for output in outputs:
        if isinstance(output, CommandAccepted | CommandRefused):
            receipts = receipts.put(context.id, output)
        else:
            state = service.evolve(state, output, context)
    return Folded(state, receipts)


def _taken(
    service: Service[S, I, O], before: Folded[S], message: I | Wake, context: Context
) -> tuple[Folded[S], tuple[str, ...]]:
    """What is folded with the input, and the keys that are to be reconciled for it."""
    if isinstance(message, Wake):
        work = _work(before.state).work
        keys = work.due(context.time, KEYS_MAX)
        for key in keys:
            work = work.drop(key)
        return Folded(_with_work(before.state, work), before.receipts), keys
    folded = Folded(service.evolve(before.state, message, context), before.receipts)
    reconciler = service.reconciler
    concerned: str | None = None
    if reconciler is not None:
        concerned = reconciler.concerns(folded.state, message)
    return folded, () if concerned is None else (concerned,)


def _decided(
    service: Service[S, I, O],
    folded: Folded[S],
    message: I,
    keys: tuple[str, ...],
    context: Context,
) -> Step[S, O]:
    """The decision on a message, then what is missing for the key that it concerns."""
    outputs: tuple[O | CommandOutcome, ...] = tuple(service.decide(folded.state, message, context))
    assert len(outputs) <= OUTPUTS_MAX, f"{service.name} decides on {len(outputs)} messages at once"
    if isinstance(message, Command):
        outcomes = sum(isinstance(output, CommandOutcome) for output in outputs)
        assert outcomes == 1, f"{service.name} gives a command {outcomes} outcomes"
    folded = fold(service, folded, outputs, context)
    for key in keys:
        missing = _missing(service, folded.state, key, context)
        more = tuple(islice(missing, OUTPUTS_MAX - len(outputs)))
        folded = fold(service, folded, more, context)
        outputs += more
    return Step(_requeued(folded, keys, len(outputs)), outputs)


def _reconciled(
    service: Service[S, I, O],
    folded: Folded[S],
    message: I | Wake,
    keys: tuple[str, ...],
    context: Context,
) -> Step[S, O]:
    """What is missing for the keys of a `Wake`; one that fails does not keep the others waiting."""
    outputs: list[O | CommandOutcome] = []
    failure: Failure | None = None
    for key in keys:
        room = OUTPUTS_MAX - len(outputs)
        try:
            missing = tuple(islice(_missing(service, folded.state, key, context), room))
            after = fold(service, folded, missing, context)
        except Exception as error:
            failure = Failure(_address(message), Wake.__name__, "", describe(error), True, key)
            missing = tuple(islice(service.on_failure(failure), room))
            after = fold(service, folded, missing, context)
        folded = after
        outputs += missing
        if len(outputs) >= OUTPUTS_MAX:
            break
    return Step(_requeued(folded, keys, len(outputs)), tuple(outputs), failure)


def _missing(service: Service[S, I, O], state: S, key: str, context: Context) -> Iterator[O]:
    reconciler = service.reconciler
    assert reconciler is not None, f"{service.name} reconciles nothing"
    yield from reconciler.reconcile(state, key, context)


def _requeued(folded: Folded[S], keys: tuple[str, ...], outputs: int) -> Folded[S]:
    """After a step that was stopped at its bound, its keys are ready to be reconciled further."""
    if outputs < OUTPUTS_MAX or not keys:
        return folded
    work = _work(folded.state).work
    for key in keys:
        work = work.put(key)
    return Folded(_with_work(folded.state, work), folded.receipts)


def _work(state: object) -> WithWork[str]:
    assert isinstance(state, WithWork), "the state of a service with a reconciler has a work queue"
    return state


def _with_work(state: S, work: WorkQueue[str]) -> S:
    assert isinstance(state, WithWork)
    return replace(state, work=work)


def due(service: Service[S, I, O], state: S) -> datetime | None:
    """The next moment at which the service is to be woken; None where there is none."""
    return None if service.reconciler is None else _work(state).work.next()


def _failed(
    service: Service[S, I, O], folded: Folded[S], failure: Failure, context: Context
) -> Step[S, O]:
    outputs: tuple[O | CommandOutcome, ...]
    if failure.is_command:
        outputs = (_refusal(failure),)
    else:
        outputs = tuple(islice(service.on_failure(failure), OUTPUTS_MAX))
    return Step(fold(service, folded, outputs, context), outputs, failure)


def _refusal(failure: Failure) -> CommandRefused:
    org, cluster, pool = failure.address.path
    return CommandRefused(
        org=org,
        cluster=cluster,
        pool=pool,
        command=failure.input,
        reason="InternalError" if failure.is_bug else "Invalid",
        field=failure.field,
        message=failure.cause,
    )


def _unreadable(message: Unreadable) -> Failure:
    return Failure(message.address, message.address.name, message.field, message.cause)


def _bug(message: Message, error: Exception) -> Failure:
    return Failure(_address(message), type(message).__name__, "", describe(error), True)


def _address(message: Message) -> Address:
    kind = "cmd" if isinstance(message, Command) else "evt"
    return Address(kind, "", message.path, type(message).__name__)
