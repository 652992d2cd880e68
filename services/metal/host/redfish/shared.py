"""What all controllers of a process share."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from weakref import WeakValueDictionary

import aiohttp

from metal.host.redfish.limits import Limits


class _Lane:
    """Some calls at a time, of which a few are kept for power requests."""

    def __init__(self, calls: int, kept: int) -> None:
        self._all = asyncio.Semaphore(calls)
        self._readings = asyncio.Semaphore(calls - kept)

    @asynccontextmanager
    async def turn(self, *, is_power: bool) -> AsyncIterator[None]:
        if is_power:
            async with self._all:
                yield
        else:
            async with self._readings, self._all:
                yield


class Lanes:
    """Bounds the calls at a time to all controllers, and to each.

    Controllers whose last call has failed or was slow share a few of the turns. So however many
    controllers are slow or silent, a reading of another one waits for one call of each at most,
    and only until each of them has been read once.

    A power request waits for no reading. Of many calls for power requests that come together, the
    n-th waits for n / `power` earlier calls at most, each of which ends within `call_s`.
    """

    def __init__(self, limits: Limits) -> None:
        self._steady = _Lane(limits.at_once - limits.suspects, limits.power)
        self._suspects = _Lane(limits.suspects, limits.suspects_power)
        self._per_controller = limits.per_controller
        self._controllers: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    def turn(self, *, is_suspect: bool, is_power: bool) -> AbstractAsyncContextManager[None]:
        """Return what to wait in for a call to a controller."""
        lane = self._suspects if is_suspect else self._steady
        return lane.turn(is_power=is_power)

    def turns_of(self, address: str) -> asyncio.Semaphore:
        """Return the turns of one controller, which all systems behind its address share."""
        turns = self._controllers.get(address)
        if turns is None:
            turns = self._controllers[address] = asyncio.Semaphore(self._per_controller)
        return turns


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
