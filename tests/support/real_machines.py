"""Real machines and the processes of their provider, step by step, with every fault between them.

Each process has a replica of `metal` and sends only the requests that it has stored itself. A
process that ends takes along what it has not sent.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal, TypeVar

from metal.decide import SERVICE
from metal.machine import Machine
from metal.state import State
from nodepool.contract.decode import Unreadable, decode
from nodepool.contract.events import (
    ControllerReported,
    MachineDeclared,
    PowerAnswered,
    PowerOverdue,
    PowerRequested,
    WipeEnded,
)
from nodepool.contract.keys import machine_key
from nodepool.contract.log import Entry
from nodepool.contract.messages import Event, Message, wrap
from nodepool.contract.real_machines import Power
from nodepool.contract.subjects import address_of, subject_of
from nodepool.engine.world import Host, World
from nodepool.service import AnyService
from support.constants import H100, ZONE

M = TypeVar("M", bound=Message)
Happens = Literal["now", "later", "never"]
"""When a request has its effect."""


@dataclass
class Server:
    """A server: its power, whether its system runs, and what it was sent.

    late: what it was sent and does later.
    """

    name: str
    power: Power = Power.OFF
    runs: bool = False
    sent: list[PowerRequested] = field(default_factory=list)
    late: list[PowerRequested] = field(default_factory=list)

    @property
    def is_wiped(self) -> bool:
        """Whether it has booted the profile for wiping."""
        return self.runs and bool(self.sent) and self.sent[-1].boot_from == "wipe"

    def follow(self, request: PowerRequested) -> None:
        """Does what a request asks for."""
        self.set_power(is_on=request.action == "on")

    def set_power(self, *, is_on: bool) -> None:
        """Is powered on or off, by a request or by somebody's hand."""
        self.power, self.runs = (Power.ON, self.runs) if is_on else (Power.OFF, False)

    def go_on(self) -> None:
        """Lets a boot end."""
        self.runs = self.power is Power.ON


class Provider(World):
    """The replicas of `metal`; `unsent` are the requests that each has stored and not yet sent."""

    def __init__(self, replicas: int, others: Sequence[AnyService] = ()) -> None:
        self.unsent: dict[int, list[PowerRequested]] = {}
        super().__init__([SERVICE, *others], replicas)

    def process(self, host: Host, *, even_if_quiet: bool = False) -> bool:
        first = len(self.log.entries)
        has_stored = super().process(host, even_if_quiet=even_if_quiet)
        if has_stored:
            stored = (_read(PowerRequested, each) for each in self.log.entries[first:])
            self.unsent.setdefault(id(host), []).extend(each for each in stored if each)
        return has_stored


class Site:
    """A few servers in one zone, their provider, and what the services say of them."""

    def __init__(self, replicas: int = 1, others: Sequence[AnyService] = ()) -> None:
        self.world = Provider(replicas, others)
        self.servers: dict[str, Server] = {}
        self._settled: dict[str, int] = {}
        self._read = 0

    def declare(
        self,
        name: str,
        power: Power = Power.OFF,
        digest: str = "d",
        *,
        wipes: bool = False,
        wipe_minutes: int = 60,
        serial: str = "",
    ) -> Server:
        """The server of a machine that is declared from now on."""
        server = self.servers.setdefault(name, Server(name, power))
        declared = MachineDeclared(
            zone=ZONE,
            machine=name,
            instance_type=H100,
            wipes=wipes,
            wipe_minutes=wipe_minutes,
            digest=digest,
            serial=serial,
        )
        self.tell(declared)
        return server

    def tell(self, *messages: Message) -> None:
        """Stores messages, as whoever says them."""
        for message in messages:
            speaker = message.speaker if isinstance(message, Event) else ""
            id, now = f"t{len(self.world.log.entries)}", self.world.log.clock
            envelope = wrap(message, id=id, source=speaker or "t", time=now)
            self.world.publish(subject_of(message, speaker), envelope.encode())

    def run(self) -> None:
        """Lets all processes decide all that they can."""
        self.world.run_until_idle()

    def see(
        self,
        server: Server,
        power: Power | None = None,
        *,
        stranger: str = "",
        unfit: tuple[str, ...] = (),
        settled: int | None = None,
        digest: str = "d",
        runs: bool = True,
    ) -> None:
        """Says a reading of a server, with another power state if its controller is wrong.

        stranger: given for another machine, of which the driver does not say that it runs.
        settled: given for a reading that began earlier.
        runs: whether the processes decide at once.
        """
        reading = ControllerReported(
            zone=ZONE,
            machine=server.name,
            digest=digest,
            settled=self.settled(server) if settled is None else settled,
            check=self.machine(server).checks,
            power=power or server.power,
            runs=server.runs and not stranger,
            stranger=stranger,
            unfit=unfit,
        )
        self.tell(reading)
        if runs:
            self.run()

    def settled(self, server: Server) -> int:
        """The number of the last request to a server that was answered, or is overdue."""
        entries = self.world.log.entries
        for entry in entries[self._read :]:
            ended = _read(PowerAnswered, entry) or _read(PowerOverdue, entry)
            if ended is not None:
                last = self._settled.get(ended.machine, 0)
                self._settled[ended.machine] = max(last, ended.number)
        self._read = len(entries)
        return self._settled.get(server.name, 0)

    def unsent(self, process: int = 0) -> list[PowerRequested]:
        """The requests that a process has to send."""
        return self.world.unsent.setdefault(id(self.world.hosts[process]), [])

    def send(
        self,
        process: int = 0,
        outcome: Literal["done", "refused", "unknown"] = "done",
        happens: Happens = "now",
        *,
        answers: bool = True,
    ) -> PowerRequested:
        """Lets a process send its next request; it may end before it says what became of it."""
        request = self.unsent(process).pop(0)
        server = self.servers[request.machine]
        server.sent.append(request)
        if outcome != "refused" and happens == "now":
            server.follow(request)
        elif outcome != "refused" and happens == "later":
            server.late.append(request)
        if answers:
            answer = PowerAnswered(
                zone=ZONE, machine=server.name, number=request.number, outcome=outcome
            )
            self.tell(answer)
        self.run()
        return request

    def end_wipe(
        self, server: Server, wipe: int = 0, *, passed: bool = True, cause: str = ""
    ) -> None:
        """Says how a wipe has ended: the one that was last sent, if none is given."""
        wipe = wipe or server.sent[-1].wipe
        ended = WipeEnded(zone=ZONE, machine=server.name, wipe=wipe, passed=passed, cause=cause)
        self.tell(ended)
        self.run()

    def kill(self, process: int = 0) -> None:
        """Ends a process, and starts it again."""
        self.world.unsent.pop(id(self.world.hosts[process]), None)
        self.world.hosts[process] = self.world.host(SERVICE)
        self.run()

    def wait(self, seconds: float) -> None:
        """Lets time pass."""
        self.world.pass_time(timedelta(seconds=seconds))

    def settle(self, minutes: int = 90, every: int = 1) -> None:
        """Lets everything go well for some time: requests are sent, and readings are right.

        every: the minutes from a reading to the next one.
        """
        for _ in range(0, minutes, every):
            self.run()
            for process in range(len(self.world.hosts)):
                while self.unsent(process):
                    self.send(process)
            for server in self.servers.values():
                server.go_on()
                self.see(server, runs=False)
            self.run()
            for server in self.servers.values():
                if server.is_wiped:
                    self.end_wipe(server)
            self.wait(60 * every)

    def machine(self, server: Server) -> Machine:
        """A machine as `metal` knows it."""
        return self._state().machines.get(machine_key(ZONE, server.name), Machine())

    def machines(self) -> list[str]:
        """The keys of all machines that `metal` knows."""
        return [*self._state().machines]

    def _state(self) -> State:
        state = self.world.state("metal")
        assert isinstance(state, State)
        return state

    def said(self, kind: type[M]) -> list[M]:
        """What `metal` has said, of this class."""
        return [each for each in self.world.messages(kind) if isinstance(each, kind)]

    def actions(self, server: Server) -> list[str]:
        """What a server was asked for, in order."""
        return [each.action for each in server.sent]


def _read(kind: type[M], entry: Entry) -> M | None:
    address = address_of(entry.subject)
    if address is None or address.name != kind.__name__:
        return None
    envelope = decode(kind, entry.subject, entry.content, {}, entry.position)
    assert not isinstance(envelope, Unreadable), envelope
    return envelope.data
