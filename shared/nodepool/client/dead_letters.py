"""Dead letters: messages that could not be processed, and the refusals that their senders got."""

from collections import deque
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime

from nodepool.client.contents import attributes_of
from nodepool.client.errors import NotFound, Refused
from nodepool.client.session import Session
from nodepool.contract.log import Entry
from nodepool.contract.subjects import Address, address_of
from nodepool.nats.log.streams import STREAM

LETTERS_MAX = 500
"""The most dead letters to return; if there are more, the newest are returned."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that a service could not process, or an object that it could not store.

    position: the position of the dead letter in the log.
    time: when the dead letter was stored.
    service: the service that wrote the dead letter.
    input: the position of the message, or of the input that the object was made from.
    subject: the message's subject.
    stored: when the message was stored, as text.
    field: the invalid field; empty if no single field is invalid.
    cause: why the message could not be processed, or the object not stored.
    content: the content of the message; cut if it is long.
    """

    position: int
    time: datetime
    service: str
    input: int
    subject: str
    stored: str
    field: str
    cause: str
    content: str

    @property
    def address(self) -> Address | None:
        """The kind of the message and what it is about; None if the input is not a message."""
        return address_of(self.subject)

    @property
    def is_command(self) -> bool:
        """Return whether the message is a command, so that its sender waits for an outcome."""
        return self.address is not None and self.address.kind == "cmd"


def letter_of(entry: Entry) -> DeadLetter:
    """Return the dead letter in a message of the log; its cause says if it is malformed."""
    service = entry.subject.rpartition(".")[2]
    letter = attributes_of(entry) or {"cause": "this is no dead letter of a service"}

    def text(name: str) -> str:
        return str(letter.get(name, ""))

    position = letter.get("position")
    at = position if isinstance(position, int) and position > 0 else 0
    rest = (text("subject"), text("time"), text("field"), text("cause"), text("content"))
    return DeadLetter(entry.position, entry.time, service, at, *rest)


class DeadLetters:
    """The dead letters of the log, as `client.admin.dead_letters`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def list(
        self, service: str = "", since: datetime | None = None
    ) -> tuple[list[DeadLetter], int]:
        """Return the newest dead letters, newest first, and the number of older dead letters.

        service: only the dead letters of this service; empty for all.
        since: only the messages parked at or after this time; None for all.
        """
        kept: deque[DeadLetter] = deque(maxlen=LETTERS_MAX)
        count = 0
        start = 1 if since is None else await self._session.position_at(since)
        async with aclosing(self._letters(service, start)) as letters:
            async for letter in letters:
                if since is None or letter.time >= since:
                    count += 1
                    kept.append(letter)
        return list(reversed(kept)), count - len(kept)

    async def counts(self) -> Mapping[str, int]:
        """Return the number of dead letters, by service."""
        counts = await self._session.message_counts("np.dead.*")
        return {subject.rpartition(".")[2]: count for subject, count in counts.items()}

    async def _letters(self, service: str, start: int) -> AsyncGenerator[DeadLetter, None]:
        filters = [f"np.dead.{service or '*'}"]
        async with self._session.reader(STREAM, filters, start=start) as reader:
            while reader.pending:
                for entry in await self._session.read(reader, endless=False):
                    yield letter_of(entry)

    async def get(self, position: int) -> DeadLetter:
        """Return the dead letter at a position; raise NotFound if the position holds none."""
        entry = await self._session.message_at(position)
        if entry is None and position < (first := (await self._session.bounds()).first):
            where = f"position {position} was trimmed from the log, which begins at {first}"
            raise NotFound(f"{where}: the archive has it")
        if entry is None or not entry.subject.startswith("np.dead."):
            raise NotFound(f"there is no dead letter at position {position} of the log")
        return letter_of(entry)

    async def refusal_of(self, letter: DeadLetter) -> Refused | None:
        """Return the refusal of the command; None if the letter has no refusal or no command."""
        # A refusal is stored directly before the dead letter, in the same commit.
        entry = await self._session.message_at(letter.position - 1) if letter.is_command else None
        if entry is None or not entry.subject.startswith(f"np.evt.{letter.service}."):
            return None
        envelope = attributes_of(entry)
        data = envelope.get("data")
        if not isinstance(data, dict) or envelope.get("causeposition") != letter.input:
            return None
        if letter.address is None or data.get("command") != letter.address.name:
            return None
        return Refused(*(str(data.get(each, "")) for each in ("field", "reason", "message")))
