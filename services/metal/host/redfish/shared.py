"""What all controllers of a process share."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import aiohttp

from metal.host.redfish.limits import Limits


class Lanes:
    """Bounds the calls at a time to all controllers.

    Controllers that have failed share a few of the turns, so that however many of them are silent,
    the others do not wait for them.
    """

    def __init__(self, limits: Limits) -> None:
        self._steady = asyncio.Semaphore(limits.at_once - limits.suspects)
        self._suspects = asyncio.Semaphore(limits.suspects)

    def turn(self, *, has_failed: bool) -> asyncio.Semaphore:
        """Return what to wait for before a call to a controller."""
        return self._suspects if has_failed else self._steady


@dataclass(frozen=True, slots=True)
class Shared:
    """What all controllers share.

    environment: the variables that may hold credentials.
    clock: seconds of a monotonic clock.
    draw: a random number from 0 to 1.
    """

    session: aiohttp.ClientSession
    limits: Limits
    lanes: Lanes
    environment: Mapping[str, str]
    clock: Callable[[], float]
    draw: Callable[[], float]
