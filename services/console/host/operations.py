"""Reads what an operator sees of the system: the findings of the doctor, and the dead letters.

Both come from the bus itself, with the key of the operator, as for the command `nodepool`.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib import import_module
from typing import Final, Self

from console.host.mirror import Mirror
from console.view.fleet import Stock, read_stock
from console.view.system import Found, Letter
from nodepool.client import Client
from nodepool.client.dead_letters import DeadLetter
from nodepool.client.doctor.examination import examine
from nodepool.client.errors import Refused
from nodepool.client.replaying import Replay
from nodepool.contract.services import EVERY
from nodepool.host.version import version_of
from nodepool.nats.wire.access import Access

LOOK_S: Final = 15.0
"""How often the system is examined while its page is open, in seconds."""
WATCHED_S: Final = 60.0
"""For how long the system is examined after the last request for a page, in seconds."""
LETTERS_MAX: Final = 50
"""The most dead letters that are shown: the newest."""


class Operations:
    """What an operator sees.

    findings: the findings of the doctor. letters: the newest dead letters; older: how many more.
    looked_at: the time of the last examination; None before the first.
    stocks: the machines of each type and zone, at `counted_at`.
    """

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self.findings: Sequence[Found] = ()
        self.letters: Sequence[Letter] = ()
        self.older = 0
        self.looked_at: datetime | None = None
        self.stocks: Sequence[Stock] = ()
        self.counted_at: datetime | None = None

    def read(self) -> Self:
        """Return what is known now; each examination is a change of the mirror."""
        self._mirror.read_everything()
        return self

    async def follow(
        self, client: Client, url: str, access: Access, last_used: Callable[[], float]
    ) -> None:
        """Examine the system every `LOOK_S` while its page is open, until cancelled."""
        while True:
            if time.monotonic() - last_used() < WATCHED_S:
                await self._look(client, url, access)
                self._mirror.note_all_read()
            await asyncio.sleep(LOOK_S)

    async def _look(self, client: Client, url: str, access: Access) -> None:
        # The machines come first: an examination of a bus in trouble takes long.
        found = await client.capacity.list()
        self.stocks = [read_stock(each.document) for each in found if each.document is not None]
        self.counted_at = datetime.now(UTC)
        known = [import_module(f"{name}.decide").SERVICE for name in EVERY]
        findings = [
            Found(each.check, each.status, each.text, each.fix)
            async for each in examine(url, known, access=access, version=version_of())
        ]
        letters, older = await client.admin.dead_letters.list()
        self.findings = findings
        self.letters = tuple(map(_letter, letters[:LETTERS_MAX]))
        self.older = older + max(0, len(letters) - LETTERS_MAX)
        self.looked_at = datetime.now(UTC)


async def examine_letter(client: Client, position: int) -> tuple[DeadLetter, str, Replay]:
    """Return a dead letter, the refusal that its sender got, and whether it can be replayed."""
    admin = client.admin
    letter = await admin.dead_letters.get(position)
    refusal = await admin.dead_letters.refusal_of(letter)
    return letter, str(refusal) if refusal is not None else "", await admin.replays.examine(letter)


async def replay_letter(client: Client, letter: DeadLetter, replayed: Replay) -> str:
    """Send the command of a dead letter again, and return its outcome as a sentence."""
    position, outcome = await client.admin.replays.send(letter, replace(replayed, why_not=""))
    if not outcome:
        raise Refused("", "Unavailable", f"sent at position {position}, without an outcome yet")
    return f"Dead letter {letter.position} is sent again at position {position}: {outcome}."


def _letter(each: DeadLetter) -> Letter:
    return Letter(
        each.position,
        each.time,
        each.service,
        each.input,
        each.subject,
        each.cause,
        each.is_command,
    )
