"""Which commands and observations come in: shape, size, identity and the role of the sender."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

from gateway.refusals import Refusal
from nodepool.contract import commands, events
from nodepool.contract.actors import Actor
from nodepool.contract.decode import TOO_LONG, Unreadable, decode
from nodepool.contract.door import OBSERVER, subject_behind
from nodepool.contract.grammar import NAME, SUBDOMAIN_LIMIT
from nodepool.contract.keys import UNNAMED
from nodepool.contract.messages import Command, Envelope, Event, M, wrap
from nodepool.contract.opening import COMMAND_BYTES_MAX, size_fault
from nodepool.contract.roles import SENDERS
from nodepool.contract.subjects import Address, address_of
from nodepool.contract.suggest import did_you_mean

OBSERVATION_BYTES_MAX: Final = 512 << 10
"""The largest observation that is taken."""
_ID_HEADERS: Final = ("ce-id", "nats-msg-id")
_SHAPES: Final = "np.cmd.<org>.<cluster>.<NodePool>.<Command>, with '_' for a missing part"
_OF_OTHERS: Final = "a sender reaches its own organisation only, and an agent its own cluster"


@dataclass(frozen=True, slots=True)
class Admitted:
    """A message that may be stored.

    subject: where it is stored.
    content: the CloudEvent that is stored.
    address: the identity that it is about.
    cost: what it counts against the storage budget of its organisation, in bytes.
    """

    id: str
    subject: str
    content: bytes
    address: Address
    cost: int = 0


def admit(
    door: str, content: bytes, headers: Mapping[str, str], actor: Actor, id: str
) -> Admitted | Refusal:
    """Return what to store for a message that arrived on a subject of the door.

    Of the message only the content is taken, and its id: from the content, or as plain clients
    send it from the header `ce-id` or `Nats-Msg-Id`.

    actor: the sender, as the server vouches for it.
    id: the id for a message that has none.
    """
    subject = subject_behind(door)
    address = address_of(subject)
    if address is None:
        fault = f"{subject} is no subject of a command"
        return Refusal("Invalid", fault, f"publish on {_SHAPES}", "subject")
    if refusal := _find_foreign_part(address, actor) or _find_bad_name(address):
        return refusal
    if address.kind == "cmd":
        return _admit_command(subject, address, content, _id_in(headers) or id, actor)
    return _admit_observation(subject, address, content, actor)


def _find_foreign_part(address: Address, actor: Actor) -> Refusal | None:
    org, cluster, _ = address.path
    if org != actor.org:
        return Refusal("Forbidden", f"{org} is not your organisation", _OF_OTHERS, "subject")
    if actor.cluster and cluster != actor.cluster:
        return Refusal("Forbidden", f"{cluster} is not your cluster", _OF_OTHERS, "subject")
    return None


def _find_bad_name(address: Address) -> Refusal | None:
    for name in address.path:
        if name != UNNAMED and not (len(name) <= SUBDOMAIN_LIMIT and NAME.fullmatch(name)):
            fix = "use letters, digits, '-', '_' or '.', at most 253 characters, '~' for each dot"
            error = TOO_LONG if len(name) > SUBDOMAIN_LIMIT else f"{name!a} is not a valid name"
            return Refusal("Invalid", error, fix, "subject")
    return None


def _admit_command(
    subject: str, address: Address, content: bytes, id: str, actor: Actor
) -> Admitted | Refusal:
    kind = _commands().get(address.name)
    if kind is None:
        error = f"{address.name} is no command{did_you_mean(address.name, _commands())}"
        return Refusal("Invalid", error, "see shared/COMMANDS.md for the commands", "subject")
    if actor.role not in SENDERS[kind]:
        roles = ", ".join(sorted(SENDERS[kind]))
        error = f"{actor.user} has the role {actor.role}, which may not send {address.name}"
        return Refusal("Forbidden", error, f"ask a user with the role {roles}", "subject")
    envelope = decode(kind, subject, content, {"ce-id": id}, 0)
    if isinstance(envelope, Unreadable):
        return _refuse_unreadable(envelope, f"see {address.name} in shared/COMMANDS.md", size=True)
    if not envelope.id.isprintable():
        return Refusal("Invalid", "the id cannot be printed", "use printable characters", "id")
    stored = _store(envelope, actor)
    if too_large := size_fault(stored):
        return _refuse_size(too_large, COMMAND_BYTES_MAX, envelope.id)
    return Admitted(envelope.id, subject, stored, address)


def _admit_observation(
    subject: str, address: Address, content: bytes, actor: Actor
) -> Admitted | Refusal:
    kind = _observations().get(address.name)
    if address.service != OBSERVER or kind is None:
        known = ", ".join(_observations())
        error = f"{subject} is no observation of an agent"
        return Refusal("Invalid", error, f"an agent says {known}", "subject")
    if actor.role != OBSERVER:
        error = f"{actor.user} has the role {actor.role}, and only agents say what they observe"
        return Refusal("Forbidden", error, "use the credentials of the agent", "subject")
    if len(content) > OBSERVATION_BYTES_MAX:
        error = f"the observation has {len(content)} bytes"
        return _refuse_size(error, OBSERVATION_BYTES_MAX, "")
    envelope = decode(kind, subject, content, {}, 0)
    if isinstance(envelope, Unreadable):
        return _refuse_unreadable(envelope, f"send {address.name} as a CloudEvent", size=False)
    return Admitted(envelope.id, subject, _store(envelope, actor), address)


def _store(envelope: Envelope[M], actor: Actor) -> bytes:
    """Return the content to store: nothing else that the sender may have written is in it."""
    return wrap(
        envelope.data,
        id=envelope.id,
        source=envelope.source,
        traceparent=envelope.traceparent,
        tracestate=envelope.tracestate,
        actor=actor.text,
    ).encode()


def _id_in(headers: Mapping[str, str]) -> str:
    """Return the id that a plain client has sent as a header; empty if there is none."""
    given = {name.lower(): value for name, value in headers.items()}
    return next((given[name] for name in _ID_HEADERS if given.get(name)), "")


def _refuse_unreadable(unreadable: Unreadable, fix: str, *, size: bool) -> Refusal:
    if size and "bytes; at most" in unreadable.cause:
        return _refuse_size(unreadable.cause, COMMAND_BYTES_MAX, unreadable.id)
    field, cause = unreadable.field, unreadable.cause
    error = f"{field} {cause}" if field else cause
    return Refusal("Invalid", error, fix, field, unreadable.id)


def _refuse_size(error: str, most: int, id: str) -> Refusal:
    return Refusal("Invalid", error, f"send at most {most} bytes", "", id)


@cache
def _commands() -> Mapping[str, type[Command]]:
    kinds = {name: getattr(commands, name) for name in sorted(commands.COMMANDS)}
    return {name: kind for name, kind in kinds.items() if kind in SENDERS}


@cache
def _observations() -> Mapping[str, type[Event]]:
    kinds = ((name, getattr(events, name)) for name in events.__all__)
    return {name: kind for name, kind in kinds if getattr(kind, "speaker", "") == OBSERVER}
