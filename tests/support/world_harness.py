"""All services in one thread over a log in memory, in which only `pass_time` lets time pass."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta

from nodepool.contract.events import KubernetesEvent, MachineRepaired, MachineStateChanged
from nodepool.contract.log import Entry
from nodepool.contract.messages import Envelope, Message, wrap
from nodepool.contract.node_states import MachineState
from nodepool.contract.subjects import subject_of
from nodepool.engine.world import World
from nodepool.service import AnyService
from support.constants import ZONE
from support.documents import Document, document_of, documents_of
from support.harness import Harness


class WorldHarness(Harness):
    """A `Harness` on a `World`; it can also pause and restart services, and let time pass.

    recording_since: when `start_recording` was called last.
    """

    def __init__(self, *services: AnyService) -> None:
        super().__init__(services)
        self.world = World(self.services)
        self.recording_since = self.world.log.clock

    def put(self, subject: str, content: bytes, id: str) -> None:
        self.world.publish(subject, content, id)

    def run_until_idle(self) -> None:
        self.world.run_until_idle()

    def entries(self) -> Sequence[Entry]:
        return self.world.log.entries

    def documents(self, bucket: str) -> Mapping[str, Document]:
        return documents_of(self.world, bucket)

    def document(self, bucket: str, key: str) -> Document | None:
        return document_of(self.world, bucket, key)

    def replay_differs(self) -> list[str]:
        return self.world.replay_differs()

    @contextmanager
    def paused(self, *names: str) -> Iterator[None]:
        """These services read and write nothing in here, and catch up afterwards."""
        before = self.world.hosts
        away = [host for host in before if host.service.name in names]
        self.world.hosts = [host for host in before if host not in away]
        yield
        order = [service.name for service in self.world.services]
        hosts = [*self.world.hosts, *away]
        self.world.hosts = sorted(hosts, key=lambda host: order.index(host.service.name))
        self.run_until_idle()

    def restart(self, name: str) -> None:
        """A service loses its state and reads the log from its beginning."""
        self.world.hosts = [
            self.world.host(host.service) if host.service.name == name else host
            for host in self.world.hosts
        ]
        self.run_until_idle()

    def pass_time(self, minutes: float = 0, seconds: float = 0) -> None:
        """Lets time pass; services are woken whenever something is due."""
        self.world.pass_time(timedelta(minutes=minutes, seconds=seconds))

    def take_out(self, machine: str, cause: str, zone: str = ZONE) -> None:
        """The provider takes a machine out of service that has not been a Node."""
        name, state = self.machine_name(machine), MachineState.TRIAGE
        self._report(MachineStateChanged(zone=zone, machine=name, state=state, cause=cause))

    def put_back(self, machine: str) -> None:
        """The provider says that a machine is in service again."""
        _, zone, name = self.machine_path(machine)
        self._report(MachineRepaired(zone=zone, machine=name))

    def machine_status(self, machine: str) -> object:
        """The status of a machine, as its document shows it."""
        _, zone, name = self.machine_path(machine)
        return self.documents("machines")[f"{zone}/{name}"]["status"]

    def _report(self, event: Message) -> None:
        id = f"report-{len(self.world.log.entries)}"
        self.publish(subject_of(event, "fleet"), wrap(event, id=id, source="fleet").encode(), id)

    def start_recording(self) -> None:
        super().start_recording()
        self.recording_since = self.world.log.clock

    def timed_events(self, pool: str) -> list[str]:
        """As `events`, each after the minutes and seconds since recording started."""
        return [
            f"{self._elapsed(envelope)} {self.text(envelope.data)}"
            for envelope in self.envelopes_of(pool)
            if isinstance(envelope.data, KubernetesEvent)
        ]

    def _elapsed(self, envelope: Envelope[Message]) -> str:
        assert envelope.time is not None
        elapsed = envelope.time - self.recording_since
        minutes, seconds = divmod(int(elapsed.total_seconds()), 60)
        return f"{minutes}:{seconds:02}"
