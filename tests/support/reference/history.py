"""What lies in a log, message by message, and in the order in which one service took it in.

The reference model computes with commands, events and plain dictionaries. Where the order in time
decides what is right, only the log knows it, and the log knows it exactly: each event names the
position of the input that it is an output of. So the messages of a log, sorted by `seen_by`, are
what one service knew when it said each of its events, however late it was.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from nodepool.contract.messages import Message


class Stored(NamedTuple):
    """A message in the log.

    position, time: where and when the log stored it.
    cause: the position of the input that it is an output of; 0 for commands and wakes.
    speaker: the service that said it; `cmd` for a command and `clock` for a wake.
    id: the id of the command that it goes back to, or its own.
    """

    position: int
    time: datetime
    cause: int
    speaker: str
    id: str
    message: Message


@dataclass
class History:
    """Every message of a log.

    messages, by_position: in the order of the log.
    failed: the inputs that a service could not process: its name, the position, and the cause.
    skipped: the inputs that a service passed over, by its name and the position.
    """

    messages: list[Stored] = field(default_factory=list)
    by_position: dict[int, Stored] = field(default_factory=dict)
    failed: list[tuple[str, int, str]] = field(default_factory=list)
    skipped: set[tuple[str, int]] = field(default_factory=set)

    def add(self, stored: Stored) -> None:
        """Takes the next message of the log."""
        self.messages.append(stored)
        self.by_position[stored.position] = stored

    def command_at(self, position: int) -> Message | None:
        """The command at a position; None where another message is there, or none."""
        stored = self.by_position.get(position)
        return stored.message if stored is not None and stored.speaker == "cmd" else None

    def seen_by(self, service: str) -> Iterator[Stored]:
        """Yield all messages as a service took them in: each output right after its input.

        What the service passed over, such as a wake that was too old, is left out.
        """

        def place(stored: Stored) -> tuple[int, bool, int]:
            is_own = stored.speaker == service
            return stored.cause if is_own else stored.position, is_own, stored.position

        for stored in sorted(self.messages, key=place):
            if (service, stored.position) not in self.skipped:
                yield stored
