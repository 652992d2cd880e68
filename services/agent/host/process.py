"""Runs one replica of the agent: it works while it holds the Lease, and else is on standby."""

import asyncio
import os
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Final, TypeVar

from agent.host.settings import AgentSettings, read_agent
from agent.host.telemetry import NAME, Telemetry
from agent.host.term import Term
from nodepool.contract import metrics as contract
from nodepool.contract.agent_metrics import LAST_SYNC, OBJECTS, PODS_WAITING, QUEUE
from nodepool.contract.metrics import Sample
from nodepool.host.foreign_logs import foreign_logs
from nodepool.host.logs import Logger
from nodepool.host.process import ending_with_a_line, run_until_stopped
from nodepool.host.version import version_of
from nodepool.kube.api import Api
from nodepool.kube.lease import Lease
from nodepool.nats.cancelling import cancel

T = TypeVar("T")
MANAGER: Final = "nodepool-agent"
PROGRESS: Final = "compute.coreweave.com/events"
"""The annotation of the Lease that stores up to which position of which log all events are
recorded."""


def main() -> None:
    """Run one replica until SIGTERM or SIGINT; settings come from the environment."""
    with ending_with_a_line(NAME):
        settings = read_agent(os.environ)
        run_until_stopped(lambda stop: Agent(settings).run(stop), settings.service)


class Agent:
    """One replica. It waits for the Lease, works for a term, and waits again if it loses it."""

    def __init__(self, settings: AgentSettings) -> None:
        self._settings = settings
        self._telemetry = Telemetry(settings.service, settings.place, self._samples)
        self._lease: Lease | None = None
        self._term: Term | None = None
        self.port = -1

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set; a fault of the bus or of the cluster only delays the agent."""
        telemetry, settings = self._telemetry, self._settings
        self.port = telemetry.serve(self.obstacle)
        telemetry.log.info("started", version=version_of(), **settings.shown())
        api = Api(settings.kubeconfig, MANAGER, telemetry.requested)
        lease = lease_of(settings, api, telemetry.log)
        self._lease = lease
        watching = asyncio.create_task(telemetry.watch(stop))
        try:
            with foreign_logs(telemetry.log):
                while not stop.is_set():
                    await _unless(stop, lease.acquire)
                    if lease.held and not stop.is_set():
                        self._term = Term(settings, api, lease, telemetry)
                        await self._term.run(stop)
                        self._term = None
                telemetry.log.info("stopping")
                await lease.release()
            if watching.done():
                watching.result()  # Raises the error that ended the pages.
        except Exception:  # A bug: the process ends, and its log says why.
            telemetry.log.error("crashed", exc_info=True)
            raise
        finally:
            watching.cancel()
            await api.close()
            telemetry.close()

    def obstacle(self) -> str | None:
        """Why it is not ready, as one line; None where it is, as on standby."""
        lease, term = self._lease, self._term
        if lease is None:
            return "starting"
        if lease.fault:
            return lease.fault
        return None if term is None else "; ".join(term.obstacles()) or None

    def _samples(self) -> Iterator[Sample]:
        """Yield the samples of a scrape, which runs in its own thread: a term may end meanwhile."""
        term = self._term
        yield Sample(contract.BUILD_INFO, (version_of(),), 1)
        yield Sample(contract.READY, (), self.obstacle() is None)
        yield Sample(contract.LEADING, (), term is not None)
        if term is None:
            return
        yield Sample(contract.CONNECTED, (), not term.bus.obstacle)
        yield Sample(QUEUE, (), len(term.work.queue))
        yield Sample(PODS_WAITING, (), len(term.view.waiting.cache.store))
        for cache in term.view.caches:
            kind = cache.resource.kind
            yield Sample(OBJECTS, (kind,), len(cache.store))
            if cache.listed_at:
                yield Sample(LAST_SYNC, (kind,), time.monotonic() - cache.listed_at)


def lease_of(settings: AgentSettings, api: Api, log: Logger) -> Lease:
    """Return the Lease that one of the replicas holds."""
    names = settings.lease_namespace, settings.lease_name
    return Lease(api, *names, annotation=PROGRESS, log=log)


async def _unless(stop: asyncio.Event, work: Callable[[], Coroutine[None, None, None]]) -> None:
    """Do some work, and cancel the work if `stop` is set before it ends."""
    working, stopping = asyncio.create_task(work()), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
    finally:
        stopping.cancel()
        await cancel(working)
