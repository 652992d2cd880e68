"""Whatever operators do in whatever order, a machine is touched for a stay, a wipe or their wish.

Operators take the machine into maintenance, change its power, and change its declaration or remove
it, in the middle of all that may happen to a machine anyway.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from unittest.mock import patch

from hypothesis import example, given
from hypothesis import strategies as st

from flow.test_real_machines_law import STEPS, Step, Story, check_end
from metal.machine import WIPE_MINUTES
from nodepool.contract.commands_metal import MaintainMachine, SetMachinePower
from nodepool.contract.events import (
    ControllerReported,
    CWNodeAssigned,
    CWNodeDeleted,
    CWNodeRegistrationFailed,
    MachineAdded,
    MachineDeclared,
    MachineMaintenanceChanged,
    MachinePowerWished,
    MachineUndeclared,
    MachineWiped,
    PowerRequested,
    WipeEnded,
)
from nodepool.contract.keys import MachineKey
from nodepool.contract.messages import Message
from nodepool.contract.providers import ProviderHears, ProviderSays
from nodepool.contract.real_machines import Power
from redfish.program import zones_of_metal
from support.constants import ZONE
from support.examples import tried
from support.providers.facts import State as Facts
from support.providers.facts import fold_heard, fold_said
from support.real_machines import Site

OF_OPERATORS: Final = (
    "maintain",
    "wish",
    "change",
    "undeclare",
    "declare",
    "swap",
    "glance",
    "stale",
    "work",
)
WISHES: Final = ("on", "off", "reset")
# Here the operators change the inventory, and the machine keeps its name.
OPERATED: Final = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(OF_OPERATORS), st.integers(0, 5)),
        STEPS.filter(bool)
        .map(lambda steps: steps[0])
        .filter(lambda step: step[0] not in ("leave", "return", "rename")),
    ),
    max_size=40,
)


class Operated(Story):
    """A story in which operators work on the machine. digest: of the declaration in force."""

    digest = "d"

    def take(self, step: Step) -> None:
        name, number = step
        site, server = self.site, self.server
        machine = {"zone": ZONE, "machine": server.name}
        match name:
            case "maintain":
                site.tell(MaintainMachine(**machine, maintenance=number < 3, reason="a new fan"))
            case "wish":
                site.tell(SetMachinePower(**machine, power=WISHES[number % 3]))
            case "change" | "declare" | "swap":
                self.digest = "d" if name == "declare" else f"{name} {number}"
                serial = "SN2" if name == "swap" else self.serial
                site.declare(server.name, wipes=True, digest=self.digest, serial=serial)
            case "undeclare":
                site.tell(MachineUndeclared(**machine))
            case "read" | "lie":
                power = list(Power)[number] if name == "lie" else None
                site.see(server, power, digest=self.digest)
            case "stale":
                site.see(server, list(Power)[number], digest="of an earlier declaration")
            case "glance":
                self._glance()
            case "work":
                for _ in range(number + 1):
                    self._work()
            case _:
                super().take(step)
        site.run()

    def _work(self) -> None:
        """Let a minute go well: requests are sent, boots and wipes end, and readings are right."""
        site, server = self.site, self.server
        for process in range(len(site.world.hosts)):
            while site.unsent(process):
                site.send(process)
        server.go_on()
        site.see(server, digest=self.digest)
        if server.is_wiped:
            site.end_wipe(server)
        site.wait(60)

    def _glance(self) -> None:
        """Say a short reading, which no check counts."""
        site, server = self.site, self.server
        seen = site.machine(server).seen
        report = ControllerReported(
            zone=ZONE,
            machine=server.name,
            digest=self.digest,
            settled=site.settled(server),
            check=seen.check if seen is not None else 0,
            power=server.power,
            runs=server.runs,
        )
        site.tell(report)

    def end_work(self) -> None:
        """Let the operators put everything back as it was, and want no power any more."""
        self.take(("declare", 0))
        self.take(("maintain", 5))
        self.take(("wish", 1))


@dataclass
class Reasons:
    """What speaks for a power request at a position of the log.

    stay: the assignment of the machine; 0 for none. wish: what an operator wants of its power.
    digest: of its declaration; empty for none. power: the state that it was seen in since then.
    serial, added: its serial number as it is declared, and as it was when the machine was added.
    is_wiped: whether a wipe has ended since it was last declared with another serial number.
    """

    stay: int = 0
    wish: str = ""
    is_maintained: bool = False
    digest: str = ""
    power: Power = Power.UNKNOWN
    serial: str = ""
    added: str = ""
    is_wiped: bool = False

    @property
    def is_other(self) -> bool:
        """Whether another machine is declared than the one that was added."""
        return self.added not in ("", self.serial)

    def fold(self, message: Message) -> None:
        """Take in what follows in the log."""
        match message:
            case CWNodeAssigned(assignment=assignment):
                self.stay = assignment
            case CWNodeDeleted() | CWNodeRegistrationFailed():
                self.stay = 0
            case MachineAdded():
                self.added = self.serial
            case WipeEnded(passed=is_passed):
                self.is_wiped = is_passed and not self.is_other
            case MachineDeclared(digest=digest, serial=serial):
                self.serial = serial
                self.is_wiped = self.is_wiped and not self.is_other
                self.power = self.power if digest == self.digest else Power.UNKNOWN
                self.digest = digest
            case MachineUndeclared():
                self.digest, self.power = "", Power.UNKNOWN
            case ControllerReported(power=power, digest=digest) if digest == self.digest:
                self.power = power
            case MachineMaintenanceChanged(maintenance=is_maintained):
                self.is_maintained, self.wish = is_maintained, ""
            case MachinePowerWished(power=wish):
                self.wish = wish

    def are_for(self, request: PowerRequested) -> bool:
        """Whether there is a reason; to power on, the machine has to be seen off, too.

        In maintenance only the wish of an operator is a reason.
        """
        is_on = request.action == "on"
        is_wished = self.wish in ("reset", "on" if is_on else "off")
        is_for_stay = bool(request.assignment) and request.assignment == self.stay
        is_for_work = is_for_stay or bool(request.wipe) or not is_on
        is_right = is_wished or (is_for_work and not self.is_maintained)
        return is_right and not self.is_other and (self.power is Power.OFF or not is_on)


PROVIDED: Final[tuple[type[Message], ...]] = (*ProviderHears.__args__, *ProviderSays.__args__)
ANSWERED_WITHIN: Final = timedelta(minutes=2 * WIPE_MINUTES)
KINDS: Final[tuple[type[Message], ...]] = (
    CWNodeAssigned,
    CWNodeDeleted,
    CWNodeRegistrationFailed,
    MachineDeclared,
    MachineUndeclared,
    ControllerReported,
    MachineMaintenanceChanged,
    MachinePowerWished,
    MachineAdded,
    WipeEnded,
    MachineWiped,
    PowerRequested,
)


def find_unwanted(site: Site) -> list[Message]:
    """The requests for which there is no reason, and the wipes of another machine."""
    reasons, unwanted = Reasons(), list[Message]()
    for envelope in site.world.envelopes(*KINDS):
        message = envelope.data
        if isinstance(message, PowerRequested) and not reasons.are_for(message):
            unwanted.append(message)
        if isinstance(message, MachineWiped) and not reasons.is_wiped:
            unwanted.append(message)
        reasons.fold(message)
    return unwanted


def find_late_answers(site: Site) -> list[datetime]:
    """Return the moments of the requests to wipe without an answer in time, even in maintenance.

    A wipe may begin as late as it may take, and takes as long again; it waits for no other machine.
    """
    state, since, late = Facts(), dict[MachineKey, datetime](), list[datetime]()
    for envelope in site.world.envelopes(*PROVIDED):
        message, now = envelope.data, envelope.time
        assert now is not None
        late += [begun for begun in since.values() if now - begun > ANSWERED_WITHIN]
        if isinstance(message, ProviderHears):
            state = fold_heard(state, message)
        elif isinstance(message, ProviderSays):
            state = fold_said(state, message)
        wiped = [key for key, machine in state.machines.items() if machine.wiping]
        since = {key: since.get(key, now) for key in wiped}
    return [*late, *since.values()]


@tried(60)
@given(OPERATED)
@example([("maintain", 0), ("wish", 0), ("work", 1), ("maintain", 5), ("work", 1)])
@example([("work", 5), ("assign", 0), ("work", 5), ("maintain", 0), ("button", 5), ("read", 0)])
@example(
    [
        ("work", 5),
        ("assign", 0),
        ("work", 5),
        ("maintain", 0),
        ("wish", 2),
        ("work", 1),
        ("delete", 0),
    ]
)
@example([("work", 5), ("assign", 0), ("work", 5), ("maintain", 0), ("delete", 0), ("wait", 3)])
@example([("work", 0), ("maintain", 0), ("wait", 3)])
@example([("undeclare", 0), ("assign", 0), ("change", 1), ("read", 0), ("declare", 0)])
@example([("work", 5), ("assign", 0), ("work", 5), ("stale", 1), ("work", 0)])
@example([("work", 5), ("assign", 0), ("work", 5), ("delete", 0), ("swap", 0), ("work", 5)])
@example([("send", 0), ("boot", 0), ("swap", 0), ("read", 0), ("wiped", 0), ("declare", 0)])
def test_operators_get_no_request_twice_and_none_in_vain(steps: list[Step]) -> None:
    with patch("nodepool.contract.catalog.ZONES", zones_of_metal()):
        story = Operated()
        for step in steps:
            story.take(step)
        story.end_work()
        story.site.settle(100, every=5)
        check_end(story)
        assert find_unwanted(story.site) == []
        assert find_late_answers(story.site) == []
        assert len(story.site.said(MachineAdded)) == 1
