"""Runs one replica of the agent: it works while it holds the Lease, and else is on standby."""

import asyncio
import os
import time
from collections.abc import Iterator
from typing import Final

from agent.actions import RecordEvent
from agent.host.commander import Commander
from agent.host.event_recorder import EventRecorder
from agent.host.log import LogReader
from agent.host.model import BusModel
from agent.host.performing import Performer
from agent.host.reconciling import ReconcileLoop
from agent.host.registration import Registration
from agent.host.session import Bus
from agent.host.settings import AgentSettings, read_agent
from agent.host.telemetry import NAME, Telemetry
from agent.host.view import ClusterView
from agent.host.work import Work
from nodepool.contract import metrics as contract
from nodepool.contract.agent_metrics import LAST_SYNC, OBJECTS, PODS_WAITING, QUEUE
from nodepool.contract.metrics import Sample
from nodepool.host.logs import Logger
from nodepool.host.process import ending_with_a_line, run_until_stopped
from nodepool.host.version import version_of
from nodepool.kube.api import Api
from nodepool.kube.lease import Lease
from nodepool.nats.wire.waiting import until_first

MANAGER: Final = "nodepool-agent"
PROGRESS: Final = "compute.coreweave.com/events"
"""The annotation of the Lease that stores up to which position of which log all events are
recorded."""
RESYNC_S: Final = 600.0
"""The interval at which everything is compared, even if nothing has changed."""


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
        telemetry.log.info("started", version=version_of(), **settings.list_settings())
        api = Api(settings.kubeconfig, MANAGER, telemetry.count_request)
        lease = lease_of(settings, api, telemetry.log)
        self._lease = lease
        async with telemetry.at_work(stop):
            try:
                await self._hold(lease, api, stop)
                telemetry.log.info("stopping")
                await lease.release()
            finally:
                await api.close()

    async def _hold(self, lease: Lease, api: Api, stop: asyncio.Event) -> None:
        """Work whenever the replica holds the Lease, until `stop` is set."""
        while not stop.is_set():
            await until_first(stop.wait(), lease.acquire())
            if lease.held and not stop.is_set():
                self._term = Term(self._settings, api, lease, self._telemetry)
                await self._term.run(stop)
                self._term = None

    def obstacle(self) -> str | None:
        """Return why the agent is not ready, as one line; None if it is ready, as on standby."""
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
        yield Sample(PODS_WAITING, (), len(term.view.waiting.store))
        for informer in term.view.informers:
            kind = informer.resource.kind
            yield Sample(OBJECTS, (kind,), len(informer.store))
            if informer.listed_at:
                yield Sample(LAST_SYNC, (kind,), time.monotonic() - informer.listed_at)


def lease_of(settings: AgentSettings, api: Api, log: Logger) -> Lease:
    """Return the Lease that one of the replicas holds."""
    names = settings.lease_namespace, settings.lease_name
    return Lease(api, *names, annotation=PROGRESS, log=log)


class Term:
    """The state of a replica that holds the Lease, and the work on that state.

    A term begins without any state, and ends when the Lease is lost or the process stops.
    """

    def __init__(
        self, settings: AgentSettings, api: Api, lease: Lease, telemetry: Telemetry
    ) -> None:
        place, log = settings.place, telemetry.log
        self._lease = lease
        self.work = work = Work(lambda: lease.held)
        model = BusModel(work.wake)
        commander = Commander(model, LogReader(), work, log)
        self.view = ClusterView(api, place, model, work, self.resync, log)
        self.recorder = EventRecorder(place, model, self.view, self._record, log, lease.progress)
        self.bus = Bus(
            settings,
            telemetry,
            model,
            commander,
            registration=Registration(api, place, log),
            resync=self.resync,
            following=self.recorder.follow,
        )
        self._performer = Performer(api, self.bus, self.view, telemetry, work)
        self._reconciler = ReconcileLoop(
            place, work, self.bus, self.view, self._performer, telemetry
        )

    def resync(self) -> None:
        """Wake every key."""
        for key in tuple(self.view.keys()):
            self.work.wake(key)

    def obstacles(self) -> Iterator[str]:
        """Yield each reason why the agent cannot do its work, as one line."""
        if obstacle := self.bus.obstacle:
            yield obstacle
        yield from self.view.faults()
        yield from tuple(self._reconciler.forbidden.values())
        if self.recorder.fault:
            yield self.recorder.fault

    async def run(self, stop: asyncio.Event) -> None:
        """Work until the Lease is lost, or until `stop` is set."""
        try:
            await until_first(
                self._lead(stop), self.bus.run(), self.view.run(), self._resync_repeatedly()
            )
        finally:
            await self.work.cancel()

    async def _lead(self, stop: asyncio.Event) -> None:
        """Hand out keys while the Lease is held; then let the tasks finish that have begun."""
        await until_first(
            stop.wait(),
            self._lease.keep(lambda: self.recorder.recorded),
            self.work.run(self._reconciler.reconcile),
        )
        if self._lease.held:
            await self.work.finish()
            self._lease.progress = self.recorder.recorded

    async def _resync_repeatedly(self) -> None:
        while True:
            await asyncio.sleep(RESYNC_S)
            self._reconciler.forbidden.clear()  # What is still forbidden is found again.
            self.resync()

    async def _record(self, event: RecordEvent) -> None:
        if self._lease.held:
            await self._performer.record_event(event)
