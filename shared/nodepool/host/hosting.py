"""The services of one process: each works, fails and restarts by itself, and they share the pages.

A service that ends with an error in its own code is started again while the others work on. If it
is alone, the process ends, and whoever has started the process starts it again.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from random import random
from typing import Any, Protocol

from nodepool.contract.exceptions import NO_FAILURE, describe
from nodepool.contract.services import FEED
from nodepool.host.foreign_logs import foreign_logs
from nodepool.host.health import HealthServer
from nodepool.host.logs import Logger
from nodepool.host.opening import run_feed
from nodepool.host.page import MetricsPage
from nodepool.host.runtime import FAULTS, Runtime
from nodepool.host.settings import Settings, SettingsError
from nodepool.nats.log.feed import Feed
from nodepool.nats.wire.waiting import cancel
from nodepool.service import AnyService
from nodepool.state.back_off import pause_s

RESTART_S, RESTART_MAX_S = 0.5, 10.0
"""The first and the longest pause before a service that has crashed is started again."""
STABLE_S = 60.0
"""After a run that lasted longer, the pauses start again with the first one."""
AnyRuntime = Runtime[Any, Any, Any]
"""A replica of a service with any state and any messages."""


class Edge(Protocol):
    """The part of a process that connects a replica to the world outside of the bus."""

    @property
    def obstacle(self) -> str | None:
        """Return why it does not do its work, as one line; None if it does."""

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set; the replica still works until this returns."""


@dataclass(frozen=True, slots=True)
class Hosted:
    """A service that a process can run.

    configure: makes the service, if what it says depends on a setting.
    edge: makes the edge of a replica; None if the service has no edge.
    """

    service: AnyService
    configure: Callable[[Settings], AnyService] | None = None
    edge: Callable[[AnyRuntime], "Edge"] | None = None

    def make(self, settings: Settings) -> AnyService:
        """Return the service as these settings want it."""
        return self.service if self.configure is None else self.configure(settings)


@dataclass(slots=True)
class _Kept:
    """A replica that is kept at work.

    crash: why it does not work, as one line; empty while it works.
    """

    hosted: Hosted
    service: AnyService
    runtime: AnyRuntime
    crash: str = ""
    edge: Edge | None = None

    @property
    def obstacle(self) -> str | None:
        """Return why the replica is not ready; None if it is ready."""
        own = self.crash or self.runtime.obstacle()
        return own or (None if self.edge is None else self.edge.obstacle)

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set: the replica, and its edge if the service has one."""
        make = self.hosted.edge
        if make is None:
            await self.runtime.run(stop)
            return
        self.edge = edge = make(self.runtime)
        is_over = asyncio.Event()
        working = asyncio.create_task(edge.run(stop))
        working.add_done_callback(lambda _: is_over.set())
        try:
            await self.runtime.run(is_over)
        finally:
            await cancel(working)
        if not working.cancelled():
            working.result()  # Raises why it has crashed.


class Hosting:
    """One replica of each of some services, in one process.

    port: the port of metrics and health; -1 while they are not served.

    Raises SettingsError if a file cannot be used, or a log file would be shared.
    """

    def __init__(self, hosted: Sequence[Hosted], settings: Settings) -> None:
        if len(hosted) > 1 and settings.log_file and "{service}" not in settings.log_file:
            text = f"NODEPOOL_LOG_FILE is {settings.log_file!r}; several services need {{service}}"
            raise SettingsError(f"{text} in it, so that each has a file of its own")
        self.port = -1
        self._settings = settings
        self._page = MetricsPage()
        self._feed = Feed() if len(hosted) > 1 else None
        self._feed_settings = settings.of(FEED) if len(hosted) > 1 else settings
        made = [(each, each.make(settings)) for each in hosted]
        self._kept = [_Kept(each, service, self._make(service)) for each, service in made]

    def _make(self, service: AnyService) -> AnyRuntime:
        return Runtime(service, self._settings.of(service.name), self._page, feed=self._feed)

    @property
    def is_shared(self) -> bool:
        """Return whether the process runs several services."""
        return len(self._kept) > 1

    @property
    def is_caught_up(self) -> bool:
        """Return whether each replica has caught up with the log."""
        return all(each.runtime.ready.is_set() for each in self._kept)

    def obstacle(self) -> str | None:
        """Return why one of the services is not ready, as one line; None if all are ready."""
        for each in self._kept:
            fault = each.obstacle
            if fault is not None:
                return f"{each.service.name}: {fault}" if self.is_shared else fault
        return None

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set.

        Raises SettingsError if metrics cannot be served, and the error of a service that has
        crashed alone. The other services then stop first.
        """
        with ExitStack() as stack:
            watching: asyncio.Task[None] | None = None
            if self._settings.metrics_port >= 0:
                pages = HealthServer(self._settings, self._page.pieces, self.obstacle)
                stack.callback(pages.close)
                self.port = pages.port
                watching = asyncio.create_task(pages.watch(stop, self._log()))
            stack.enter_context(foreign_logs(self._log))
            keepers = [asyncio.create_task(self._keep(each, stop)) for each in self._kept]
            feeding = asyncio.create_task(self._keep_reading(stop))
            try:
                await asyncio.gather(*keepers)
                if watching is not None and watching.done():
                    watching.result()  # Raises why the pages can no longer be served.
            finally:
                stop.set()
                await asyncio.wait(keepers)
                await cancel(feeding, *([watching] if watching is not None else []))
            if not feeding.cancelled():
                feeding.result()  # Raises why the process must end.

    async def _keep_reading(self, stop: asyncio.Event) -> None:
        """Read the log for all services of the process; they read alone while this does not."""
        failures, clock = 0, asyncio.get_running_loop().time
        while self._feed is not None:
            began = clock()
            try:
                await run_feed(self._feed, self._feed_settings, self._note_wait)
            except FAULTS as error:
                cause = str(error) or type(error).__name__
                self._log().warning("shared reader restarts", cause=cause)
            except Exception:
                stop.set()
                raise
            failures = failures + 1 if clock() - began < STABLE_S else 1
            await asyncio.sleep(pause_s(failures, RESTART_S, RESTART_MAX_S, random()))

    def _note_wait(self, reason: str) -> None:
        self._log().warning("shared reader not provisioned", cause=reason)

    def _log(self) -> Logger:
        """Return the log of a service at work: that of a service that has crashed is closed."""
        works = (each for each in self._kept if not each.crash)
        return next(works, self._kept[0]).runtime.telemetry.log

    async def _keep(self, kept: _Kept, stop: asyncio.Event) -> None:
        """Run a service; after a crash, make the service again, unless it is alone."""
        failures, clock = 0, asyncio.get_running_loop().time
        while True:
            began = clock()
            try:
                if not kept.crash:
                    await kept.run(stop)
            except Exception as error:
                if not self.is_shared or isinstance(error, NO_FAILURE):
                    raise
                kept.crash = f"it has crashed: {describe(error)}"
            if stop.is_set():
                break
            failures = failures + 1 if clock() - began < STABLE_S else 1
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s(failures, RESTART_S, RESTART_MAX_S, random())):
                    await stop.wait()
                    break
            try:
                kept.runtime, kept.crash = self._make(kept.service), ""
            except SettingsError as error:  # Its log file cannot be opened any more.
                kept.crash = str(error)
