"""All controllers that one process talks to."""

import asyncio
import os
import random
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

from metal.host.redfish.controller import Controller
from metal.host.redfish.limits import Limits
from metal.host.redfish.shared import Lanes, Shared
from metal.host.redfish.wire import open_session
from metal.inventory.inventory import Place


class Controllers:
    """Opens controllers; use it in `async with`, which ends all sessions."""

    def __init__(
        self,
        limits: Limits | None = None,
        environment: Mapping[str, str] = os.environ,
        clock: Callable[[], float] = time.monotonic,
        draw: Callable[[], float] = random.random,
    ) -> None:
        bounds = limits or Limits()
        self._shared = Shared(open_session(bounds), bounds, Lanes(bounds), environment, clock, draw)
        self._open: set[Controller] = set()

    def open(self, place: Place) -> Controller:
        """Return the controller at a place; nothing is sent yet."""
        controller = Controller(place, self._shared)
        self._open.add(controller)
        return controller

    async def close(self, controller: Controller) -> None:
        """End the session of one controller that nobody asks any more."""
        self._open.discard(controller)
        await controller.close()

    async def __aenter__(self) -> Self:
        """Return these controllers."""
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        """End all sessions, as far as there is time."""
        try:
            async with asyncio.timeout(self._shared.limits.closing_s):
                await asyncio.gather(*(each.close() for each in self._open))
        except TimeoutError:
            pass  # Of controllers that do not answer, which end their sessions themselves.
        finally:
            await self._shared.session.close()
