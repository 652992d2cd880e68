"""What a service is: the messages it hears and says, and the pure functions between them."""

from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar, cast

from nodepool.contract.events import CommandAccepted, CommandRefused, Wake
from nodepool.contract.keys import PoolKey, as_pool_key, path_text
from nodepool.contract.log import COMMANDS, EVENTS
from nodepool.contract.messages import Command, Event, Message, members
from nodepool.contract.metrics import Sample
from nodepool.contract.outcomes import CommandOutcome
from nodepool.contract.subjects import Address, filters_of, is_of_provider

if TYPE_CHECKING:
    from typing_extensions import TypeForm

S = TypeVar("S")
"""The state of a service."""
D = TypeVar("D", bound=Message)
"""The union of the messages that a service decides on; a subset of the messages that it hears."""
I = TypeVar("I", bound=Message)  # noqa: E741  # It always stands next to O.
"""The union of the messages that a service hears: its inputs."""
O = TypeVar("O", bound=Message)  # noqa: E741
"""The union of the events that a service says: its outputs, except outcomes of commands."""
K = TypeVar("K", bound=str)
"""The type of the keys in the work queue of a service."""

FILTERS_MAX = 24
"""A service that hears more kinds of events reads all events and drops the unneeded ones."""


class Context(NamedTuple):
    """Where and when the log stored the input that is being processed.

    position: the sequence of the input in the stream.
    time: when the server stored the input. A service has no other clock, so a replay sees the same
        time. The outputs of a `Wake` are published within a second of this time. The outputs of
        any other input may be published later.
    id: the id of the message; the sender of a command chooses it.
    due: the moment that a `Wake` names; None for any other input. If only the replicas may publish
        a `Wake`, it is the next due moment in the state that a replica had stored.
    follows: the position of the last commit record of the service when it processed the input; 0
        before the first. The outputs for the input are stored after it.
    """

    position: int
    time: datetime
    id: str = ""
    due: datetime | None = None
    follows: int = 0


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an input, or a key of the work queue, could not be processed.

    address: what the input is about.
    input: the name of its message.
    field: the invalid field if the content cannot be read; otherwise empty.
    cause: the cause, in one sentence.
    is_bug: True if the service raised an exception, False if the content cannot be read.
    key: the key of the work queue that could not be reconciled; empty if the input itself failed.
    is_retry: whether the key failed before, or the previous `Wake` failed in the same way. The
        failure then has a dead letter already.
    """

    address: Address
    input: str
    field: str
    cause: str
    is_bug: bool = False
    key: str = ""
    is_retry: bool = False

    @property
    def pool(self) -> PoolKey | None:
        """The NodePool that the input is about; None if it is about something else.

        None for a key of the work queue, too: only the service knows what its keys stand for.
        """
        return None if self.key else as_pool_key(path_text(self.address.path))

    @property
    def is_command(self) -> bool:
        """Return whether a sender waits for an outcome."""
        return self.address.kind == "cmd"


def _no_events(_state: object, _failure: Failure) -> Iterable[Message]:
    return ()


def _no_samples(_state: object) -> Iterable[Sample]:
    return ()


def _no_key(_state: object, _message: Message) -> None:
    return None


def _no_outputs(
    _state: object, _message: Message, _context: Context
) -> Generator[Message, object, None]:
    yield from ()


class Object(Protocol):
    """An object of the read model."""

    @property
    def version(self) -> int:
        """The log position of the input that changed the object last."""
        ...


@dataclass(frozen=True, slots=True)
class Projection(Generic[S, I]):
    """How the state of a service appears in the read model.

    buckets: the key-value buckets that it fills.
    touched: the objects (bucket, key) that a message may have changed, given the state after it.
    get: one object of the state; None if it does not exist.
    keys: every key of a bucket.
    render: an object as readers see it.
    render_deprecated: the same, with the deprecated parts included.
    rendering: the name of the rendering; if the name changes, all objects are written again.
    """

    buckets: tuple[str, ...]
    touched: Callable[[S, I], Iterable[tuple[str, str]]]
    get: Callable[[S, str, str], Object | None]
    keys: Callable[[S, str], Iterable[str]]
    render: Callable[[Object], Mapping[str, object]]
    render_deprecated: Callable[[Object], Mapping[str, object]] | None = None
    rendering: str = ""


@dataclass(frozen=True, slots=True)
class Reconciler(Generic[S, I, O, K]):
    """How a service does work that may not fit in one commit.

    reconcile: yields the events that are missing for a key, given the state; nothing if no event
        is missing. Each `yield` returns the state after the event. The engine may stop the
        generator after any event, and later calls `reconcile` again with the state after that
        event, so the events must follow from the state alone. If it always yields more events,
        the service is woken again and again, and never becomes idle.
    concerns: the key to reconcile right after the decision on a message; None for no key.

    `evolve` can also put a key into the work queue, ready now or due at a moment. The next `Wake`
    then takes the key out of the work queue and reconciles it. A key that fails is reported. It is
    tried again once `evolve` puts it back into the work queue, which `WorkQueue.retry_later`
    does. If its `Wake` was stopped at its bound, it is tried again at once.
    """

    reconcile: Callable[[S, K, Context], Generator[O, S, None]]
    concerns: Callable[[S, I], K | None] = _no_key


@dataclass(frozen=True)
class Service(Generic[S, I, O]):
    """A service as a value.

    name: the name of its package, the token in its subjects, and the label of its metrics.
    hears, says: the unions of the messages it hears and of the events it says.
    initial: the state before the first message.
    evolve: the state after a message that the service heard or said.
    decide: yields the outputs of a message, given the state after the message: events and, for a
        command only, exactly one outcome. Each `yield` returns the state after the event. It
        yields at most 900 messages; work that may need more belongs in the reconciler.
    reconciler: the work that may not fit in one decision; the state then derives from `WithWork`.
    on_failure: at most two events that report an event or a key that could not be processed, given
        the state with everything that could be folded. A command is not reported: the engine
        refuses it.
    projection: how the state appears in the read model.
    samples: the metrics of the state, in addition to the metrics that every replica has.
    commands: the name of every command, for the one service that refuses unknown commands.
    acts_alone: whether its events follow from no command, so that each begins a correlation of its
        own without a trace, and the service is its actor.

    No function of a service reads a clock, draws a random number or does I/O.
    """

    name: str
    hears: "TypeForm[I]"
    initial: S
    evolve: Callable[[S, I | O, Context], S]
    says: "TypeForm[O] | None" = None
    decide: Callable[[S, I, Context], Generator[O | CommandOutcome, S, None]] = _no_outputs  # type: ignore[assignment]  # It yields nothing, so the types do not matter.
    # Each reconciler has its own key type, so the key type is `Any` here.
    reconciler: Reconciler[S, I, O, Any] | None = None
    on_failure: Callable[[S, Failure], Iterable[O]] = _no_events  # type: ignore[assignment]  # It returns no message.
    projection: Projection[S, I] | None = None
    samples: Callable[[S], Iterable[Sample]] = _no_samples
    commands: frozenset[str] = frozenset()
    acts_alone: bool = False

    @cached_property
    def inputs(self) -> Mapping[str, type[I | Wake]]:
        """The message classes this service hears, by name, with `Wake` if it has a reconciler."""
        heard = {kind.__name__: kind for kind in members(self.hears)}
        if self.reconciler is not None:
            heard[Wake.__name__] = Wake
        return cast("Mapping[str, type[I | Wake]]", heard)

    @cached_property
    def outputs(self) -> Mapping[str, type[O | CommandOutcome]]:
        """The message classes this service says, by name, with outcomes if it hears commands."""
        said = {kind.__name__: kind for kind in members(self.says)}
        if any(issubclass(kind, Command) for kind in self.inputs.values()):
            for outcome in (CommandAccepted, CommandRefused):
                said[outcome.__name__] = outcome
        return cast("Mapping[str, type[O | CommandOutcome]]", said)

    def kind_at(self, subject: str) -> type[I | Wake] | None:
        """Return the class of the input on this subject; None if the service hears nothing there.

        A subject is the only authority: a command is one on the subject of commands only, an event
        on that of its speaker, and a `Wake` on that of this service. Of several providers, each is
        believed about the machines of its own zones only.
        """
        kind = self.inputs.get(name := subject.rpartition(".")[2])
        if kind is None:
            return None
        prefixes, dots = self._subjects[name]
        if not subject.startswith(prefixes) or subject.count(".") != dots:
            return None
        return kind if len(prefixes) == 1 or is_of_provider(subject) else None

    @cached_property
    def _subjects(self) -> Mapping[str, tuple[tuple[str, ...], int]]:
        """The prefixes of the subjects of each input, and how many dots the subjects have."""
        shapes: dict[str, tuple[tuple[str, ...], int]] = {}
        for name, kind in self.inputs.items():
            filters = self._filters(kind)
            prefixes = tuple(each[: each.index("*")] for each in filters)
            shapes[name] = prefixes, filters[0].count(".")
        return shapes

    def filters(self) -> tuple[str, ...]:
        """Return the subjects that a replica reads: its inputs, its own outputs and commits."""
        heard = {each for kind in self.inputs.values() for each in self._filters(kind)}
        events = {subject for subject in heard if subject.startswith("np.evt.")}
        commands = {COMMANDS} if self.commands else heard - events
        if self.outputs:
            events.add(f"np.evt.{self.name}.*.*.*.*")
        # The server refuses filters that overlap, so the filter for all events replaces the others.
        wanted = {EVENTS} if self._reads_all_events else events
        return (*sorted(commands), *sorted(wanted), commit_subject(self.name))

    def wants(self, subject: str) -> bool:
        """Whether one of `filters` lets this subject through, which is one that the log takes."""
        match subject.count("."):
            case 2:
                return subject == commit_subject(self.name)
            case 5 if self.commands:
                return subject.startswith("np.cmd.")
            case 6 if self._reads_all_events:
                return subject.startswith("np.evt.")
            case 6 if self.outputs and subject.startswith(f"np.evt.{self.name}."):
                return True
        return self.kind_at(subject) is not None

    @cached_property
    def _reads_all_events(self) -> bool:
        heard = [kind for kind in self.inputs.values() if issubclass(kind, Event)]
        filters = sum(len(self._filters(kind)) for kind in heard)
        return filters + bool(self.outputs) > FILTERS_MAX

    def is_input(self, subject: str) -> bool:
        """Return whether a message on this subject is an input, be it readable or not."""
        return self.kind_at(subject) is not None or self.is_unknown_command(subject)

    def is_unknown_command(self, subject: str) -> bool:
        """Return whether this is a command of an unknown name, and this service refuses those."""
        if not self.commands or not subject.startswith("np.cmd.") or subject.count(".") != 5:
            return False
        return subject.rpartition(".")[2] not in self.commands

    def _filters(self, kind: type[Message]) -> tuple[str, ...]:
        return (f"np.evt.clock.{self.name}.*.*.Wake",) if kind is Wake else filters_of(kind)


def decide_on(
    decides: "TypeForm[D]",
    decide: Callable[[S, D, Context], Generator[O | CommandOutcome, S, None]],
) -> Callable[[S, Message, Context], Generator[O | CommandOutcome, S, None]]:
    """Return a decision on all messages that yields nothing for messages other than `decides`."""
    kinds = frozenset(members(decides))

    def decide_message(
        state: S, message: Message, context: Context
    ) -> Generator[O | CommandOutcome, S, None]:
        if type(message) not in kinds:
            return _no_outputs(state, message, context)  # type: ignore[return-value]  # As for `Service.decide`.
        # The type checker does not see that `kinds` are the classes of D.
        return decide(state, cast("D", message), context)

    return decide_message


AnyService = Service[Any, Any, Any]
"""A service with any state and any messages, for lists of different services."""


def commit_subject(service: str) -> str:
    """Return the subject of a service's commit records: its fencing token and durable cursor."""
    return f"np.commit.{service}"
