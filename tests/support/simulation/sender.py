"""Publishes commands as careless clients do: twice, late, again under a new id, or malformed."""

import json
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import NamedTuple

from nodepool.contract.decode import unknown_command
from nodepool.contract.keys import PoolPath
from nodepool.engine.world import Log

MALFORMED = (
    b"noise",
    b"[]",
    b'{"targetNodes": "3", "spek": 1}',
    b'{"org": "umbrella", "cluster": "west", "targetNodes": 3}',
    b'{"specversion": "1.0", "id": 7, "data": null}',
)
"""Contents that are refused: not JSON, not an object, unknown fields, another subject's."""


class SentCommand(NamedTuple):
    """A command as it was published."""

    subject: str
    content: bytes
    id: str


@dataclass
class Sender:
    """Everything sent so far, and what is to be sent later.

    delayed: actions that happen some steps later, in this order.
    """

    random: Random
    log: Log
    sent: list[SentCommand] = field(default_factory=list)
    delayed: deque[Callable[[], None]] = field(default_factory=deque)

    def send(self, name: str, path: PoolPath, content: object) -> None:
        """Sends a command, in an envelope or bare; sometimes again, at once or later."""
        id = self._next_id()
        if self.random.random() < 0.8:
            envelope = {"specversion": "1.0", "id": id, "type": name, "source": "simulation"}
            content = {**envelope, "data": content}
        command = SentCommand(_subject(name, path), json.dumps(content).encode(), id)
        self._publish(command)
        chance = self.random.random()
        if chance < 0.05:
            self._store(command)
        elif chance < 0.2:
            self.delayed.append(partial(self._store, command))

    def send_malformed(self, path: PoolPath) -> None:
        """Sends a command that is refused."""
        name = self.random.choice(("ApplyNodePool", "ScaleNodePool", "DeleteNodePool"))
        content = self.random.choice(MALFORMED)
        self._publish(SentCommand(_subject(name, path), content, self._next_id()))

    def resend(self) -> None:
        """Sends an earlier command again: unchanged, or under a new id."""
        is_recent = self.random.random() < 0.6
        command = self.random.choice(self.sent[-12:] if is_recent else self.sent)
        if self.random.randrange(3):
            self._store(command)
        else:
            id = f"again-{len(self.sent)}"  # Not one that somebody foresees, and has taken.
            content = command.content.replace(f'"{command.id}"'.encode(), f'"{id}"'.encode())
            headers = {"Nats-Msg-Id": id}
            self.log.append(command.subject, content, headers)
            # A malformed content may give it another id than its header does.
            id = unknown_command(command.subject, content, headers, 0).id
            self.sent.append(SentCommand(command.subject, content, id))

    def _next_id(self) -> str:
        return f"c{len(self.sent) + 1}"

    def _publish(self, command: SentCommand) -> None:
        self.sent.append(command)
        self._store(command)

    def _store(self, command: SentCommand) -> None:
        """Stores a command, be it for the first time or again."""
        subject, content, id = command
        self.log.append(subject, content, {"Nats-Msg-Id": id})


def _subject(name: str, path: PoolPath) -> str:
    return ".".join(("np.cmd", *path, name))
