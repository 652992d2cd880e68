"""What all messages on the bus have in common: a name, a subject, an envelope, and bytes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import ClassVar, Generic, TypedDict, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import from_json, to_json

from nodepool.contract.keys import (
    FLEET,
    UNNAMED,
    MachineKey,
    NodeKey,
    PoolKey,
    PoolPath,
    machine_key,
    node_key,
    pool_key,
    pool_path,
)
from nodepool.contract.model import Value

CONTENT_TYPE = "application/cloudevents+json; charset=utf-8"
COMMAND_BYTES_MAX = 256 << 10
"""The largest command that is taken. What is said to it is larger, and must still fit the bus."""
ID_MAX = 256
TRACE_MAX = 64
"""Whatever is handed on from message to message has a bound."""


class Message(Value):
    """Something said on the bus; frozen, and named by the specification's own word."""

    @property
    def path(self) -> PoolPath:
        """The three identity tokens of this message's subject, general to particular."""
        raise TypeError(f"{type(self).__name__} has no identity on the bus")


class Command(Message):
    """Asks for something; anyone entitled may publish it."""


class Event(Message):
    """States something; said only by the service named `speaker`."""

    speaker: ClassVar[str]


class Outcome(Event):
    """What became of a command; said by whichever service took it."""

    speaker: ClassVar[str] = "*"


class OfOrg(Message):
    """About an organisation as a whole."""

    org: str = ""

    @property
    def path(self) -> PoolPath:
        return self.org, UNNAMED, UNNAMED


class OfCluster(Message):
    """About a cluster of an organisation."""

    org: str = ""
    cluster: str = ""

    @property
    def path(self) -> PoolPath:
        return self.org, self.cluster, UNNAMED


class OfPool(Message):
    """About a NodePool."""

    org: str = ""
    cluster: str = ""
    pool: str = ""

    @property
    def key(self) -> PoolKey:
        """The key of the NodePool."""
        return pool_key(self.org, self.cluster, self.pool)

    @property
    def path(self) -> PoolPath:
        return self.org, self.cluster, self.pool


class OfNode(OfPool):
    """About a Node: one stay of a machine in a NodePool, which `assignment` tells from others."""

    node: str
    zone: str
    assignment: int

    @property
    def node_key(self) -> NodeKey:
        """The key of the Node in its cluster."""
        return node_key(self.org, self.cluster, self.node)

    @property
    def machine_key(self) -> MachineKey:
        """The key of the machine that the Node is."""
        return machine_key(self.zone, self.node)


class OfZone(Message):
    """About the machines of a zone."""

    zone: str = ""

    @property
    def path(self) -> PoolPath:
        return FLEET, self.zone, UNNAMED


class OfMachine(Message):
    """About one machine."""

    zone: str = ""
    machine: str = ""

    @property
    def machine_key(self) -> MachineKey:
        """The key of the machine."""
        return machine_key(self.zone, self.machine)

    @property
    def path(self) -> PoolPath:
        return FLEET, self.zone, self.machine


_IDENTITY: dict[type[Message], tuple[str, ...]] = {
    OfOrg: ("org",),
    OfCluster: ("org", "cluster"),
    OfPool: ("org", "cluster", "pool"),
    OfZone: ("", "zone"),
    OfMachine: ("", "zone", "machine"),
}

M = TypeVar("M", bound=Message)


class Envelope(BaseModel, Generic[M]):
    """A message on the bus: a CloudEvent 1.0 in structured JSON, with what links it to its cause.

    `correlationid` is the id of the command that began it all, `causationid` the id of the message
    answered and `causeposition` that message's place in the log.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    specversion: str = "1.0"
    id: str
    type: str
    source: str
    subject: str = ""
    time: datetime | None = None
    datacontenttype: str = "application/json"
    traceparent: str | None = None
    correlationid: str | None = None
    causationid: str | None = None
    causeposition: int | None = None
    data: M

    def encode(self) -> bytes:
        """This envelope as the bytes that lie in the log."""
        return self.__pydantic_serializer__.to_json(self, exclude_none=True)


@dataclass(frozen=True, slots=True)
class Address:
    """A subject taken apart: who it is about, and which message it carries."""

    kind: str
    service: str
    path: PoolPath
    name: str


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A message whose subject is understood and whose content is not.

    `field` names the field at fault as `spec.targetNodes`; `cause` is one sentence.
    """

    address: Address
    id: str
    field: str
    cause: str
    correlationid: str | None = None


@dataclass(frozen=True, slots=True)
class Misplaced:
    """A message on a subject that is not its own: the field that says so, and one sentence."""

    field: str
    cause: str


def token(name: str) -> str:
    """A name as one subject token: NATS parts tokens at dots, so a dot is written `~`."""
    return name.replace(".", "~")


def subject_of(message: Message, service: str) -> str:
    """The subject on which `service` says `message`; commands have no service in theirs."""
    tokens = ".".join(map(token, message.path))
    name = type(message).__name__
    if isinstance(message, Command):
        return f"np.cmd.{tokens}.{name}"
    return f"np.evt.{service}.{tokens}.{name}"


class PoolFields(TypedDict):
    """The identity of a NodePool as the fields of a message about it."""

    org: str
    cluster: str
    pool: str


def pool_fields(key: PoolKey) -> PoolFields:
    """The identity of a NodePool as the fields of a message about it."""
    org, cluster, pool = pool_path(key)
    return {"org": org, "cluster": cluster, "pool": pool}


def path_fields(message: Message) -> PoolFields:
    """The identity of `message` as the fields of a message about a NodePool."""
    org, cluster, pool = message.path
    return {"org": org, "cluster": cluster, "pool": pool}


def filter_of(message: type[Message]) -> str:
    """The subject filter that catches every message of this class."""
    name = message.__name__
    if issubclass(message, Command):
        return f"np.cmd.*.*.*.{name}"
    if issubclass(message, Event):
        return f"np.evt.{message.speaker}.*.*.*.{name}"
    raise TypeError(f"{name} is neither command nor event")


def address_of(subject: str) -> Address | None:
    """The parts of a message's subject; None for any other subject."""
    match subject.split("."):
        case ["np", "cmd", org, cluster, pool, name]:
            path = (_name(org), _name(cluster), _name(pool))
            return Address("cmd", "", path, name)
        case ["np", "evt", service, org, cluster, pool, name]:
            path = (_name(org), _name(cluster), _name(pool))
            return Address("evt", service, path, name)
    return None


def _name(part: str) -> str:
    return part.replace("~", ".")


@cache
def envelope_of(message: type[Message]) -> type[Envelope[Message]]:
    """The envelope class that carries messages of this class."""
    return Envelope[message]  # type: ignore[valid-type]


def decode(
    kind: type[M], subject: str, content: bytes, headers: dict[str, str], position: int
) -> Envelope[M] | Unreadable:
    """The envelope in `content`, or why it cannot be read; never raises for bad content.

    A command may also be said in the CloudEvents binary mode, or as bare JSON: then its id is the
    `ce-id` or `Nats-Msg-Id` header, else its position in the log.
    """
    if issubclass(kind, Command):
        return _decode_command(kind, _address(subject), content, headers, position)
    try:
        return envelope_of(kind).model_validate_json(content)  # type: ignore[return-value]
    except ValidationError as error:
        field, cause = explain(error)
        return Unreadable(_address(subject), str(position), field, cause)


def _address(subject: str) -> Address:
    address = address_of(subject)
    if address is None:
        raise ValueError(f"{subject} is no message subject")
    return address


def _decode_command(
    kind: type[M], address: Address, content: bytes, headers: dict[str, str], position: int
) -> Envelope[M] | Unreadable:
    header = {name.lower(): value for name, value in headers.items()}
    attributes, body, id, fault = _opened(content, header, position)
    if fault:
        return Unreadable(address, id, "", fault, id)
    try:
        data = kind.model_validate_json(to_json(body), strict=True, extra="forbid", by_name=False)
    except ValidationError as error:
        field, cause = explain(error)
        return Unreadable(address, id, field, cause, id)
    identified = _identified(data, address)
    if isinstance(identified, Misplaced):
        return Unreadable(address, id, identified.field, identified.cause, id)
    trace = attributes.get("traceparent") or header.get("traceparent")
    source = attributes.get("source") or header.get("ce-source")
    return envelope_of(kind).model_construct(  # type: ignore[return-value]
        id=id,
        type=kind.__name__,
        source=source if isinstance(source, str) else "unknown",
        subject="/".join(address.path),
        traceparent=trace if isinstance(trace, str) and len(trace) <= TRACE_MAX else None,
        correlationid=id,
        data=identified,
    )


def _opened(
    content: bytes, header: Mapping[str, str], position: int
) -> tuple[Mapping[str, object], object, str, str]:
    """A command taken apart, whichever way it is said: attributes, data, id, and what is wrong."""
    id = header.get("ce-id") or header.get("nats-msg-id") or ""
    if not 0 < len(id) <= ID_MAX:
        id = str(position)
    if len(content) > COMMAND_BYTES_MAX:
        told = f"the command has {len(content)} bytes; at most {COMMAND_BYTES_MAX} are taken"
        return {}, None, id, told
    try:
        outer = from_json(content)
    except ValueError as error:
        return {}, None, id, f"the content is not JSON: {error}"
    if not isinstance(outer, dict):
        return {}, None, id, "the content is not a JSON object"
    if "specversion" not in outer:
        return {}, outer, id, ""
    given = outer.get("id")
    if isinstance(given, str) and len(given) > ID_MAX:
        return {}, None, id, f"the id has {len(given)} characters; at most {ID_MAX} are taken"
    return outer, outer.get("data", {}), given if isinstance(given, str) and given else id, ""


def unknown_command(
    subject: str, content: bytes, headers: Mapping[str, str], position: int
) -> Unreadable:
    """A command on a name that nobody knows, so that its sender can be told."""
    header = {name.lower(): value for name, value in headers.items()}
    _, _, id, _ = _opened(content, header, position)
    address = _address(subject)
    cause = f"{address.name} is no command: see the last part of the subject"
    return Unreadable(address, id, "type", cause, id)


def _identified(data: M, address: Address) -> M | Misplaced:
    """`data` with the identity its subject gives, unless the two disagree.

    Entitlement is decided by subject, so content must never reach beyond it, and a subject must be
    the very one on which this is said: nobody commands the fleet from an organisation's subject.
    """
    names = next(names for base, names in _IDENTITY.items() if isinstance(data, base))
    identity = {name: value for name, value in zip(names, address.path, strict=False) if name}
    for name, value in identity.items():
        if getattr(data, name) not in ("", value):
            return Misplaced(name, "differs from the subject it was sent on")
    identified = data.model_copy(update=identity)
    if identified.path == address.path:
        return identified
    return Misplaced("", f"this belongs on the subject {subject_of(identified, '')}")


def explain(error: ValidationError) -> tuple[str, str]:
    """The first fault of a validation: the field as a manifest writes it, and one sentence."""
    fault = error.errors(include_url=False, include_context=False)[0]
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in fault["loc"])
    field = "".join(parts).removeprefix(".")
    told = fault["msg"].removeprefix("Value error, ")
    match fault["type"]:
        case "missing":
            return field, "is required"
        case "extra_forbidden":
            return field, "is not a known field"
        case "json_invalid":
            return "", f"the content is not JSON: {told}"
        case _:
            return field, told[:1].lower() + told[1:]


def members(union: object) -> Iterator[type[Message]]:
    """The message classes of a `Hears` or `Says`: a union, or one class."""
    args = getattr(union, "__args__", None) or ((union,) if union is not None else ())
    for member in args:
        if isinstance(member, type) and issubclass(member, Message):
            yield member
