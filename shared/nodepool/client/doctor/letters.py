"""Whether there are new dead letters that somebody has to look at."""

import asyncio
from datetime import UTC, datetime, timedelta

from nodepool.client.admin import Admin
from nodepool.client.doctor.finding import Finding, note, ok, problem

RECENT = timedelta(days=1)
"""Older dead letters are counted, but not examined."""
LOOKED_AT_MAX = 100
"""The most dead letters of the last day to examine: the newest."""
LOOK_S = 20.0
"""How long dead letters are examined, in seconds; the whole check may take half as long again."""


async def dead_letters(admin: Admin, within_s: float = LOOK_S) -> Finding:
    """Return the number of dead letters, and whether a service failed on a message lately.

    An invalid command is not a failure, because its sender has to correct it. A command that was
    accepted since is not a failure either.
    """
    counts = await admin.dead_letters.counts()
    if not counts:
        return ok("dead letters", "none")
    text = f"{sum(counts.values())}, of {', '.join(sorted(counts))}"
    failures, is_all, is_late = 0, False, False
    try:
        async with asyncio.timeout(within_s):
            recent, _ = await admin.dead_letters.list(since=datetime.now(UTC) - RECENT)
            is_all = len(recent) <= LOOKED_AT_MAX
            for letter in recent[:LOOKED_AT_MAX]:
                failures += await admin.replays.is_failure(letter)
    except TimeoutError:
        is_late = True
    if failures:
        count = f"{failures}{'' if is_all and not is_late else ' or more'}"
        text = f"{text}; in the last day a service failed on {count}"
        return problem("dead letters", text, "nodepool dead list --since 24h")
    if is_late:
        text = f"{text}; there was no time to look at all of the last day"
        return problem("dead letters", text, "nodepool dead list --since 24h")
    rest = "in the last day no service failed"
    if not is_all:
        rest = f"no service failed on the newest {LOOKED_AT_MAX} of the last day"
    return note("dead letters", f"{text}; {rest}", "nodepool dead list")
