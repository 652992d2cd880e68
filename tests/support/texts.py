"""Messages as lines of text, with machines by number, so that tests can compare whole lists."""

import json
import re
from collections.abc import Mapping, Sequence

from nodepool.contract.events import (
    CapacityChecked,
    CommandAccepted,
    CommandRefused,
    CWNodePoolNodesRemoved,
    CWNodePoolRemoveNodes,
    CWNodePoolScaledDown,
    CWNodePoolScaledUp,
    CWNodeRequestQueued,
    GrantAcknowledged,
    NodeActivityChanged,
    NodeLockChanged,
    NodePoolAutoscaled,
    NodePoolValidated,
    NodeReservationChanged,
    NodeUpdated,
    PodChanged,
    QuotaChecked,
    QuotaReleased,
)
from nodepool.contract.messages import Message

FIELDS: Mapping[type[Message], tuple[str, ...]] = {
    NodePoolValidated: ("reason",),
    QuotaChecked: ("reason", "granted"),
    QuotaReleased: ("granted",),
    CapacityChecked: ("reason", "available"),
    GrantAcknowledged: ("granted",),
    CWNodePoolScaledUp: ("before", "after"),
    CWNodeRequestQueued: ("count",),
    CWNodePoolRemoveNodes: ("count",),
    CWNodePoolNodesRemoved: ("count", "remaining"),
    CWNodePoolScaledDown: ("before", "after"),
    NodePoolAutoscaled: ("target",),
    NodeUpdated: ("node", "phase"),
    NodeLockChanged: ("node", "lock", "job"),
    NodeActivityChanged: ("node", "active"),
    NodeReservationChanged: ("node", "usable"),
    PodChanged: ("name", "phase", "node", "reason"),
}
"""The fields that follow a message's name in its line; for any other class, its Node."""
_MACHINE = re.compile(r"\bg[0-9a-f]{6}\b")


def message_text(message: Message) -> str:
    """A message in one line: its name, and the values of its `FIELDS` that are not empty."""
    fields = FIELDS.get(type(message), ("node",))
    values = (str(getattr(message, field, "")) for field in fields)
    return " ".join((type(message).__name__, *filter(None, values)))


def outcome_text(message: CommandAccepted | CommandRefused) -> str:
    """An outcome in one line: `created 1`, or reason, field and sentence of a refusal."""
    if isinstance(message, CommandAccepted):
        generation = "" if message.generation is None else f" {message.generation}"
        return f"{message.result}{generation}"
    return f"{message.reason} {message.field}: {message.message}"


def refusal(outputs: Sequence[Message]) -> str:
    """The only output, a refusal, in one line."""
    (outcome,) = outputs
    assert isinstance(outcome, CommandRefused)
    return outcome_text(outcome)


def dead_letter_text(subject: str, content: bytes) -> str:
    """A dead letter in one line: the service that wrote it, and the name of the message."""
    service, about = subject.rpartition(".")[2], json.loads(content)["subject"]
    return f"{service}: {about.rpartition('.')[2]}"


class MachineNumbers:
    """Short names for machines, in the order in which they were added: `n1`, `n2`, ..."""

    def __init__(self) -> None:
        self._numbers: dict[str, str] = {}

    def add(self, machine: str) -> None:
        """Gives a machine the next number."""
        self._numbers.setdefault(machine, f"n{len(self._numbers) + 1}")

    def name_of(self, number: str) -> str:
        """The name of a machine; a text that is not a number of one is returned as it is."""
        names = {number: name for name, number in self._numbers.items()}
        return names.get(number, number)

    def replace(self, text: str) -> str:
        """The text with numbers in place of the names of machines."""
        return _MACHINE.sub(lambda match: self._numbers.get(match[0], match[0]), text)
