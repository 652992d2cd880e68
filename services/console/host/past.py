"""An organisation as it was at a moment: the objects behind pages that show the past."""

import time
from collections.abc import Mapping
from datetime import datetime
from math import inf
from typing import Final, NoReturn

from console.host.account import Account, Kept
from console.host.happenings import BACK, add_events
from console.host.history import History
from console.host.mirror import BUCKETS, EVERYWHERE
from console.view.moments import At, Shown
from console.view.pools import list_pools, read_asked
from nodepool.client import ClientError
from nodepool.client.asking import Reply
from nodepool.client.errors import Refused
from nodepool.client.gateway_objects import GatewayObjects
from nodepool.client.past.errors import NoMoment
from nodepool.client.past.through_gateway import AskedSession
from nodepool.contract.messages import Command

EXPLAINING_S: Final = 1.0
"""For how long a page of the list waits for explanations, in seconds."""
READING_S: Final = 15.0
"""How long a page waits for events, in seconds; a page of the past shows none that come later."""


class NoSuchMoment(Exception):
    """The gateway does not show a moment; the text says why."""


class PastAccount(Account):
    """Shows a user an organisation as it was at a moment, and refuses all commands.

    present: the account whose connection is used. shown: the moment.
    """

    def __init__(self, present: Account, session: AskedSession, at: str) -> None:
        super().__init__(present.identity, present.settings, present.log)
        self._seen = session
        assert session.moment is not None, "the session is open"
        self.shown = Shown(at, session.position, session.moment)
        self._has_past = True
        self.history = History(self.mirror, self.ask, self._now, READING_S)
        self.history.preemptions_kept_s = inf  # None are new at a moment.

    def _now(self) -> datetime:
        return self.shown.time

    async def read(self) -> None:
        """Read all objects."""
        objects = GatewayObjects(self._seen, self._seen.asker)
        for bucket in BUCKETS:
            found, _ = await objects.list_all(bucket, everywhere=bucket in EVERYWHERE)
            self.mirror.fill(bucket, found)
        self.mirror.note_all_read()

    async def read_happenings(self) -> None:
        """Read the newest events up to the moment, unless they are read."""
        if self.mirror.happenings.all():
            return
        asker, after = self._seen.asker, max(0, self.shown.position - BACK)
        for cluster in self.mirror.clusters:
            await add_events(self.mirror, self._seen, asker, cluster, after)

    async def explain_rows(self, query: Mapping[str, str]) -> None:
        """Explain the first NodePools of a page of the list that are not well, while time is left.

        What the time does not suffice for is explained for the next page of this moment.
        """
        ends = time.monotonic() + EXPLAINING_S
        found = list_pools(self.mirror.lines(), read_asked(query))
        rows = (line for section in found.sections for line in section.lines)
        for line in rows:
            if line.standing.is_quiet or line.place in self.mirror.explanations:
                continue
            if time.monotonic() > ends:
                return
            try:
                await self.explain(line.place)
            except ClientError:
                # Without an explanation, the list shows the message of the condition.
                return

    async def ask(self, query: str, fields: Mapping[str, object]) -> Reply:
        """Return the answer of the gateway to a query about the moment."""
        return await self._seen.asker.ask(query, fields)

    async def send(self, command: Command, person: str = "") -> NoReturn:
        """Refuse: nothing can be changed in the past."""
        raise Refused("at", "Forbidden", "nothing can be changed in the past")


async def look_back(present: Account, text: str, at: At) -> PastAccount:
    """Return what a user sees of a moment; the last one is kept for the next page.

    Raises NoSuchMoment if the gateway does not show it, and ClientError if it does not answer.
    """
    client = present.client()
    async with present.looking:
        kept = present.past
        if kept is not None and (kept.client, kept.at) == (client, text):
            return kept.account
        session = AskedSession(client.session, at, is_shared=True)
        try:
            await session.open()
            found = PastAccount(present, session, text)
            await found.read()
        except NoMoment as error:
            raise NoSuchMoment(str(error)) from None
        except Refused as refusal:
            if refusal.reason in ("Invalid", "Forbidden"):
                raise NoSuchMoment(refusal.message) from None
            raise
        present.past = Kept(client, text, found)
        return found
