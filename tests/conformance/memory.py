"""A provider on trial over a log in memory: its pure part, with a clock that is moved by hand."""

from collections.abc import Sequence
from datetime import timedelta

from conformance.trial import Machines, Trial
from nodepool.contract.log import Entry
from nodepool.engine.world import World
from nodepool.service import AnyService

STEP, PATIENCE = timedelta(seconds=1), timedelta(minutes=5)


class MemoryTrial(Trial):
    """A trial of a service in this thread."""

    def __init__(self, service: AnyService, machines: Machines) -> None:
        self.world = World([service])
        super().__init__(service.name, machines)
        self._end = self.world.log.clock

    def store(self, subject: str, content: bytes) -> None:
        self.world.publish(subject, content)
        self._end = self.world.log.clock + PATIENCE

    def entries(self) -> Sequence[Entry]:
        self.world.run_until_idle()
        return self.world.log.entries

    def may_go_on(self) -> bool:
        self.world.pass_time(STEP)
        return self.world.log.clock < self._end

    def restart(self) -> None:
        (host,) = self.world.hosts
        self.world.hosts = [self.world.host(host.service)]
