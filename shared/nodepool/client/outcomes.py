"""The outcomes of commands: on which subjects they come, and handing each to its sender."""

import asyncio
from collections.abc import Iterable

from nodepool.client.errors import NoOutcome, Refused
from nodepool.client.session import FILTERS_MAX
from nodepool.contract.decode import decode
from nodepool.contract.events import CommandAccepted, CommandRefused
from nodepool.contract.keys import token
from nodepool.contract.log import Entry
from nodepool.contract.messages import Command, Envelope
from nodepool.nats.reader import Reader

Outcome = CommandAccepted | Refused | NoOutcome


class PendingOutcomes:
    """The outcomes that come on one reader, each passed to the future that awaits it."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._pending: dict[str, asyncio.Future[Outcome]] = {}

    def expect(self, id: str) -> asyncio.Future[Outcome]:
        """A future for the outcome of the command with this id."""
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._pending[id] = future
        return future

    def forget(self, id: str) -> None:
        """Cancels and drops the future of this command."""
        self._pending.pop(id).cancel()

    async def listen(self) -> None:
        """Passes on outcomes until it is cancelled."""
        while True:
            for entry in await self._reader.next():
                self.receive(entry)

    def receive(self, entry: Entry) -> None:
        """Resolves the future of the command that this outcome is of, if it is awaited."""
        is_accepted = entry.subject.endswith(f".{CommandAccepted.__name__}")
        kind = CommandAccepted if is_accepted else CommandRefused
        envelope = decode(kind, entry.subject, entry.content, {}, entry.position)
        if not isinstance(envelope, Envelope):
            return
        future = self._pending.get(envelope.correlationid or "")
        if future is None or future.done():
            return
        match envelope.data:
            case CommandAccepted() as accepted:
                future.set_result(accepted)
            case CommandRefused(field=field, reason=reason, message=message):
                future.set_result(Refused(field, reason, message))


def outcome_filters(commands: Iterable[Command]) -> list[str]:
    """The subject filters that catch the outcomes of these commands."""
    paths = {tuple(map(token, command.path)) for command in commands}
    if len(paths) > 1:
        paths = {(org, cluster, "*") for org, cluster, _ in paths}
    if len(paths) > FILTERS_MAX or not paths:
        paths = {("*", "*", "*")}
    names = (CommandAccepted.__name__, CommandRefused.__name__)
    return [f"np.evt.*.{'.'.join(path)}.{name}" for path in sorted(paths) for name in names]
