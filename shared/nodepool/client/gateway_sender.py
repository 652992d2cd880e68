"""Sending commands to the gateway, which acknowledges or refuses each."""

import asyncio
import random
from collections.abc import Callable
from typing import Final

from nodepool.client.asking import GONE, Gone, request
from nodepool.client.errors import NoOutcome, Refused, describe_limit
from nodepool.client.sender import A, PendingOutcomes, Sender
from nodepool.client.session import Session
from nodepool.contract.commands import ApplyNodePool, ScaleNodePool
from nodepool.contract.events import CommandAccepted
from nodepool.contract.messages import Command
from nodepool.contract.roles import SENDERS, Role
from nodepool.contract.subjects import subject_of
from nodepool.nats.wire.errors import Denied
from nodepool.nats.wire.waiting import RETRY_S
from nodepool.state.back_off import pause_s

OPERATORS: Final = frozenset[Role]({"operator"})
ACKNOWLEDGED_S: Final = 2.0
ACKNOWLEDGED_MAX_S: Final = 6.0
"""How long an acknowledgement may take at first and at most, in seconds; the log may take 5."""
PAUSE_MAX_S: Final = 1.0
"""The longest pause before a command is sent again, in seconds."""
LOOK_S: Final = 0.5
"""How often to look whether the connection was lost while an outcome is awaited, in seconds."""


class GatewaySender(Sender[A]):
    """Sends commands through the gateway.

    A command that is not acknowledged is sent again with its id, and so is a command whose outcome
    may have been published while the connection was lost: a repetition is not done twice, and has
    the outcome of the first.

    note_change: called with a NodePool and the position of a command that has changed it.
    """

    def __init__(
        self,
        session: Session,
        outcomes: PendingOutcomes[A],
        note_change: Callable[[str, int], None],
    ) -> None:
        super().__init__(
            session.connection, outcomes, source=session.source, timeout_s=session.timeout_s
        )
        self._session = session
        self._note_change = note_change
        self._is_silent = False

    async def send(self, command: Command, id: str = "") -> A | Refused | NoOutcome:
        """Return the outcome of a command, as `Sender.send` does.

        A command that only operators may send is refused here.
        """
        if SENDERS.get(type(command)) == OPERATORS:
            return Refused(
                "", "Forbidden", describe_limit(f"send {type(command).__name__}", self._holder)
            )
        return await super().send(command, id)

    @property
    def _holder(self) -> object:
        return self._session.holder

    async def _publish(self, subject: str, content: bytes) -> int:
        """Send a command until the gateway acknowledges it, and return its position."""
        failures = 0
        while True:
            timeout_s = min(ACKNOWLEDGED_S * 2**failures, ACKNOWLEDGED_MAX_S)
            try:
                reply = await request(self._session, subject, content, timeout_s)
            except Gone:
                self._is_silent = True
            except Refused as refusal:
                if refusal.reason != GONE:
                    raise
                self._is_silent = False
            except Denied as denial:
                # A denial fails every pending request, including requests on other subjects.
                if self._is_about(denial, subject):
                    raise
            else:
                self._is_silent = False
                position = reply.get("position")
                return position if isinstance(position, int) else 0
            failures += 1
            await asyncio.sleep(pause_s(failures, RETRY_S, PAUSE_MAX_S, random.random()))

    async def _await_outcome(
        self,
        outcome: "asyncio.Future[A | Refused | NoOutcome]",
        command: Command,
        content: bytes,
        position: int,
    ) -> A | Refused | NoOutcome:
        """Return the outcome; send the command again if it may have been missed."""
        connections = self._connection.stats["reconnects"]
        while not outcome.done():
            await asyncio.wait((outcome,), timeout=LOOK_S)
            if not outcome.done() and self._connection.stats["reconnects"] != connections:
                connections = self._connection.stats["reconnects"]
                await self._publish(subject_of(command, ""), content)
        heard = outcome.result()
        if (
            isinstance(command, ApplyNodePool | ScaleNodePool)
            and isinstance(heard, CommandAccepted)
            and heard.result in ("created", "configured")
            and not heard.dry_run
        ):
            self._note_change(command.path[2], position)
        return heard

    def _refuse_denied(self, command: Command, denial: Denied) -> Refused:
        name, holder = type(command).__name__, self._holder
        user = str(holder) if holder is not None else "the user of this connection"
        allowed = SENDERS.get(type(command), frozenset())
        roles = " or ".join(role for role in ("viewer", "editor", "owner") if role in allowed)
        fix = f"ask a user with the role {roles}" if roles else "ask an operator of the platform"
        return Refused("", "Forbidden", f"{user} may not send {name}; {fix}")

    def _describe_silence(self, command: Command, *, stored: bool) -> NoOutcome:
        if stored or not self._is_silent:
            return super()._describe_silence(command, stored=stored)
        return NoOutcome(
            f"{type(command).__name__} may or may not be stored: no gateway has acknowledged it"
            f" within {self._timeout_s:g} s; send it again, which does no harm"
        )
