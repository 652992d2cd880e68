"""Messages from the bytes in the log; content that cannot be read becomes a value, not an error."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import NamedTuple, TypeVar

from pydantic import ValidationError
from pydantic_core import to_json

from nodepool.contract.keys import TOKEN_MAX, cut
from nodepool.contract.messages import (
    Command,
    Envelope,
    Message,
    OfCluster,
    OfMachine,
    OfOrg,
    OfPool,
    OfZone,
    envelope_of,
    wrap,
)
from nodepool.contract.model import Value
from nodepool.contract.opening import Opened, open_command
from nodepool.contract.reference import Field, describe_model
from nodepool.contract.subjects import Address, address_of, path_at, subject_of
from nodepool.contract.suggest import did_you_mean

TOO_LONG = f"a part of the subject has more than {TOKEN_MAX} characters"
DECODED_MAX, DECODED_BYTES_MAX = 2_048, 4_096
"""The size of the cache in events, and the size in bytes of the largest event in the cache."""
OTHER_TYPE = "differs from the subject it was sent on, which is for {}"

M = TypeVar("M", bound=Message)
V = TypeVar("V", bound=Value)


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A message whose subject can be read and whose content cannot, or does not belong there.

    address: the parts of the subject, with tokens cut that are too long.
    id: the id of the message.
    field: the field at fault, as `spec.targetNodes`; empty where it is the content as a whole.
    cause: one sentence.
    correlationid: the id that the sender of a command waits for; None for an event.
    traceparent, tracestate: the trace that the sender of a command has given it.
    actor: the sender of the command, as the gateway writes it.
    """

    address: Address
    id: str
    field: str
    cause: str
    correlationid: str | None = None
    traceparent: str | None = None
    tracestate: str | None = None
    actor: str | None = None


class _Misplaced(NamedTuple):
    """Why a message does not belong on the subject that it was sent on."""

    field: str
    cause: str


def decode(
    kind: type[M], subject: str, content: bytes, headers: Mapping[str, str], position: int
) -> Envelope[M] | Unreadable:
    """Return the envelope in `content`, or why it cannot be read; never raise for bad content.

    Permissions depend on the subject alone, so a message whose type or identity differs from its
    subject is not read. A command may also be sent in the binary mode of CloudEvents or as bare
    JSON. Its id is then the header `ce-id` or `Nats-Msg-Id`, or else its position in the log.
    """
    if issubclass(kind, Command):
        return _decode_command(kind, _address(subject), content, headers, position)
    decode_event = decode_once if len(content) <= DECODED_BYTES_MAX else _decode_event
    # `envelope_of` cannot say that the envelope of a kind carries that very kind.
    return decode_event(kind, subject, content, position)  # type: ignore[return-value]


def _decode_event(
    kind: type[Message], subject: str, content: bytes, position: int
) -> Envelope[Message] | Unreadable:
    """Return the envelope of an event, or why it cannot be read."""
    try:
        envelope = envelope_of(kind).model_validate_json(content)
    except ValidationError as error:
        field, cause = explain(error)
    else:
        misplaced = _find_misplacement(envelope, kind, subject)
        if misplaced is None:
            return envelope
        field, cause = misplaced
    return Unreadable(_address(subject), str(position), field, cause)


decode_once = lru_cache(DECODED_MAX)(_decode_event)
"""Decodes an event that several services of a process hear once for all of them."""


def unknown_command(
    subject: str, content: bytes, headers: Mapping[str, str], position: int
) -> Unreadable:
    """Return a command of an unknown name, to refuse under the id that its sender waits for."""
    name = subject.rpartition(".")[2]
    cause = f"{name} is no command: see the last part of the subject"
    return build_unreadable(subject, content, headers, position, "type", cause)


def build_unreadable(
    subject: str,
    content: bytes,
    headers: Mapping[str, str],
    position: int,
    field: str,
    cause: str,
) -> Unreadable:
    """Return a message of which only the id is read; a command is refused under this id."""
    return _build_unreadable(
        _address(subject), open_command(content, headers, position), field, cause
    )


def value_in(kind: type[V], content: str) -> V | tuple[str, str]:
    """Return the value in a JSON text; if it is invalid, the field at fault and one sentence."""
    try:
        return kind.model_validate_json(content, strict=True)
    except ValidationError as error:
        return explain(error)


def explain(error: ValidationError, kind: type[Message] | None = None) -> tuple[str, str]:
    """Return the fault of a validation: the field as a manifest writes it, and one sentence.

    An unknown field comes before all other faults, because a misspelt field is also missing.
    Otherwise the first fault counts. For an unknown field, the sentence suggests a field of the
    message `kind`.
    """
    faults = error.errors(include_url=False, include_context=False)
    fault = next((each for each in faults if each["type"] == "extra_forbidden"), faults[0])
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in fault["loc"])
    field = "".join(parts).removeprefix(".")
    text = fault["msg"].removeprefix("Value error, ")
    match fault["type"]:
        case "missing":
            return field, "is required"
        case "extra_forbidden":
            return field, f"is not a known field{_suggestion(kind, fault['loc'])}"
        case "json_invalid":
            return "", f"the content is not JSON: {text}"
        case _:
            return field, text[:1].lower() + text[1:]


def _suggestion(kind: type[Message] | None, place: Sequence[int | str]) -> str:
    """Return the end of a sentence that suggests a field of `kind` for an unknown field."""
    if kind is None:
        return ""
    *path, unknown = place
    field = _describe_kind(kind)
    for name in path:
        if isinstance(name, str):
            inner = next((each for each in field.fields if each.name == name), None)
            if inner is None:
                return ""
            field = inner
    return did_you_mean(str(unknown), [each.name for each in field.fields])


@cache
def _describe_kind(kind: type[Message]) -> Field:
    return describe_model(kind, "")


def _address(subject: str) -> Address:
    address = address_of(subject)
    if address is None:
        raise ValueError(f"{subject} is no message subject")
    is_long = max(map(len, address.path)) > TOKEN_MAX
    return replace(address, path=cut(address.path)) if is_long else address


def _find_misplacement(envelope: Envelope[M], kind: type[M], subject: str) -> _Misplaced | None:
    """Return why an event that can be read does not belong on its subject; None if it does."""
    name, speaker = kind.__name__, getattr(kind, "speaker", "")
    if envelope.type != name:
        return _Misplaced("type", OTHER_TYPE.format(name))
    org, cluster, pool = envelope.data.path
    # Taking a subject apart costs more, and few are long or have a name with a dot.
    is_plain = "~" not in subject and len(subject) < TOKEN_MAX
    if is_plain and subject == f"np.evt.{speaker}.{org}.{cluster}.{pool}.{name}":
        return None
    path = path_at(subject)
    if (org, cluster, pool) != path:
        return _Misplaced("data", "is about something else than the subject it was sent on")
    # A refusal of a token that is too long has one character more.
    if max(map(len, path)) > TOKEN_MAX + 1:
        return _Misplaced("", TOO_LONG)
    return None


def _decode_command(
    kind: type[M], address: Address, content: bytes, headers: Mapping[str, str], position: int
) -> Envelope[M] | Unreadable:
    command = open_command(content, headers, position)
    fault = command.fault
    if not fault and max(map(len, address.path)) > TOKEN_MAX:
        fault = TOO_LONG
    if fault:
        return _build_unreadable(address, command, "", fault)
    if command.attribute("type", kind.__name__) != kind.__name__:
        return _build_unreadable(address, command, "type", OTHER_TYPE.format(kind.__name__))
    body = to_json(command.data)
    try:
        data = kind.model_validate_json(body, strict=True, extra="forbid", by_name=False)
    except ValidationError as error:
        return _build_unreadable(address, command, *explain(error, kind))
    identified = _identify(data, address)
    if isinstance(identified, _Misplaced):
        return _build_unreadable(address, command, *identified)
    trace, state = command.trace
    return wrap(
        identified,
        id=command.id,
        source=command.source,
        traceparent=trace,
        tracestate=state,
        correlationid=command.id,
        actor=command.actor,
    )


def _build_unreadable(address: Address, command: Opened, field: str, cause: str) -> Unreadable:
    """Return a command that is not read, under the id and in the trace that its sender gave."""
    id, actor = command.id, command.actor
    return Unreadable(address, id, field, cause, id, *command.trace, actor)


_IDENTITY: dict[type[Message], tuple[str, ...]] = {
    OfOrg: ("org",),
    OfCluster: ("org", "cluster"),
    OfPool: ("org", "cluster", "pool"),
    OfZone: ("", "zone"),
    OfMachine: ("", "zone", "machine"),
}
"""The fields that hold the tokens of `path`; empty for a token that is always the same."""


def _identify(data: M, address: Address) -> M | _Misplaced:
    """Return `data` with the identity that its subject gives.

    Permissions depend on the subject alone. So the content must not name another identity, and the
    message must belong on exactly this subject: a message about a machine is not accepted on the
    subject of an organisation, although the three tokens would fit.
    """
    names = next(names for base, names in _IDENTITY.items() if isinstance(data, base))
    identity = {name: value for name, value in zip(names, address.path, strict=False) if name}
    named = {name: getattr(data, name) for name in identity}
    for name, value in identity.items():
        if named[name] not in ("", value):
            return _Misplaced(name, "differs from the subject it was sent on")
    identified = data if named == identity else data.model_copy(update=identity)
    if identified.path == address.path:
        return identified
    return _Misplaced("", f"this belongs on the subject {subject_of(identified, '')}")
