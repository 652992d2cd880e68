"""Asking a real server, by its protocol, which publishes and subscriptions it denies to a user."""

import asyncio
import base64
import json
import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

from support.nats_users import Key

Verb = Literal["publish", "request", "subscribe"]
VERBS: tuple[Verb, ...] = ("publish", "request", "subscribe")
AT_ONCE = 200
"""How many lines are sent before their answers are read."""
_DENIED = re.compile(rb"-ERR 'Permissions Violation for (Publish|Subscription) to \"([^\"]+)\"")


class Denied(NamedTuple):
    """What the server does not let a user do."""

    verb: Verb
    subject: str


async def denied(port: int, key: Key, inbox: str, subjects: Sequence[str]) -> set[Denied]:
    """What a user may not do with these subjects; `inbox` is where its replies go."""
    reader, writer = await opened(port, key)
    try:
        found = set[Denied]()
        for verb in VERBS:
            for first in range(0, len(subjects), AT_ONCE):
                for number, subject in enumerate(subjects[first : first + AT_ONCE]):
                    writer.write(_line(verb, subject, inbox, number))
                writer.write(b"PING\r\n")
                found |= {Denied(verb, subject) for subject in await _answers(reader)}
        return found
    finally:
        writer.close()


async def opened(port: int, key: Key) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection that has shown a key, as a client writes it by hand."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    info = json.loads((await reader.readline()).removeprefix(b"INFO "))
    signature = base64.urlsafe_b64encode(key.sign(info["nonce"].encode())).rstrip(b"=")
    hello: dict[str, object] = {
        "verbose": False,
        "pedantic": False,
        "headers": True,
        "no_responders": True,
    }
    hello.update(nkey=key.public, sig=signature.decode())
    writer.write(b"CONNECT %b\r\n" % json.dumps(hello).encode())
    return reader, writer


def _line(verb: Verb, subject: str, inbox: str, number: int) -> bytes:
    match verb:
        case "publish":
            return f"PUB {subject} 0\r\n\r\n".encode()
        case "request":
            return f"PUB {subject} {inbox}.{number} 0\r\n\r\n".encode()
        case "subscribe":
            return f"SUB {subject} {number}\r\nUNSUB {number}\r\n".encode()


async def _answers(reader: asyncio.StreamReader) -> list[str]:
    """The subjects that the server denies, until it answers the ping."""
    subjects: list[str] = []
    while (line := await reader.readline()) != b"PONG\r\n":
        if not line:
            raise AssertionError("the server has closed the connection")
        if (match := _DENIED.match(line)) is not None:
            subjects.append(match[2].decode())
        elif line.startswith(b"-ERR"):
            raise AssertionError(line.decode())
        elif line.startswith((b"MSG", b"HMSG")):
            await reader.readexactly(int(line.split()[-1]) + 2)
    return subjects
