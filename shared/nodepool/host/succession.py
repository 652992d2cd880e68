"""Whether a silent leader still exists, which a follower asks the server.

On a quiet log, a follower cannot know this otherwise: a leader commits nothing while there is
nothing to do. Without this check, metrics that only a leader shows, such as all metrics of
NodePools, would be missing until the next input.

A wrong conclusion here costs one empty commit and harms nothing: the server refuses the commits of
a stale leader, because their expected sequence is outdated.
"""

import asyncio
from collections.abc import Callable

from nodepool.host.leadership import UNKNOWN_S, Leadership
from nodepool.nats.log.replicas import is_reading
from nodepool.nats.wire.connection import Connection
from nodepool.nats.wire.errors import Conflict, InDoubt, ServerRefusal
from nodepool.nats.wire.library import NatsError

LOOK_S = 5.0
"""The pause between two looks."""
SILENT_S = 10.0
"""How long a leader is silent until a follower asks the server about it."""
LOOKS = 3
"""How many looks in a row must find no consumer: the leader may be replacing its consumer."""


async def succeed(
    connection: Connection, leadership: Leadership, clock: Callable[[], float]
) -> None:
    """Make a follower a candidate whenever its leader has no consumer left, until cancelled.

    That is half a minute after the leader has ended, and a minute later if it was killed or cut
    off. A leader also counts as gone if it is silent for a minute and the server does not say
    whether it has a consumer. `clock` is the monotonic clock, in seconds, that `leadership` uses.
    """
    missing = 0
    while True:
        await asyncio.sleep(LOOK_S)
        leader, silent_s = leadership.leader, leadership.leader_silent_s(clock())
        if not (leadership.following and connection.is_connected and silent_s >= SILENT_S):
            missing = 0  # A new leader was heard within SILENT_S, so its looks begin here too.
            continue
        is_known = bool(leader)
        try:
            missing = missing + 1 if is_known and not await is_reading(connection, leader) else 0
        except (Conflict, InDoubt, ServerRefusal, NatsError, OSError):
            is_known = False
        if missing >= LOOKS or (not is_known and silent_s >= UNKNOWN_S):
            leadership.note_leader_gone(leader)
