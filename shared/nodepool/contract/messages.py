"""What all messages on the bus have in common: what they are about, and their envelope."""

from collections.abc import Iterator
from datetime import datetime
from functools import cache, cached_property
from typing import (
    Annotated,
    ClassVar,
    Generic,
    Required,
    Self,
    TypedDict,
    TypeVar,
    Unpack,
)

from pydantic import BaseModel, ConfigDict, Field

from nodepool.contract.keys import (
    FLEET,
    UNNAMED,
    MachineKey,
    NodeKey,
    PoolKey,
    PoolPath,
    machine_key,
    node_key,
    path_text,
    pool_key,
    pool_path,
)
from nodepool.contract.model import Value
from nodepool.contract.services import PROVIDERS
from nodepool.contract.tracing import STATE_MAX, TRACE_MAX

_KEYS = {"key", "node_key", "machine_key"}
"""The keys that messages have."""


class Message(Value):
    """A message on the bus: immutable, and named by its class.

    Its keys are built on first use, for all services of the process that hear it.
    """

    def __copy__(self) -> Self:
        """Return a copy, of which other fields may be changed, so without the keys."""
        copied = super().__copy__()
        for name in _KEYS & copied.__dict__.keys():
            del copied.__dict__[name]
        return copied

    @property
    def path(self) -> PoolPath:
        """The three identity tokens of this message's subject, general to particular."""
        raise TypeError(f"{type(self).__name__} has no identity on the bus")


class Command(Message):
    """A request for a change; anyone who may publish on its subject can send it."""


class Event(Message):
    """A fact; said only by the service named `speaker`, but for the events of `ProviderEvent`."""

    speaker: ClassVar[str]

    @classmethod
    def speakers(cls) -> tuple[str, ...]:
        """Return the names of all services that may say such an event."""
        return (cls.speaker,)


class Outcome(Event):
    """What became of a command; said by the service that hears the command."""

    speaker: ClassVar[str] = "*"


class OfOrg(Message):
    """A message about an organisation."""

    org: str = ""

    @property
    def path(self) -> PoolPath:
        return self.org, UNNAMED, UNNAMED


class OfCluster(Message):
    """A message about a cluster of an organisation."""

    org: str = ""
    cluster: str = ""

    @property
    def path(self) -> PoolPath:
        return self.org, self.cluster, UNNAMED


class OfPool(Message):
    """A message about a NodePool, or about a part of one."""

    org: str = ""
    cluster: str = ""
    pool: str = ""

    @cached_property
    def key(self) -> PoolKey:
        """The key of the NodePool."""
        return pool_key(self.org, self.cluster, self.pool)

    @property
    def path(self) -> PoolPath:
        return self.org, self.cluster, self.pool


class OfNode(OfPool):
    """A message about a Node of a NodePool.

    node: the name of the Node, which is that of its machine.
    zone: the zone of the machine.
    assignment: the number of the machine's assignment to this NodePool; it distinguishes the Node
        from those that the machine was before or is later.
    """

    node: str
    zone: str
    assignment: int

    @cached_property
    def node_key(self) -> NodeKey:
        """The key of the Node in its cluster."""
        return node_key(self.org, self.cluster, self.node)

    @cached_property
    def machine_key(self) -> MachineKey:
        """The key of the machine that the Node is."""
        return machine_key(self.zone, self.node)


class OfZone(Message):
    """A message about the machines of a zone."""

    zone: str = ""

    @property
    def path(self) -> PoolPath:
        return FLEET, self.zone, UNNAMED


class OfMachine(Message):
    """A message about one machine."""

    zone: str = ""
    machine: str = ""

    @cached_property
    def machine_key(self) -> MachineKey:
        """The key of the machine."""
        return machine_key(self.zone, self.machine)

    @property
    def path(self) -> PoolPath:
        return FLEET, self.zone, self.machine


class OfRealMachine(OfMachine):
    """A message about a real machine: a declaration, an observation or a decision."""


class ProviderEvent(Event, OfMachine):
    """An event about a machine; said by the provider of the zone of the machine, and no other.

    speaker: the provider of a zone for which the catalog names no other.
    """

    speaker: ClassVar[str] = PROVIDERS[0]

    @classmethod
    def speakers(cls) -> tuple[str, ...]:
        """Return the names of all providers."""
        return PROVIDERS


class PoolFields(TypedDict):
    """The identity of a NodePool as the fields of a message about it."""

    org: str
    cluster: str
    pool: str


def pool_fields(key: PoolKey) -> PoolFields:
    """Return the identity of a NodePool as the fields of a message about the NodePool."""
    org, cluster, pool = pool_path(key)
    return {"org": org, "cluster": cluster, "pool": pool}


def path_fields(message: Message) -> PoolFields:
    """Return the identity of `message` as the fields of a message about a NodePool."""
    org, cluster, pool = message.path
    return {"org": org, "cluster": cluster, "pool": pool}


M = TypeVar("M", bound=Message)


ID_MAX = 256
"""The longest id of a message, in characters; a command's is repeated in all that follows."""

ACTOR_MAX = 1_100
"""The longest `actor` of a message, in characters."""

Id = Annotated[str, Field(max_length=ID_MAX)]
Trace = Annotated[str, Field(max_length=TRACE_MAX)]
TraceState = Annotated[str, Field(max_length=STATE_MAX)]


class Envelope(BaseModel, Generic[M]):
    """A message as it is stored: a CloudEvent 1.0 in structured JSON, linked to its cause.

    The attributes are those of https://github.com/cloudevents/spec, and these extensions:
    traceparent, tracestate: the trace that it belongs to (https://www.w3.org/TR/trace-context/).
    correlationid: the id of the command that everything began with.
    causationid, causeposition: the id of the message that led to this one, and its position.
    actor: who has sent the command that everything began with, see `contract.actors`. The gateway
        writes it; a command without it is the operator's, who alone reaches the log directly. A
        service that begins work by itself, as the autoscaler does, is named.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    specversion: str = "1.0"
    id: Id
    type: str
    source: str
    subject: str = ""
    time: datetime | None = None
    datacontenttype: str = "application/json"
    traceparent: Trace | None = None
    tracestate: TraceState | None = None
    correlationid: Id | None = None
    causationid: Id | None = None
    causeposition: int | None = None
    actor: Annotated[str, Field(max_length=ACTOR_MAX)] | None = None
    data: M

    def encode(self) -> bytes:
        """Return this envelope as the bytes that are stored."""
        return self.__pydantic_serializer__.to_json(self, exclude_none=True)


@cache
def envelope_of(message: type[Message]) -> type[Envelope[Message]]:
    """Return the envelope class that carries messages of this class."""
    # Pydantic makes the class at run time from a type that is a value here.
    return Envelope[message]  # type: ignore[valid-type]


class Attributes(TypedDict, total=False):
    """The attributes of an envelope that its message does not give."""

    id: Required[str]
    source: Required[str]
    time: datetime | None
    traceparent: str | None
    tracestate: str | None
    correlationid: str | None
    causationid: str | None
    causeposition: int | None
    actor: str | None


_ALL = {name: field.get_default() for name, field in Envelope.model_fields.items()}
_NAMES = set(_ALL)


def wrap(message: M, **attributes: Unpack[Attributes]) -> Envelope[M]:
    """Return a message in its envelope; the attributes are not checked."""
    kind = type(message)
    own = {"type": kind.__name__, "subject": path_text(message.path), "data": message}
    # This is `model_construct` at half its cost, which each message of the log has once.
    made = object.__new__(envelope_of(kind))
    object.__setattr__(made, "__dict__", {**_ALL, **own, **attributes})
    object.__setattr__(made, "__pydantic_fields_set__", _NAMES)
    object.__setattr__(made, "__pydantic_extra__", None)
    object.__setattr__(made, "__pydantic_private__", None)
    # `envelope_of` cannot say that the envelope of a kind carries that very kind.
    return made  # type: ignore[return-value]


def members(union: object) -> Iterator[type[Message]]:
    """Yield the message classes of a `Hears` or `Says`: a union, or one class."""
    args = getattr(union, "__args__", None) or ((union,) if union is not None else ())
    for member in args:
        if isinstance(member, type) and issubclass(member, Message):
            yield member
