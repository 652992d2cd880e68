"""One term of a replica that holds the Lease: all its state, and the work on that state."""

import asyncio
from collections.abc import Iterator
from typing import Final

from agent.actions import RecordEvent
from agent.host.commander import Commander
from agent.host.event_recorder import EventRecorder
from agent.host.log import PoolEvents
from agent.host.model import BusModel
from agent.host.performing import Performer
from agent.host.reconciling import Reconciler
from agent.host.registration import Registration
from agent.host.session import Bus
from agent.host.settings import AgentSettings
from agent.host.telemetry import Telemetry
from agent.host.view import ClusterView
from agent.host.work import Key, Work
from nodepool.kube.api import Api
from nodepool.kube.lease import Lease
from nodepool.nats.cancelling import cancel

RESYNC_S: Final = 600.0
"""The interval at which everything is compared, even if nothing has changed."""


class Term:
    """A term begins without any state, and ends when the Lease is lost or the process stops."""

    def __init__(
        self, settings: AgentSettings, api: Api, lease: Lease, telemetry: Telemetry
    ) -> None:
        place, log = settings.place, telemetry.log
        self._lease, self._telemetry = lease, telemetry
        self.work = Work(lambda: lease.held)
        model = BusModel(self.work.wake)
        events = PoolEvents(place)
        commander = Commander(model, events, self.work.wake, self._unanswered, self.work.wake_at)
        self.view = ClusterView(api, place, model, self.work, self.resync, log)
        self._recorder = EventRecorder(place, model, self.view, self._record, log, lease.progress)
        self.bus = Bus(
            settings,
            telemetry,
            model,
            commander,
            registration=Registration(api, settings, log),
            resync=self.resync,
            following=self._recorder.follow,
        )
        self._performer = Performer(
            api,
            self.bus,
            commander,
            self.view,
            telemetry,
            self.work,
        )
        self._reconciler = Reconciler(
            place,
            self.work,
            self.bus,
            commander,
            self.view,
            self._performer,
            telemetry,
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
        if self._recorder.fault:
            yield self._recorder.fault

    async def run(self, stop: asyncio.Event) -> None:
        """Work until the Lease is lost, or until `stop` is set."""
        stopping = asyncio.create_task(stop.wait())
        keeping = asyncio.create_task(self._lease.keep(lambda: self._recorder.recorded))
        working = asyncio.create_task(self.work.run(self._reconciler.reconcile))
        others = [
            asyncio.create_task(each)
            for each in (
                self.bus.run(),
                self.view.run(),
                self._resync_for_ever(),
            )
        ]
        tasks = [stopping, keeping, working, *others]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            working.cancel()
            if keeping not in done:
                await self.work.finish()
                self._lease.progress = self._recorder.recorded
        finally:
            await self.work.cancel()
            await cancel(*tasks)

    async def _resync_for_ever(self) -> None:
        while True:
            await asyncio.sleep(RESYNC_S)
            self._reconciler.forbidden.clear()  # What is still forbidden is found again.
            self.resync()

    async def _record(self, event: RecordEvent) -> None:
        if self._lease.held:
            await self._performer.record_event(event)

    def _unanswered(self, key: Key, cause: str) -> None:
        pause_s = self.work.retry(key)
        self._telemetry.log.warning(
            "no outcome", kind=key.kind, name=key.name, cause=cause, again_in_s=round(pause_s)
        )
