"""The provider of real machines on trial: servers and their controllers are played in memory.

Nothing but the hardware is played: what the controllers say and are asked for goes through the log,
as it does with the real driver.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import ClassVar, Final

from conformance.memory import MemoryTrial
from conformance.trial import Trial
from metal.decide import SERVICE
from nodepool.contract.commands import MachineFault
from nodepool.contract.commands_metal import VerifyMachine
from nodepool.contract.decode import Unreadable, decode
from nodepool.contract.events import (
    ControllerReported,
    MachineCheckRequested,
    MachineDeclared,
    PowerAnswered,
    PowerOverdue,
    PowerRequested,
    WipeEnded,
)
from nodepool.contract.health import CAUSES, NodeFault
from nodepool.contract.log import Entry
from nodepool.contract.messages import Message, wrap
from nodepool.contract.real_machines import Power, PowerAction
from nodepool.contract.subjects import address_of, subject_of
from support.constants import H100, ZONE

STEP, PATIENCE = timedelta(seconds=5), timedelta(minutes=40)
Decision = PowerRequested | PowerOverdue | MachineCheckRequested
HEARD: Final[Mapping[str, type[Decision]]] = {
    kind.__name__: kind for kind in (PowerRequested, PowerOverdue, MachineCheckRequested)
}


@dataclass
class Server:
    """A server in a rack, and what its controller has been asked for.

    coming: the faults that show after it was powered on again.
    faults: those that show.
    sent: the power requests that it was sent, in order.
    settled, check: see `ControllerReported`.
    wiped: the last wipe of which the end was said.
    said: its last reading, as the driver has said it.
    """

    name: str
    power: Power = Power.OFF
    runs: bool = False
    coming: set[str] = field(default_factory=set)
    faults: set[str] = field(default_factory=set)
    sent: list[PowerRequested] = field(default_factory=list)
    settled: int = 0
    check: int = 0
    wiped: int = 0
    said: ControllerReported | None = None

    def reset(self, action: PowerAction) -> None:
        """Does what a request asks for; with a fault of the boot no system runs afterwards."""
        self.runs = False
        if action != "on":
            self.power = Power.OFF
        else:
            self.power, self.faults, self.coming = Power.ON, self.coming, set()

    def go_on(self) -> None:
        """Lets a boot end, unless a fault keeps it from that."""
        is_stopped = self.faults & {"registration", "silence", "hang"}
        self.runs = self.power is Power.ON and not is_stopped

    def read(self, digest: str = "d") -> ControllerReported:
        """What its controller says of it now."""
        shown: dict[NodeFault, str] = {
            fault: f"its log has {fault}" for fault in CAUSES if fault in self.faults
        }
        return ControllerReported(
            zone=ZONE,
            machine=self.name,
            digest=digest,
            settled=self.settled,
            check=self.check,
            power=self.power,
            runs=self.runs,
            unfit=("a GPU is missing",) if "verification" in self.faults and self.runs else (),
            faults=shown,
        )


class MetalTrial(MemoryTrial):
    """A trial of `metal`; this is also its driver, which sends each request once."""

    def __init__(self) -> None:
        self.servers: dict[str, Server] = {}
        self._heard = 0
        super().__init__(SERVICE, MetalMachines())

    def entries(self) -> Sequence[Entry]:
        super().entries()
        while self._drive():
            super().entries()
        return self.world.log.entries

    def may_go_on(self) -> bool:
        self.world.pass_time(STEP)
        for server in self.servers.values():
            server.go_on()
        return self.world.log.clock < self._end + PATIENCE

    def publish(self, *messages: Message) -> None:
        """Stores what the driver says."""
        for message in messages:
            envelope = wrap(message, id=f"r{len(self.world.log.entries)}", source="redfish")
            self.world.publish(subject_of(message, "redfish"), envelope.encode())

    def _drive(self) -> bool:
        """Does what the log asks for, and says what is new; False if nothing is."""
        entries = self.world.log.entries
        for entry in entries[self._heard :]:
            message = read_decision(entry)
            if message is not None:
                self._follow(self.servers[message.machine], message)
        self._heard = len(entries)
        for server in self.servers.values():
            self._end_wipe(server)
            reading = server.read()
            if reading != server.said:
                server.said = reading
                self.publish(reading)
        return len(entries) > self._heard

    def _end_wipe(self, server: Server) -> None:
        """Says how a wipe has ended, once its system runs."""
        wipe = server.sent[-1].wipe if server.sent else 0
        if wipe <= server.wiped or not server.runs:
            return
        server.wiped = wipe
        is_well = "wipe" not in server.faults
        cause = "" if is_well else "a disk has failed"
        self.publish(
            WipeEnded(zone=ZONE, machine=server.name, wipe=wipe, passed=is_well, cause=cause)
        )

    def _follow(self, server: Server, message: Message) -> None:
        match message:
            case PowerRequested():
                self.send(server, message)
            case PowerOverdue():
                server.settled = max(server.settled, message.number)
            case MachineCheckRequested():
                server.check = message.number

    def send(self, server: Server, request: PowerRequested) -> None:
        """Sends a request, whose boot the controller refuses if the server has this fault."""
        server.sent.append(request)
        is_refused = request.action == "on" and "boot" in server.coming
        if not is_refused:
            server.reset(request.action)
        server.settled = request.number
        self.publish(
            PowerAnswered(
                zone=ZONE,
                machine=server.name,
                number=request.number,
                outcome="refused" if is_refused else "done",
                cause="it has no boot image" if is_refused else "",
            )
        )


class MetalMachines:
    """Machines that are declared, with a server for each."""

    zone: ClassVar[str] = ZONE
    instance_type: ClassVar[str] = H100

    def add(self, trial: Trial, *, wipes: bool = False) -> None:
        """Declares one machine, whose controller is read from then on."""
        servers = servers_of(trial)
        name = f"g{len(servers) + 1:06x}"
        declared = MachineDeclared(
            zone=ZONE, machine=name, instance_type=H100, wipes=wipes, digest="d"
        )
        trial.tell(declared)
        servers[name] = Server(name)
        trial.read()

    def break_machine(self, trial: Trial, machine: str, fault: MachineFault) -> None:
        """Breaks a server at once, if the fault is one of Nodes; else at its next boot."""
        server = servers_of(trial)[machine]
        shows_now = fault in CAUSES or (fault == "hang" and server.runs)
        (server.faults if shows_now else server.coming).add(fault)
        if shows_now:
            server.go_on()

    def mend(self, trial: Trial, machine: str, fault: MachineFault) -> None:
        """Ends a fault."""
        servers_of(trial)[machine].faults.discard(fault)

    def repair(self, trial: Trial, machine: str) -> None:
        """Repairs a server, and has it verified."""
        server = servers_of(trial)[machine]
        server.faults, server.coming = set(), set()
        trial.tell(VerifyMachine(zone=ZONE, machine=machine))


def servers_of(trial: Trial) -> dict[str, Server]:
    """The servers of a trial, by name."""
    assert isinstance(trial, MetalTrial)
    return trial.servers


def read_decision(entry: Entry) -> Decision | None:
    """What `metal` has decided at an entry of the log, if the driver has to follow it."""
    address = address_of(entry.subject)
    kind = HEARD.get(address.name) if address is not None else None
    if address is None or kind is None or address.service != "metal":
        return None
    envelope = decode(kind, entry.subject, entry.content, {}, entry.position)
    assert not isinstance(envelope, Unreadable), envelope
    return envelope.data
