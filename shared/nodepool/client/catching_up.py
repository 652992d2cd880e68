"""Waiting until the read model shows the changes of NodePools that the log has accepted."""

import asyncio
from typing import Final

from nodepool.client.accepted import DELETED, DELETING, VALIDATED
from nodepool.client.errors import translated
from nodepool.client.read_model import ReadModel
from nodepool.contract.keys import name_at
from nodepool.contract.log import Entry
from nodepool.nats import api
from nodepool.nats.stored_objects import NOTHING, stored_object
from nodepool.nats.streams import STREAM

CATCH_UP_S: Final = 2.0
"""How long the read model may take to show what the log has accepted, in seconds."""
PAUSE_S: Final = 0.01
"""The pause before it is looked at again, in seconds."""
CHANGES: Final = (VALIDATED, DELETING, DELETED)


class CatchingUp(ReadModel):
    """The part of a client with which programs read what they have written themselves."""

    async def catch_up(self, *, everywhere: bool = False) -> bool:
        """Waits until the read model has every NodePool as its newest accepted command left it.

        That is each command whose outcome came before the call. The objects are written in the
        order in which they change, so that it is enough to look at the one that changed last.

        everywhere: for the NodePools of all organisations and clusters.

        False where the read model is still behind after two seconds: nothing writes it now, or the
        object of that NodePool cannot be stored.
        """
        place = "*.*" if everywhere else f"{self.org}.{self.cluster}"
        with translated(self.url):
            await self._last_position(STREAM)  # Waits for a control plane that is starting.
        changes = await asyncio.gather(
            *(self._last(f"np.evt.{service}.{place}.*.{name}") for service, name in CHANGES)
        )
        newest = max(filter(None, changes), key=lambda entry: entry.position, default=None)
        if newest is None:
            return True
        clock = asyncio.get_running_loop().time
        ends = clock() + CATCH_UP_S
        while not await self._shows(newest):
            if clock() >= ends:
                return False
            await asyncio.sleep(PAUSE_S)
        return True

    async def _shows(self, change: Entry) -> bool:
        """Whether the object of a NodePool is as new as this event about it."""
        _, org, cluster, pool, event = change.subject.rsplit(".", 4)
        key = f"{org}.{cluster}.{name_at(pool)}"
        with translated(self.url):
            entry = await api.last_message(self._connection, "KV_nodepools", f"$KV.nodepools.{key}")
        stored = NOTHING if entry is None else stored_object(entry.headers, entry.position)
        return stored.version >= change.position or (stored.deleted and event == DELETED[1])

    async def _last(self, subject: str) -> Entry | None:
        with translated(self.url):
            return await api.last_message(self._connection, STREAM, subject)
