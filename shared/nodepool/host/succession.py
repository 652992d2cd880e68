"""Whether a silent leader still exists, which a follower asks the server.

On a quiet log, a follower cannot know this otherwise: a leader commits nothing while there is
nothing to do. Without this check, metrics that only a leader shows, such as all metrics of
NodePools, would be missing until the next input.
"""

import asyncio
from collections.abc import Callable

from nats.errors import Error as NatsError

from nodepool.host.leadership import UNKNOWN_S, Leadership
from nodepool.nats.log.replicas import is_reading
from nodepool.nats.wire.connection import Connection
from nodepool.nats.wire.errors import Conflict, InDoubt, ServerRefusal

LOOK_S = 5.0
"""The pause between two looks."""
SILENT_S = 10.0
"""How long a leader is silent until a follower asks the server about it."""
LOOKS = 3
"""How many looks in a row must find no consumer: the leader may be replacing its consumer."""


class Succession:
    """Makes a follower a candidate once its leader has no consumer left.

    That is half a minute after the leader has ended, and a minute later if it was killed or cut
    off. A leader also counts as gone if it is silent for a minute and the server does not say
    whether it has a consumer: to become a candidate is always safe. `clock` is the monotonic clock,
    in seconds, that `leadership` uses.
    """

    def __init__(
        self, connection: Connection, leadership: Leadership, clock: Callable[[], float]
    ) -> None:
        self._connection = connection
        self._leadership = leadership
        self._clock = clock
        self._leader = ""
        self._missing = 0

    async def run(self) -> None:
        """Ask the server whether a silent leader is gone, at intervals, until cancelled."""
        leadership = self._leadership
        while True:
            await asyncio.sleep(LOOK_S)
            silent_s = leadership.leader_silent_s(self._clock())
            if leadership.following and self._connection.is_connected and silent_s >= SILENT_S:
                leader = leadership.leader
                if await self._is_gone(leader, silent_s):
                    leadership.gone(leader)
            else:
                self._missing = 0

    async def _is_gone(self, leader: str, silent_s: float) -> bool:
        if not leader:
            return silent_s >= UNKNOWN_S
        if leader != self._leader:
            self._leader, self._missing = leader, 0
        try:
            is_there = await is_reading(self._connection, leader)
        except (Conflict, InDoubt, ServerRefusal, NatsError, OSError):
            return silent_s >= UNKNOWN_S
        self._missing = 0 if is_there else self._missing + 1
        return self._missing >= LOOKS
