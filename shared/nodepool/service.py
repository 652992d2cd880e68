"""A service as a value: what it hears, what it says, and the pure functions between."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from nodepool.contract.events import CommandRefused, Wake
from nodepool.contract.messages import (
    Address,
    Command,
    Event,
    Message,
    Unreadable,
    filter_of,
    members,
)

S = TypeVar("S")
OUTPUTS_MAX = 900
"""The most that one decision may say: the engine takes 1,000 messages in an atomic batch."""
IMMEDIATELY = datetime(1970, 1, 1, tzinfo=UTC)
"""The next moment of a service that has more to say than one decision may hold."""
FILTERS_MAX = 24
"""A service that hears more kinds of event than this reads them all, and passes over the rest."""


class Context(NamedTuple):
    """When an input was asked, and which: its position in the log, the log's own time, its id.

    It is the only clock there is, so replay sees what was seen live.
    """

    position: int
    time: datetime
    id: str = ""


@dataclass(frozen=True, slots=True)
class Failure:
    """A input that could not be processed, and why; what a service says of it is up to it.

    `mistake` tells a broken invariant of ours from content that cannot be read.
    """

    address: Address
    input: str
    field: str
    cause: str
    is_bug: bool = False

    @property
    def is_command(self) -> bool:
        """Whether somebody waits for an outcome."""
        return self.address.kind == "cmd"


def _never(_state: object) -> datetime | None:
    return None


def _nothing(_trouble: Failure) -> Iterable[Message]:
    return ()


class Row(Protocol):
    """A row of the read model; `version` is the position of the message that touched it last."""

    @property
    def version(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Rows(Generic[S]):
    """How a service's state shows in the read model.

    `touched(state, message)` names the rows (bucket, key) that a message may have changed,
    `row(state, bucket, key)` is a row, None where there is none, `render` the object that readers
    see, `keys(state, bucket)` every key there is. `render_deprecated` does as `render`, with what
    is deprecated shown as well.
    """

    buckets: tuple[str, ...]
    touched: Callable[[S, Message], Iterable[tuple[str, str]]]
    row: Callable[[S, str, str], Row | None]
    render: Callable[[Row], Mapping[str, object]]
    keys: Callable[[S, str], Iterable[str]]
    render_deprecated: Callable[[Row], Mapping[str, object]] | None = None


@dataclass(frozen=True)
class Service(Generic[S]):
    """One service of the house.

    `evolve(state, message, now)` folds an input or an output; `decide(state, input, now)`
    yields the outputs to an input that is folded already; `wakes(state)` names the next moment at
    which the service wants a `Wake`; `cannot(failure)` is what it says when it cannot output.
    `commands` names every command there is, for the one service that refuses those on any other
    name: somebody waits for their outcome, too.
    """

    name: str
    hears: object
    says: object
    initial: S
    evolve: Callable[[S, Message, Context], S]
    decide: Callable[[S, Message, Context], Iterable[Message]]
    wakes: Callable[[S], datetime | None] = _never
    on_failure: Callable[[Failure], Iterable[Message]] = _nothing
    rows: Rows[S] | None = None
    commands: frozenset[str] = frozenset()

    @cached_property
    def inputs(self) -> Mapping[str, type[Message]]:
        """The message classes this service hears, by name."""
        return {kind.__name__: kind for kind in members(self.hears)}

    @cached_property
    def outputs(self) -> Mapping[str, type[Message]]:
        """The message classes this service says, by name."""
        return {kind.__name__: kind for kind in members(self.says)}

    def filters(self) -> tuple[str, ...]:
        """The subjects that hold all a replica needs: inputs, wakes, own outputs and commits."""
        heard = {self._filter(kind) for kind in self.inputs.values()}
        events = {one for one in heard if one.startswith("np.evt.")}
        commands = {"np.cmd.*.*.*.*"} if self.commands else heard - events
        if self.says is not None:
            events.add(f"np.evt.{self.name}.>")
        # The engine refuses filters that overlap, so the filter for all of them stands alone.
        told = events if len(events) <= FILTERS_MAX else {"np.evt.>"}
        return (*sorted(commands), *sorted(told), commit_subject(self.name))

    def wants(self, subject: str) -> bool:
        """Whether a replica needs the message on this subject; what `filters` says, in Python."""
        if subject.startswith("np.cmd."):
            return subject.rpartition(".")[2] in self.inputs or self.is_unknown_command(subject)
        if not subject.startswith("np.evt."):
            return subject in self._wanted
        speaker, _, rest = subject[7:].partition(".")
        if speaker == self.name:
            return self.says is not None
        if speaker == "clock":
            return Wake.__name__ in self.inputs and rest.startswith(f"{self.name}.")
        return f"{speaker}.{rest.rpartition('.')[2]}" in self._wanted

    @cached_property
    def _wanted(self) -> frozenset[str]:
        events = {
            f"{kind.speaker}.{name}"
            for name, kind in self.inputs.items()
            if issubclass(kind, Event)
        }
        return frozenset(events | {commit_subject(self.name)})

    def is_unknown_command(self, subject: str) -> bool:
        """Whether this is a command that nobody knows and this service refuses."""
        if not self.commands or not subject.startswith("np.cmd.") or subject.count(".") != 5:
            return False
        return subject.rpartition(".")[2] not in self.commands

    def _filter(self, kind: type[Message]) -> str:
        return f"np.evt.clock.{self.name}.*.*.Wake" if kind is Wake else filter_of(kind)


AnyService = Service[Any]
"""A service of whatever state: Python cannot say "some type that only the service knows"."""


def commit_subject(service: str) -> str:
    """The literal subject of a service's commit records: its fencing token and durable cursor."""
    return f"np.commit.{service}"


class Step(NamedTuple, Generic[S]):
    """What one input came to: the state after it, what is said, and the failure if any."""

    state: S
    outputs: tuple[Message, ...]
    failure: Failure | None = None


def step(service: Service[S], state: S, input: Message | Unreadable, now: Context) -> Step[S]:
    """Folds an input, decides the outputs and folds those; the same live and on replay.

    A input that breaks an invariant changes nothing but what the service says of the failure.
    """
    folded, failure = _asked(service, state, input, now)
    if failure is None and not isinstance(input, Unreadable):
        try:
            outputs = _bounded(service, tuple(service.decide(folded, input, now)))
            return Step(fold(service, folded, outputs, now), outputs)
        except Exception as mistake:  # An invariant is broken: this input fails, others go on.
            failure = _mistaken(input, mistake)
    assert failure is not None
    outputs = _bounded(service, tuple(service.on_failure(failure)))
    return Step(fold(service, folded, outputs, now), outputs, failure)


def replay(
    service: Service[S],
    state: S,
    input: Message | Unreadable,
    recorded: tuple[Message, ...],
    now: Context,
) -> S:
    """The state after an input whose outputs the log holds already."""
    folded, _ = _asked(service, state, input, now)
    return fold(service, folded, recorded, now)


def _asked(
    service: Service[S], state: S, input: Message | Unreadable, now: Context
) -> tuple[S, Failure | None]:
    if isinstance(input, Unreadable):
        address = input.address
        return state, Failure(address, address.name, input.field, input.cause)
    try:
        return service.evolve(state, input, now), None
    except Exception as mistake:  # The input is not folded at all, live and on replay alike.
        return state, _mistaken(input, mistake)


def _mistaken(input: Message, mistake: Exception) -> Failure:
    return Failure(_address(input), type(input).__name__, "", describe(mistake), True)


def fold(service: Service[S], state: S, messages: Iterable[Message], now: Context) -> S:
    """The state after these messages."""
    for message in messages:
        state = service.evolve(state, message, now)
    return state


def _bounded(service: Service[S], outputs: tuple[Message, ...]) -> tuple[Message, ...]:
    assert len(outputs) <= OUTPUTS_MAX, f"{service.name} says {len(outputs)} things at once"
    return outputs


def _address(input: Message) -> Address:
    kind = "cmd" if isinstance(input, Command) else "evt"
    return Address(kind, "", input.path, type(input).__name__)


def refused(failure: Failure) -> CommandRefused:
    """The outcome of a command that could not be taken."""
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


def describe(mistake: Exception) -> str:
    """An exception as one sentence for people: its kind and its words."""
    return f"{type(mistake).__name__}: {mistake}".removesuffix(": ")[:500]
