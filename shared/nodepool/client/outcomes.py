"""The outcomes of commands: their subjects, and how each outcome is passed to its sender."""

import asyncio
from collections.abc import Iterable
from typing import Generic, TypeVar

from nodepool.client.errors import NoOutcome, Refused
from nodepool.client.session import FILTERS_MAX
from nodepool.contract.decode import decode
from nodepool.contract.events import CapacityFound, CommandAccepted, CommandRefused, NodeLockChanged
from nodepool.contract.keys import token
from nodepool.contract.log import Entry
from nodepool.contract.messages import Command, Envelope, Event
from nodepool.nats.reader import Reader

Outcome = CommandAccepted | Refused | NoOutcome
A = TypeVar("A", bound=CommandAccepted | CapacityFound | NodeLockChanged)
"""The event that answers a command that is not refused."""


class PendingOutcomes(Generic[A]):
    """Passes each outcome that arrives on a reader to the future that awaits the outcome.

    reader: reads the subjects of `outcome_filters`.
    answer: the event that answers a command that is not refused.
    """

    def __init__(self, reader: Reader, answer: type[A]) -> None:
        self._reader = reader
        self._answer = answer
        self._pending: dict[str, asyncio.Future[A | Refused | NoOutcome]] = {}

    def expect(self, id: str) -> asyncio.Future[A | Refused | NoOutcome]:
        """Return a future for the outcome of the command with this id."""
        future: asyncio.Future[A | Refused | NoOutcome] = asyncio.get_running_loop().create_future()
        self._pending[id] = future
        return future

    def forget(self, id: str) -> None:
        """Cancel and drop the future of the command with this id."""
        self._pending.pop(id).cancel()

    async def listen(self) -> None:
        """Pass on outcomes until the task is cancelled."""
        while True:
            for entry in await self._reader.next():
                self.receive(entry)

    def receive(self, entry: Entry) -> None:
        """Resolve the future of the command of this outcome, if a sender awaits the outcome."""
        is_answer = entry.subject.endswith(f".{self._answer.__name__}")
        kind: type[A] | type[CommandRefused] = self._answer if is_answer else CommandRefused
        envelope = decode(kind, entry.subject, entry.content, {}, entry.position)
        if not isinstance(envelope, Envelope):
            return
        future = self._pending.get(envelope.correlationid or "")
        if future is None or future.done():
            return
        match envelope.data:
            case CommandRefused(field=field, reason=reason, message=message):
                future.set_result(Refused(field, reason, message))
            case answer:
                future.set_result(answer)


def outcome_filters(
    commands: Iterable[Command], answer: type[Event] = CommandAccepted
) -> list[str]:
    """Return the subject filters for the outcomes of these commands: `answer`, or a refusal."""
    paths = {tuple(map(token, command.path)) for command in commands}
    if len(paths) > 1:
        paths = {(org, cluster, "*") for org, cluster, _ in paths}
    if len(paths) > FILTERS_MAX or not paths:
        paths = {("*", "*", "*")}
    names = (answer.__name__, CommandRefused.__name__)
    return [f"np.evt.*.{'.'.join(path)}.{name}" for path in sorted(paths) for name in names]
