"""What a service is: the messages it hears and says, and the pure functions between them."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar, cast

from nodepool.contract.decode import Unreadable, decode, unknown_command
from nodepool.contract.events import CommandAccepted, CommandRefused, Wake
from nodepool.contract.keys import PoolKey, as_pool_key
from nodepool.contract.log import Entry
from nodepool.contract.messages import Command, Envelope, Event, Message, members
from nodepool.contract.outcomes import CommandOutcome
from nodepool.contract.subjects import Address, filter_of

if TYPE_CHECKING:
    from typing_extensions import TypeForm

S = TypeVar("S")
"""The state of a service."""
I = TypeVar("I", bound=Message)  # noqa: E741  # It stands beside O, and is never a number.
"""The union of what a service hears."""
O = TypeVar("O", bound=Message)  # noqa: E741
"""The union of the events that a service says."""
K = TypeVar("K", bound=str)
"""The keys in the work queue of a service."""

FILTERS_MAX = 24
"""A service that hears more kinds of event than this reads all events and drops the others."""


class Context(NamedTuple):
    """When and where a message was stored: its position in the log, the log's time, and its id.

    This is the only clock there is, so that a replay sees the same time as the live service.
    """

    position: int
    time: datetime
    id: str = ""


@dataclass(frozen=True, slots=True)
class Failure:
    """An input that could not be processed.

    address: what the input is about.
    input: the name of its message.
    field: the field at fault, where its content cannot be read.
    cause: one sentence.
    is_bug: whether an invariant of ours is broken, rather than content that cannot be read.
    key: the key of the work queue that could not be reconciled; empty for the input itself.
    """

    address: Address
    input: str
    field: str
    cause: str
    is_bug: bool = False
    key: str = ""

    @property
    def pool(self) -> PoolKey | None:
        """The NodePool that it is about; None where it is about something else."""
        return as_pool_key(self.key or "/".join(self.address.path))

    @property
    def is_command(self) -> bool:
        """Whether a sender waits for an outcome."""
        return self.address.kind == "cmd"


def _no_events(_failure: Failure) -> Iterable[Message]:
    return ()


def _no_key(_state: object, _message: Message) -> None:
    return None


def _no_outputs(_state: object, _message: Message, _context: Context) -> Iterable[Message]:
    return ()


class Object(Protocol):
    """An object of the read model; `version` is the position of its last change."""

    @property
    def version(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Projection(Generic[S, I]):
    """How the state of a service shows in the read model.

    buckets: the key-value buckets that it fills.
    touched: the objects (bucket, key) that a message may have changed, given the state after it.
    get: one object of the state; None where there is none.
    keys: every key of a bucket.
    render: an object as readers see it.
    render_deprecated: the same with what is deprecated shown as well.
    """

    buckets: tuple[str, ...]
    touched: Callable[[S, I], Iterable[tuple[str, str]]]
    get: Callable[[S, str, str], Object | None]
    keys: Callable[[S, str], Iterable[str]]
    render: Callable[[Object], Mapping[str, object]]
    render_deprecated: Callable[[Object], Mapping[str, object]] | None = None


@dataclass(frozen=True, slots=True)
class Reconciler(Generic[S, I, O, K]):
    """How a service does work that may be more than one commit can hold.

    `reconcile(state, key, context)` yields what is missing for a key; nothing once nothing is. It
    is called for each key that is due in the work queue of the state, and right after the decision
    on a message for `concerns(state, message)`, where that is a key. It may be stopped after any
    message it yields, and is then called again for the same key with the state after that.
    """

    reconcile: Callable[[S, K, Context], Iterable[O]]
    concerns: Callable[[S, I], K | None] = _no_key


@dataclass(frozen=True)
class Service(Generic[S, I, O]):
    """A service as a value.

    name: the package, the token in its subjects, and the label of its metrics.
    hears, says: the unions of the messages it hears and of the events it says.
    initial: the state before the first message.
    evolve: the state after a message that was heard or said.
    decide: what follows from a message, given the state after it: for a command one outcome, and
        events. At most `OUTPUTS_MAX` messages; what may be more belongs to the reconciler.
    reconciler: what the service does beyond that; the state then derives from `WithWork`.
    on_failure: the events that tell of an input other than a command that could not be processed.
    projection: how the state shows in the read model.
    commands: the name of every command, for the one service that refuses unknown commands.

    No function of a service reads a clock, draws a random number or does I/O.
    """

    name: str
    hears: "TypeForm[I]"
    initial: S
    evolve: Callable[[S, I | O, Context], S]
    says: "TypeForm[O] | None" = None
    decide: Callable[[S, I, Context], Iterable[O | CommandOutcome]] = _no_outputs  # type: ignore[assignment]  # Of no message.
    # Each reconciler has a key type of its own, which Python cannot leave open.
    reconciler: Reconciler[S, I, O, Any] | None = None
    on_failure: Callable[[Failure], Iterable[O]] = _no_events  # type: ignore[assignment]  # Of no message.
    projection: Projection[S, I] | None = None
    commands: frozenset[str] = frozenset()

    @cached_property
    def inputs(self) -> Mapping[str, type[I | Wake]]:
        """The message classes this service hears, by name; `Wake` where it has a reconciler."""
        heard = {kind.__name__: kind for kind in members(self.hears)}
        if self.reconciler is not None:
            heard[Wake.__name__] = Wake
        return cast("Mapping[str, type[I | Wake]]", heard)

    @cached_property
    def outputs(self) -> Mapping[str, type[O | CommandOutcome]]:
        """The message classes this service says, by name; outcomes where it hears commands."""
        said = {kind.__name__: kind for kind in members(self.says)}
        if any(issubclass(kind, Command) for kind in self.inputs.values()):
            for outcome in (CommandAccepted, CommandRefused):
                said[outcome.__name__] = outcome
        return cast("Mapping[str, type[O | CommandOutcome]]", said)

    def read(self, entry: Entry) -> Envelope[I | Wake] | Unreadable | None:
        """The input at an entry of the log; None where the service does not hear it."""
        position, _, subject, content, headers = entry
        kind = self.inputs.get(subject.rpartition(".")[2])
        if kind is not None:
            return decode(kind, subject, content, dict(headers), position)
        if self.is_unknown_command(subject):
            return unknown_command(subject, content, dict(headers), position)
        return None

    def filters(self) -> tuple[str, ...]:
        """The subjects of all that a replica reads: its inputs, its own outputs and commits."""
        heard = {self._filter(kind) for kind in self.inputs.values()}
        events = {subject for subject in heard if subject.startswith("np.evt.")}
        commands = {"np.cmd.*.*.*.*"} if self.commands else heard - events
        if self.outputs:
            events.add(f"np.evt.{self.name}.>")
        # The server refuses filters that overlap, so the filter for all events stands alone.
        wanted = events if len(events) <= FILTERS_MAX else {"np.evt.>"}
        return (*sorted(commands), *sorted(wanted), commit_subject(self.name))

    def wants(self, subject: str) -> bool:
        """Whether a replica reads this subject; the same set as `filters`, decided here."""
        if subject.startswith("np.cmd."):
            return subject.rpartition(".")[2] in self.inputs or self.is_unknown_command(subject)
        if not subject.startswith("np.evt."):
            return subject in self._wanted
        speaker, _, rest = subject[7:].partition(".")
        if speaker == self.name:
            return bool(self.outputs)
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
        """Whether this is a command of an unknown name, and this service refuses those."""
        if not self.commands or not subject.startswith("np.cmd.") or subject.count(".") != 5:
            return False
        return subject.rpartition(".")[2] not in self.commands

    def _filter(self, kind: type[Message]) -> str:
        return f"np.evt.clock.{self.name}.*.*.Wake" if kind is Wake else filter_of(kind)


AnyService = Service[Any, Any, Any]
"""A service whatever its state and messages, for lists of services of several kinds."""


def commit_subject(service: str) -> str:
    """The literal subject of a service's commit records: its fencing token and durable cursor."""
    return f"np.commit.{service}"


def describe(error: Exception) -> str:
    """An exception as one sentence: its kind and its text, at most 500 characters."""
    return f"{type(error).__name__}: {error}".removesuffix(": ")[:500]
