"""Limits how often the console asks the gateway.

All users and programs of an organisation share one budget of queries.
"""

import asyncio
import time
from collections.abc import Mapping
from typing import Final

from nodepool.client.asking import Asker, Reply
from nodepool.client.session import Session
from nodepool.contract.documents import items

WATCH_S: Final = 0.05
"""The least time between two answers with changes of a kind, in seconds."""
CHANGE_S: Final = 0.0005
"""How much `WATCH_S` grows for each change of the last answer, in seconds."""
WATCH_MAX_S: Final = 1.0
EXPLAINED_PER_S: Final = 4.0
"""How many explanations are asked for, each second: one counts as five queries."""
EXPLAINED_BURST: Final = 10.0


class PacedAsker(Asker):
    """Asks for changes at intervals, so that one answer has several changes."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._next: dict[object, float] = {}

    async def ask_for_changes(self, fields: Mapping[str, object]) -> Reply:
        """Return the next changes of a kind, once it is time to ask for them."""
        kind = fields.get("kind")
        await asyncio.sleep(max(0.0, self._next.get(kind, 0.0) - time.monotonic()))
        reply = await super().ask_for_changes(fields)
        self._next[kind] = time.monotonic() + pause_after(len(items(reply, "changes")))
        return reply


def pause_after(changes: int) -> float:
    """Return for how many seconds no more changes are asked for after an answer with some."""
    return min(WATCH_MAX_S, WATCH_S + CHANGE_S * changes)
