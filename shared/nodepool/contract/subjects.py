"""The subjects of messages: `np.cmd.<identity>.<name>` and `np.evt.<service>.<identity>.<name>`.

The identity is three tokens, `Message.path`, and the name is that of the message's class. Beside
these the log holds commit records and dead letters, on one subject for each service.
"""

from dataclasses import dataclass
from functools import cache
from typing import Final

from nodepool.contract.catalog import provider_of
from nodepool.contract.keys import PoolPath, name_at, token
from nodepool.contract.log import SUBJECTS
from nodepool.contract.messages import Command, Event, Message
from nodepool.contract.services import EVERY

_NAMES: Final = ("org", "cluster", "pool", "zone", "machine", "service")
"""The fields of which an identity is made."""
_SHAPES: Final = frozenset(
    (*pattern.split(".")[:2], pattern.count(".") + 1) for pattern in SUBJECTS
)


@dataclass(frozen=True, slots=True)
class Address:
    """The parts of a subject.

    kind: `cmd` or `evt`.
    service: the service that says the event; empty for a command.
    path: the identity of what the message is about.
    name: the name of the message's class.
    """

    kind: str
    service: str
    path: PoolPath
    name: str


def subject_of(message: Message, service: str) -> str:
    """Return the subject of `message`; `service` publishes an event, and is unused for commands."""
    tokens = ".".join(map(token, message.path))
    name = type(message).__name__
    if isinstance(message, Command):
        return f"np.cmd.{tokens}.{name}"
    return f"np.evt.{service}.{tokens}.{name}"


def filters_of(message: type[Message]) -> tuple[str, ...]:
    """Return the subject filters for all messages of this class: one for each of its speakers."""
    name = message.__name__
    if issubclass(message, Command):
        return (f"np.cmd.*.*.*.{name}",)
    if issubclass(message, Event):
        return tuple(f"np.evt.{speaker}.*.*.*.{name}" for speaker in message.speakers())
    raise TypeError(f"{name} is neither command nor event")


@cache
def template_of(message: type[Message]) -> str:
    """Return the subject of all messages of this class, with variable parts named in braces."""
    names = {name: f"{{{name}}}" for name in _NAMES if name in message.model_fields}
    speakers = message.speakers() if issubclass(message, Event) else ("",)
    speaker = speakers[0] if len(speakers) == 1 else "*"
    # A value without its other fields has the identity that its class gives it.
    return subject_of(message.model_construct(None, **names), speaker.replace("*", "{speaker}"))


def is_taken(subject: str) -> bool:
    """Return whether the log takes messages on this subject: whether one of `SUBJECTS` matches."""
    tokens = subject.split(".")
    return "" not in tokens and (*tokens[:2], len(tokens)) in _SHAPES


def address_of(subject: str) -> Address | None:
    """Return the parts of a message's subject; None for any other subject."""
    match subject.split("."):
        case ["np", "cmd", org, cluster, pool, name]:
            path = (name_at(org), name_at(cluster), name_at(pool))
            return Address("cmd", "", path, name)
        case ["np", "evt", service, org, cluster, pool, name]:
            path = (name_at(org), name_at(cluster), name_at(pool))
            return Address("evt", service, path, name)
    return None


def path_at(subject: str) -> PoolPath:
    """Return the identity in the subject of a message."""
    _, org, cluster, pool, _ = subject.rsplit(".", 4)
    if "~" not in subject:
        return org, cluster, pool
    return name_at(org), name_at(cluster), name_at(pool)


def is_of_provider(subject: str) -> bool:
    """Return whether the speaker of an event about a machine is the provider of its zone."""
    _, _, speaker, _, zone, *_ = subject.split(".")
    return speaker == provider_of(name_at(zone))


def is_output(subject: str) -> bool:
    """Return whether a service stores messages on a subject together with a commit record."""
    _, kind, speaker, *_ = (*subject.split("."), "", "")
    return kind in ("evt", "dead") and speaker in _SERVICES


_SERVICES: Final = frozenset(EVERY)
