"""Asking the server for the figures of the log, every few seconds, for metrics."""

import asyncio
from collections.abc import Coroutine, Iterable

from nats.errors import Error as NatsError

from nodepool.host.leadership import Leadership
from nodepool.nats.connection import Connection
from nodepool.nats.errors import Conflict, InDoubt, ServerRefusal
from nodepool.nats.log_figures import LogFigures, log_figures

WATCH_S = 10.0
"""How old the figures may be."""
LOOK_S = 1.0
"""How often a replica looks whether it leads."""


class LogWatch:
    """The figures of the log, of which the leader of one service takes care.

    is_watched: whether this is that service.
    storage_limit: the most bytes that may be stored where the account has no limit of its own, the
        only one that a server shows its clients; None where that is not known.
    """

    def __init__(
        self,
        connection: Connection,
        leadership: Leadership,
        storage_limit: int | None,
        *,
        is_watched: bool,
    ) -> None:
        self._connection = connection
        self._leadership = leadership
        self._is_watched = is_watched
        self._storage_limit = storage_limit
        self.figures: LogFigures | None = None
        """Those of the last request; None where there was none, or it had no reply."""

    def tasks(self) -> Iterable[Coroutine[None, None, None]]:
        """Return the coroutines that must run in the background."""
        return (self._run(),) if self._is_watched else ()

    async def _run(self) -> None:
        while True:
            if not self._leadership.leading:
                self.figures = None
                await asyncio.sleep(LOOK_S)
                continue
            try:
                figures = await log_figures(self._connection)
                limit = figures.storage_limit
                known = self._storage_limit if limit is None else limit
                self.figures = figures._replace(storage_limit=known)
            except (Conflict, InDoubt, ServerRefusal, NatsError, OSError):
                self.figures = None
            await asyncio.sleep(WATCH_S)
