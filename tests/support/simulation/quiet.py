"""Time passes until nothing happens any more."""

from collections.abc import Callable
from datetime import timedelta

from nodepool.engine.world import World
from support.audit.facts import Violation

QUIET_PERIOD = timedelta(hours=2)
"""All is quiet once nothing happens for so long, which is longer than any deadline."""
QUIET_PERIODS_MAX = 12


def run_until_quiet(world: World, audit: Callable[[], None]) -> None:
    """Lets time pass until nothing has happened for a period longer than any deadline.

    audit: reads what is new in the log after each period.
    """
    for _ in range(QUIET_PERIODS_MAX):
        before = len(world.log.entries)
        world.pass_time(QUIET_PERIOD)
        audit()
        if len(world.log.entries) == before:
            return
    raise Violation("the services never come to rest")
