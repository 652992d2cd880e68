"""Requesting the figures of the log from the server, every few seconds, for metrics."""

import asyncio
from collections.abc import Coroutine, Iterable

from nodepool.host.leadership import Leadership
from nodepool.nats.log.figures import LogFigures, log_figures
from nodepool.nats.wire.connection import Connection
from nodepool.nats.wire.errors import Conflict, InDoubt, ServerRefusal
from nodepool.nats.wire.library import NatsError

WATCH_S = 10.0
"""How old the figures may be."""
LOOK_S = 1.0
"""How often a follower checks whether it still follows."""


class LogWatch:
    """The figures of the log, which the leader of one service requests.

    A replica also watches while no replica leads: on a full disk, no replica can commit to lead.

    is_watched: whether the replica belongs to that service.
    storage_limit: the most bytes that may be stored if the account has no limit of its own; None if
        unknown. A server shows its clients only the limit of the account.
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
        """The figures of the last request; None if there was no request, or no reply to it."""

    def tasks(self) -> Iterable[Coroutine[None, None, None]]:
        """Return the coroutines that must run in the background."""
        return (self._run(),) if self._is_watched else ()

    async def _run(self) -> None:
        while True:
            if self._leadership.following:
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
