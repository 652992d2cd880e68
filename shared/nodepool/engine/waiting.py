"""Limit the commands of one organisation that wait for a service."""

from collections import Counter, deque
from typing import TYPE_CHECKING, Final

from nodepool.contract.decode import Unreadable
from nodepool.contract.events import CommandRefused, RefusalReason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nodepool.contract.messages import Message

WAITING_MAX: Final = 1_000
"""The most commands of one organisation that may wait; further commands are refused.

A command of at least `WEIGHT_BYTES` counts as several, because its cost grows with its size. A
service processes this many commands in about a second. Each command beyond them is refused in a
tenth of a millisecond, and other organisations wait for these refusals too: 20,000 take 2 s.
"""
WEIGHT_BYTES: Final = 1_024
"""A command counts as one more for each multiple of this size in bytes; most are smaller."""
TOO_MANY: Final[RefusalReason] = "TooManyRequests"


class Waiting:
    """The commands of each organisation that a service has read but not committed.

    The log determines them: a command waits until a commit record in the log names the position of
    the command or a later position. Every replica that reads the log from its beginning has the
    same counts. A replica that starts at a snapshot may miss some waiting commands before its first
    commit record. This does no harm: the outcome of a command is decided once and recorded.
    """

    def __init__(self, most: int) -> None:
        """Allow at most `most` commands of each organisation to wait."""
        self._most = most
        self._commands: deque[tuple[int, str, int]] = deque()
        self._counts: Counter[str] = Counter()
        self._stored: deque[tuple[int, int]] = deque()

    def is_excess(self, position: int, subject: str, size: int) -> bool:
        """Count a message of `size` bytes if it is a command; return whether it is one too many.

        A command too many counts as waiting, too.
        """
        if not subject.startswith("np.cmd."):
            return False
        org = subject.split(".", 3)[2]
        before, weight = self._counts[org], 1 + size // WEIGHT_BYTES
        self._commands.append((position, org, weight))
        self._counts[org] = before + weight
        return before >= self._most

    def note_commit(self, record: int, committed: int) -> None:
        """Note a commit of this replica, before the replica reads the commit record."""
        self._stored.append((record, committed))

    def record_read(self, record: int) -> None:
        """Note that the commit records of this replica up to this position were read."""
        while self._stored and self._stored[0][0] <= record:
            self.release_commands(self._stored.popleft()[1])

    def release_commands(self, position: int) -> None:
        """Note that a commit record names this position; commands up to it wait no longer."""
        while self._commands and self._commands[0][0] <= position:
            _, org, weight = self._commands.popleft()
            self._counts[org] -= weight
            if not self._counts[org]:
                del self._counts[org]


def too_many(command: Unreadable, most: int) -> CommandRefused:
    """Return the outcome of a command too many, of which nothing but the id is read."""
    org, cluster, pool = command.address.path
    return CommandRefused(
        org=org,
        cluster=cluster,
        pool=pool,
        command=command.address.name,
        reason=TOO_MANY,
        field="",
        message=(
            f"as many commands of {org} as may wait are waiting already ({most}, or fewer large"
            " ones): send it again in some seconds"
        ),
    )


def was_too_many(outputs: "Sequence[Message]") -> bool:
    """Return whether these outputs are the outcome of a command too many."""
    first = outputs[0] if outputs else None
    return isinstance(first, CommandRefused) and first.reason == TOO_MANY
