"""The keys to compare, and a limited number of tasks that compare them, one task per key."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final, Literal, NamedTuple, get_args

from nodepool.kube.pacing import Pauses
from nodepool.kube.queue import KeyQueue
from nodepool.nats.wire.waiting import cancel

Kind = Literal["NodePool", "Node", "Pod"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)


class Key(NamedTuple):
    """A NodePool or a Node on both sides, by its name; or all waiting Pods together."""

    kind: Kind
    name: str


WAITING: Final = Key("Pod", "waiting")
"""The key of all Pods that wait for a Node."""


def pool_key(name: str) -> Key:
    """Return the key of a NodePool."""
    return Key("NodePool", name)


def node_key(name: str) -> Key:
    """Return the key of a Node."""
    return Key("Node", name)


WORKERS_MAX: Final = 12
"""How many keys are compared at a time; with the Events, at most 16 requests are in flight."""
IDLE_S: Final = 10.0
ENDING_S: Final = 5.0
"""How long tasks in progress may still take once the process must stop."""
REPORT_S: Final = 2.0
"""The pause between two reports of a Node if only its Pods have changed, and between two
comparisons of the waiting Pods."""
KEPT_MAX: Final = 20_000
"""How many Nodes that were reported, and how many Pods that were evicted, are remembered."""


class Work:
    """The queue of keys, with the clock of the event loop.

    may: whether this replica may act.
    reports: the pause of each Node that was reported, of each NodePool whose status was written,
      and of the waiting Pods.
    evictions: the pause of each Pod that was evicted, by uid, and why its eviction was refused.
    """

    def __init__(self, may: Callable[[], bool]) -> None:
        self.may = may
        self.queue: KeyQueue[Key] = KeyQueue(lambda key: key.kind != "Node")
        self.reports: Pauses[Key] = Pauses(KEPT_MAX)
        self.evictions: Pauses[str] = Pauses(KEPT_MAX)
        self.clock = asyncio.get_running_loop().time
        self._woken = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    def wake(self, key: Key) -> None:
        """Wake a key, to be compared as soon as a worker is free.

        Any Pod or Node may wake the waiting Pods, so a pause limits how often they are compared.
        """
        if key == WAITING:
            self.wake_at(key, max(self.clock(), self.reports.ends_at(key)))
            return
        self.queue.add(key)
        self._woken.set()

    def wake_at(self, key: Key, due: float) -> None:
        """Wake a key at a moment of the clock of the event loop, if it is not woken before."""
        self.queue.add_at(key, due)
        self._woken.set()

    def retry(self, key: Key, least_s: float = 0.0) -> float:
        """Wake a key again after its back-off; return the pause in seconds."""
        pause_s = self.queue.retry_later(key, self.clock(), random.random(), least_s=least_s)
        self._woken.set()
        return pause_s

    async def run(self, work_on: Callable[[Key], Awaitable[None]]) -> None:
        """Hand out keys until the task is cancelled, while this replica may act."""
        while True:
            while self.may() and len(self._tasks) < WORKERS_MAX:
                key = self.queue.take(self.clock())
                if key is None:
                    break
                task = asyncio.create_task(self._one(key, work_on))
                self._tasks.add(task)
                task.add_done_callback(self._discard_task)
            due = self.queue.next_due()
            left = IDLE_S if due is None else max(due - self.clock(), 0.001)
            timer = asyncio.get_running_loop().call_later(min(left, IDLE_S), self._woken.set)
            await self._woken.wait()
            timer.cancel()
            self._woken.clear()

    def _discard_task(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._woken.set()
        if not task.cancelled():
            task.result()

    async def _one(self, key: Key, work_on: Callable[[Key], Awaitable[None]]) -> None:
        try:
            await work_on(key)
        finally:
            self.queue.done(key)

    async def finish(self) -> None:
        """Wait up to `ENDING_S` seconds for the tasks that have begun, and then cancel them."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=ENDING_S)
        await self.cancel()

    async def cancel(self) -> None:
        """Cancel all tasks."""
        await cancel(*self._tasks)
