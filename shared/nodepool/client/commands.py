"""Sending commands of any kind, and awaiting their outcomes.

The message models are imported at the first use, because they load slowly.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Final, TypeVar

from nodepool.client.errors import NoOutcome, Refused
from nodepool.client.names import find_name_refusal
from nodepool.client.session import Session

if TYPE_CHECKING:
    from nodepool.client.sender import A, Outcome, Sender
    from nodepool.contract.events import CommandAccepted
    from nodepool.contract.messages import Command, PoolFields

    C = TypeVar("C", bound=Command)

WINDOW: Final = 256
"""How many commands are in flight at the same time by default."""


class Commands:
    """Sends commands of any kind, as `client.commands`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def fields_of(self, pool: str) -> "PoolFields":
        """Return the identity of a NodePool of the client's cluster as fields of a command."""
        return {"org": self._session.org, "cluster": self._session.cluster, "pool": pool}

    async def send(self, command: "Command", *, id: str = "") -> "CommandAccepted":
        """Send any command and return its acceptance.

        id: at most 256 characters. If a command with this id was processed before, whichever
          client sent it, `send` returns its first outcome, and the command is not processed again.
        """
        from nodepool.contract.events import CommandAccepted

        async with self.sender([command], CommandAccepted) as sender:
            outcome = await sender.send(command, id)
        if isinstance(outcome, Refused | NoOutcome):
            raise outcome
        return outcome

    async def send_many(
        self, commands: "Sequence[Command]", *, window: int = WINDOW
    ) -> "list[Outcome]":
        """Send commands, at most `window` at a time, and return the outcome of each in order.

        `Refused` and `NoOutcome` are among the results and are not raised.
        """
        async with aclosing(self.send_each(commands, window=window)) as pairs:
            return [outcome async for _, outcome in pairs]

    async def send_each(
        self, commands: "Sequence[Command]", *, window: int = WINDOW
    ) -> "AsyncGenerator[tuple[Command, Outcome], None]":
        """Send commands like `send_many`, and yield each command with its outcome, in order."""
        from nodepool.contract.events import CommandAccepted

        async with self.sender(commands, CommandAccepted) as sender:
            in_flight: deque[tuple[Command, asyncio.Task[Outcome]]] = deque()
            try:
                for command in commands:
                    in_flight.append((command, asyncio.create_task(sender.send(command))))
                    if len(in_flight) >= window:
                        first, outcome = in_flight.popleft()
                        yield first, await outcome
                while in_flight:
                    first, outcome = in_flight.popleft()
                    yield first, await outcome
            finally:
                for _, outcome in in_flight:
                    outcome.cancel()

    @asynccontextmanager
    async def sender(
        self, commands: "Sequence[Command]", answer: "type[A]"
    ) -> "AsyncIterator[Sender[A]]":
        """Yield a sender for these commands, which listens for their outcomes inside the context.

        answer: the event that answers a command that is not refused.
        """
        from nodepool.client.sender import PendingOutcomes, outcome_filters

        backend = self._session.backend
        named = (command for command in commands if find_name_refusal(command) is None)
        async with backend.hear(outcome_filters(named, answer)) as heard:
            outcomes = PendingOutcomes(heard, answer)
            listening = asyncio.create_task(outcomes.listen())
            try:
                yield backend.sender(outcomes)
                await backend.settle()
            finally:
                listening.cancel()


def checked_command(kind: "type[C]", fields: Mapping[str, object]) -> "C":
    """Return a command of these fields; raise `Refused` if a field is invalid."""
    from pydantic import ValidationError

    from nodepool.contract.decode import explain

    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        field, cause = explain(error, kind)
        raise Refused(field, "Invalid", cause) from None
