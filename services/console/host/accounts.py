"""The signed-in users, and the accounts of users who have pages open."""

import asyncio
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from console.host.account import Account
from console.host.identities import Identity, list_identities
from console.host.links import Links
from console.host.sessions import Sessions
from console.host.settings import ConsoleSettings
from nodepool.host.logs import Logger

ACCOUNTS_MAX: Final = 16
"""The most users at work at a time, each with a mirror; the user idle longest makes room."""
IDLE_S: Final = 600.0
"""After how many seconds without a page a mirror is closed."""
LOOK_S: Final = 2.0
"""How often the folder of keys is read, in seconds."""


class Accounts:
    """The users: their links, sessions and mirrors."""

    def __init__(self, settings: ConsoleSettings, log: Logger) -> None:
        self._settings, self._log = settings, log
        self.links = Links(settings.links)
        self.sessions = Sessions(settings.idle_minutes * 60, time.monotonic)
        self._at_work: dict[Identity, tuple[Account, asyncio.Task[None]]] = {}

    def __len__(self) -> int:
        return len(self._at_work)

    async def of(self, identity: Identity) -> Account:
        """Return the account of a user, which begins its work with the first page."""
        found = self._at_work.get(identity)
        if found is None:
            while len(self._at_work) >= ACCOUNTS_MAX:
                oldest = min(self._at_work, key=lambda each: self._at_work[each][0].used)
                await self._end(oldest)
            account = Account(identity, self._settings.service, self._log)
            found = account, asyncio.create_task(account.run())
            self._at_work[identity] = found
        found[0].used = time.monotonic()
        return found[0]

    def find(self, name: str) -> Identity | None:
        """Return the user of a name; None if the folder of keys has no such user."""
        known = list_identities(self._settings.keys)
        return next((each for each in known if each.name == name), None)

    def refresh(self, keys: Path) -> None:
        """Take the users who are in the folder of keys now."""
        identities = list_identities(keys)
        self.links.refresh(identities)
        self.sessions.keep_only(identities)

    async def keep_current(self) -> None:
        """Follow the folder of keys, and close the accounts of idle users, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            self.refresh(self._settings.keys)
            known = set(list_identities(self._settings.keys))
            for identity, (account, task) in list(self._at_work.items()):
                is_idle = time.monotonic() - account.used > IDLE_S
                if is_idle or identity not in known or task.done():
                    await self._end(identity)

    async def close(self) -> None:
        """End all work, and remove the links."""
        for identity in list(self._at_work):
            await self._end(identity)
        self.links.clear()

    async def _end(self, identity: Identity) -> None:
        account, task = self._at_work.pop(identity)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await account.close()
