"""The limits of one commit: it is stored atomically, so its messages and bytes are bounded."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, lru_cache
from typing import Final, NamedTuple, TypeVar, get_origin

from pydantic import BaseModel

from nodepool.contract.keys import TOKEN_MAX, PoolPath
from nodepool.contract.log import MESSAGE_BYTES_MAX
from nodepool.contract.messages import Message, Outcome

OUTPUTS_MAX: Final = 900
"""The most messages that one input may lead to: the server takes 1,000 in an atomic batch.

It is part of the log's format: if an input led to this many messages, a replay knows that the step
was stopped at its bound.
"""
BYTES_MAX: Final = 4 * 1024 * 1024
"""An input leads to no more messages once its messages have this many bytes.

It is part of the log's format, too. The server syncs a batch of this size to disk in a fraction of
the time for which a service waits for the reply.
"""
ENVELOPE_BYTES_MAX: Final = 16 * 1024
"""An upper bound for the headers and the envelope of a message: ids and identities are bounded."""
DATA_BYTES_MAX: Final = MESSAGE_BYTES_MAX - ENVELOPE_BYTES_MAX
"""The most bytes that the data of an output may have."""
SMALL_BYTES: Final = 1_000
"""The bytes counted for a message that holds only numbers and short texts."""
NAMEABLE_MAX: Final = 2_048
"""Of how many identities it is remembered whether a subject can name them: several outputs in a row
are about the same."""

M = TypeVar("M", bound=Message)
_SEPARATOR: Final = re.compile(r"[ \t\r\n]")
"""The characters that end a subject in the client protocol."""


class Unstorable(Exception):
    """An output is too large for the log, or no subject can name the object that it is about.

    The output follows from its input alone, so a retry would change nothing: the input fails.
    """


class Size(NamedTuple):
    """The size of some messages: their number, and their bytes as JSON."""

    messages: int = 0
    bytes: int = 0

    @property
    def is_full(self) -> bool:
        """Return whether the same step can take no further message."""
        return self.messages >= OUTPUTS_MAX or self.bytes >= BYTES_MAX

    def plus(self, message: Message) -> "Size":
        """Return the size with one more message."""
        return Size(self.messages + 1, self.bytes + bytes_of(message))

    def with_all(self, messages: Iterable[Message]) -> "Size":
        """Return the size with these messages added."""
        sizes = [bytes_of(message) for message in messages]
        return Size(self.messages + len(sizes), self.bytes + sum(sizes)) if sizes else self

    def fits(self, other: "Size") -> bool:
        """Return whether messages of these two sizes fit one commit."""
        return (
            self.messages + other.messages <= OUTPUTS_MAX and self.bytes + other.bytes <= BYTES_MAX
        )


_NOTHING: Final = Size()


def size_of(messages: Iterable[Message]) -> Size:
    """Return the size of these messages."""
    return _NOTHING.with_all(messages)


def fill_a_step(messages: Sequence[Message]) -> bool:
    """Return whether a step with these messages was stopped at its bound, or just reached it."""
    # A few messages never fill a step, and most steps have only a few.
    return len(messages) >= BYTES_MAX // MESSAGE_BYTES_MAX and size_of(messages).is_full


def bytes_of(message: Message) -> int:
    """Return how many bytes a message counts as; the same after it was stored and read again."""
    measure = _measure(type(message))
    return SMALL_BYTES if measure is None else len(measure(message))


def check(message: Message) -> None:
    """Raise Unstorable for an output that the log does not take."""
    name = type(message).__name__
    size = len(message.__pydantic_serializer__.to_json(message))
    if size > DATA_BYTES_MAX:
        raise Unstorable(f"the {name} that follows has {size} bytes; at most {DATA_BYTES_MAX} fit")
    if isinstance(message, Outcome):  # The subject of its command names the same object.
        return
    if not _is_nameable(message.path):
        raise Unstorable(f"no subject can name what the {name} that follows is about")


@lru_cache(NAMEABLE_MAX)
def _is_nameable(path: PoolPath) -> bool:
    """Return whether a subject can name this identity."""
    # A name that is too long was cut to `TOKEN_MAX` characters and an ellipsis.
    is_short = all(path) and max(map(len, path)) <= TOKEN_MAX + 1
    return is_short and not _SEPARATOR.search("".join(path))


@cache
def _measure(kind: type[Message]) -> Callable[[Message], bytes] | None:
    """Return the function that encodes a class of messages as JSON; None if all are small.

    Encoding JSON only to measure it costs time. Messages whose fields are all numbers or short
    texts are small by their class.
    """
    if any(_is_container(field.annotation) for field in kind.model_fields.values()):
        return kind.__pydantic_serializer__.to_json
    return None


def _is_container(annotation: object) -> bool:
    kind = get_origin(annotation) or annotation
    return isinstance(kind, type) and issubclass(kind, (Mapping, tuple, BaseModel))
