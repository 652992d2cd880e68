"""The calls for one machine: a few at a time, bounded in time, with a pause after a failure."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

from metal.host.redfish.fault import Fault
from metal.host.redfish.shared import Shared
from metal.replies import Failure, Trouble
from nodepool.state.back_off import pause_s

T = TypeVar("T")


class Calls:
    """Makes the calls for one machine; raises Fault for a call that failed, or was not made.

    address: of its controller, which may be that of other machines too.
    """

    def __init__(self, shared: Shared, address: str) -> None:
        self._shared = shared
        self._turns = shared.lanes.turns_of(address)
        self._failures = 0
        self._is_slow = False
        self._last: Failure | None = None
        self._until = 0.0

    @property
    def has_failed(self) -> bool:
        """Whether the last call has failed."""
        return self._failures > 0

    async def make(
        self, call: Callable[[], Awaitable[T]], within_s: float = 0.0, *, is_power: bool = False
    ) -> T:
        """Return what a call returns, when it is its turn; raise Fault if it fails.

        within_s: how long the call may take; 0 for the limit of all calls.
        is_power: whether it is for a power request.
        """
        seconds, clock = within_s or self._shared.limits.call_s, self._shared.clock
        self._check_pause()
        is_suspect = self.has_failed or self._is_slow
        lanes = self._shared.lanes
        async with self._turns, lanes.turn(is_suspect=is_suspect, is_power=is_power):
            # Another call may have failed since this one began to wait.
            self._check_pause()
            began = clock()
            try:
                async with asyncio.timeout(seconds):
                    result = await call()
            except Fault as fault:
                self._note(fault.failure)
                raise
            except TimeoutError:
                late = Fault(Trouble.TIMED_OUT, f"not all was answered within {seconds:g} s")
                self._note(late.failure)
                raise late from None
            finally:
                self._is_slow = clock() - began >= seconds * self._shared.limits.slow
            self._failures, self._last = 0, None
            return result

    def _check_pause(self) -> None:
        """Raise the last failure again while there is a pause after it."""
        if self._last is not None and self._shared.clock() < self._until:
            fault = Fault(self._last.trouble, self._last.text, may_have_acted=False)
            fault.failure = replace(self._last, is_repeated=True)
            raise fault

    def _note(self, failure: Failure) -> None:
        """Begin a pause, unless the controller answered and only refused this request."""
        if failure.trouble.is_of_one_request:
            self._failures, self._last = 0, None
            return
        self._failures += 1
        limits, draw = self._shared.limits, self._shared.draw()
        pause = pause_s(self._failures, limits.pause_least_s, limits.pause_most_s, draw)
        self._last, self._until = failure, self._shared.clock() + pause
