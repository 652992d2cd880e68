"""Whatever happens in whatever order, real machines get no request twice and none in vain."""

from unittest.mock import patch

from hypothesis import example, given
from hypothesis import strategies as st

from conformance.requests import deleted, not_registered, registered, stay_of, updated
from nodepool.contract.commands_metal import VerifyMachine
from nodepool.contract.events import (
    ControllerReported,
    ControllerSilent,
    CWNodeAssigned,
    CWNodeDeleted,
    CWNodeRegistrationFailed,
    MachineAdded,
    MachineBooted,
    MachineFailed,
    MachineUndeclared,
    MachineWiped,
    PowerRequested,
    WipeEnded,
)
from nodepool.contract.keys import MachineKey, machine_key
from nodepool.contract.messages import Message, OfMachine, OfNode
from nodepool.contract.model import NodePhase
from nodepool.contract.node_states import MachineState
from nodepool.contract.providers import ProviderHears, ProviderSays
from nodepool.contract.real_machines import Power
from nodepool.placement.machines import TRIAGE, Inventory, MachineChanged
from redfish.program import zones_of_metal
from support.constants import ZONE
from support.examples import tried
from support.providers.monitor import Monitor
from support.real_machines import Server, Site

DEPARTURES = (CWNodeDeleted, CWNodeRegistrationFailed)
Step = tuple[str, int]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "assign",
                "register",
                "reboot",
                "delete",
                "break",
                "send",
                "lose answer",
                "refuse",
                "happen later",
                "never happen",
                "happen now",
                "kill",
                "read",
                "lie",
                "silence",
                "button",
                "wait",
                "boot",
                "wiped",
                "wipe failed",
                "repair",
                "leave",
                "return",
                "rename",
            ]
        ),
        st.integers(0, 5),
    ),
    max_size=40,
)


class Story:
    """A site with one machine and two processes, to which anything may happen.

    The machine has had each of the `names` in the inventory, now the last one. Whatever its name
    was, and whatever stays it had under it, it is new when it gets another name. A stay may go on
    under an earlier name; it is in `left` until it ends.
    """

    serial = "SN1"

    def __init__(self) -> None:
        self.site = Site(replicas=2)
        self.names: list[str] = []
        self.left: list[CWNodeAssigned] = []
        self.begin(Power.OFF)

    def begin(self, power: Power) -> None:
        """Declares the machine under a name that it never had."""
        self.names.append(f"g{len(self.names) + 1:06}")
        self.server = self.site.declare(self.names[-1], power, wipes=True, serial=self.serial)
        self.site.run()
        self.site.see(self.server)
        self.stay: CWNodeAssigned | None = None
        self.stays = self.boots = 0

    @property
    def name(self) -> str:
        """The name of the machine in the inventory."""
        return self.names[-1]

    def take(self, step: Step) -> None:
        """Lets one thing happen, if it can."""
        name, number = step
        site, server, process = self.site, self.server, number % 2
        match name:
            case "send" | "lose answer" | "refuse" | "happen later" | "never happen":
                self._send(name, process)
            case "kill":
                site.kill(process)
            case "read":
                site.see(server)
            case "lie":
                site.see(server, list(Power)[number])
            case "silence":
                site.tell(ControllerSilent(zone=ZONE, machine=self.name, cause="timed out"))
            case "button" | "boot" | "wiped" | "wipe failed" | "happen now":
                self._change_server(name, number)
            case "leave" | "return" | "rename":
                self._declare(name)
            case "wait":
                site.wait(10 ** (number % 4 + 1))
            case _:
                self._say(name, number)
        site.run()

    def _declare(self, name: str) -> None:
        """Lets the inventory have the machine no more, again, or under another name."""
        if name == "return":
            self.site.declare(self.name, wipes=True, serial=self.serial)
            return
        self.site.tell(MachineUndeclared(zone=ZONE, machine=self.name))
        if name == "rename":
            self.left += [self.stay] if self.stay is not None else []
            self.begin(self.server.power)

    def _change_server(self, name: str, number: int) -> None:
        """Lets something happen to the machine itself."""
        site, server = self.site, self.server
        match name:
            case "button":
                server.set_power(is_on=number < 3)
            case "boot":
                server.go_on()
            case "happen now" if server.late:
                server.follow(server.late.pop(0))
            case "wiped" | "wipe failed" if server.is_wiped:
                site.end_wipe(server, passed=name == "wiped")

    def _send(self, name: str, process: int) -> None:
        if not self.site.unsent(process):
            return
        match name:
            case "lose answer":
                self.site.send(process, answers=False)
            case "refuse":
                self.site.send(process, outcome="refused")
            case "happen later":
                self.site.send(process, outcome="unknown", happens="later")
            case "never happen":
                self.site.send(process, outcome="unknown", happens="never")
            case _:
                self.site.send(process)

    def is_free(self) -> bool:
        """Whether the machine is free as services know it: wiped as new, or after its last stay."""
        wiped = [each for each in self.site.said(MachineWiped) if each.machine == self.name]
        return self.stay is None and self.stays in [each.assignment for each in wiped]

    def _say(self, name: str, number: int) -> None:
        """Lets the services say something of the Node; now and then it is assigned too early."""
        site, stay = self.site, self.stay
        is_early = stay is None and not number and self.is_added()
        if name == "assign" and (self.is_free() or is_early):
            self.stays, self.boots = self.stays + 1, 0
            self.stay = stay_of(self.name, self.stays)
            site.tell(self.stay)
        elif name == "register" and stay is not None and self.has_booted():
            site.tell(registered(stay))
        elif name == "reboot" and stay is not None and self.has_booted():
            self.boots += 1
            is_forced = self.boots % 2 == 0
            site.tell(updated(stay, NodePhase.REBOOTING, boot=self.boots, forced=is_forced))
        elif name == "repair":
            site.tell(VerifyMachine(zone=ZONE, machine=self.name))
        elif name in ("delete", "break") and stay is not None:
            site.tell(not_registered(stay) if name == "break" else deleted(stay))
            self.stay = None
        elif name in ("delete", "break") and self.left:
            left = self.left.pop(0)
            site.tell(not_registered(left) if name == "break" else deleted(left))

    def is_added(self) -> bool:
        """Whether services know the machine under its name."""
        return self.name in [each.machine for each in self.site.said(MachineAdded)]

    def has_booted(self) -> bool:
        """Whether the last requested boot of the stay was reported."""
        stay = self.stay
        return stay is not None and any(
            (each.machine, each.assignment, each.boot) == (stay.node, stay.assignment, self.boots)
            for each in self.site.said(MachineBooted)
        )

    def has_failed(self) -> bool:
        """Whether it was reported that the last requested boot of the stay has failed."""
        stay = self.stay
        return stay is not None and any(
            (each.machine, each.assignment, each.boot) == (stay.node, stay.assignment, self.boots)
            for each in self.site.said(MachineFailed)
        )


def find_unwanted(site: Site, name: str) -> list[PowerRequested]:
    """The requests to power on that no stay and no wipe wants, or of a machine not seen off.

    No stay wants a machine to be powered on that was not wiped as new, or after an earlier stay.
    """
    stay, power, unwanted = 0, Power.UNKNOWN, list[PowerRequested]()
    is_unwiped, is_dirty = True, False
    for envelope in site.world.envelopes(
        CWNodeAssigned,
        CWNodeDeleted,
        CWNodeRegistrationFailed,
        ControllerReported,
        MachineWiped,
        PowerRequested,
    ):
        message = envelope.data
        assert isinstance(message, OfMachine | OfNode)
        if message.machine_key != machine_key(ZONE, name):
            continue
        match message:
            case CWNodeAssigned(assignment=assignment):
                stay, is_dirty, is_unwiped = assignment, is_unwiped, True
            case MachineWiped():
                is_unwiped = False
            case CWNodeDeleted() | CWNodeRegistrationFailed():
                stay = 0
            case ControllerReported(power=seen):
                power = seen
            case PowerRequested(action="on") as request:
                is_for_wipe = bool(request.wipe) and not stay and is_unwiped
                is_for_stay = bool(stay) and request.assignment == stay and not is_dirty
                if not (is_for_wipe or is_for_stay) or power is not Power.OFF:
                    unwanted.append(request)
    return unwanted


def find_unwiped(site: Site) -> list[Message]:
    """The events that make a machine free on which something may be that was not wiped.

    All names are those of one machine. It is new at first, and each power-on for a NodePool may
    store something on it. Only a wipe that has passed ends that.
    """
    inventory, is_dirty, unwiped = Inventory(), True, list[Message]()
    kinds = (WipeEnded, PowerRequested, *DEPARTURES, *MachineChanged.__args__, CWNodeAssigned)
    for message in site.world.messages(*kinds):
        before = inventory
        match message:
            case WipeEnded():
                is_dirty = is_dirty and not message.passed
            case PowerRequested():
                is_dirty = is_dirty or message.boot_from == "cluster"
            case CWNodeAssigned(machine_key=key, assignment=assignment):
                inventory = hold(inventory, key, assignment)
            case CWNodeDeleted() | CWNodeRegistrationFailed():
                inventory = inventory.depart(message)
            case _:
                assert isinstance(message, MachineChanged)
                inventory = inventory.fold_change(message)
        if is_dirty and list_free(inventory) - list_free(before):
            unwiped.append(message)
    return unwiped


def find_intrusions(site: Site) -> list[Message]:
    """The events that add or power a machine which has a Node under another name."""
    added, stays, intrusions = set[MachineKey](), set[MachineKey](), list[Message]()
    for message in site.world.messages(MachineAdded, PowerRequested, CWNodeAssigned, *DEPARTURES):
        assert isinstance(message, OfMachine | OfNode)
        key = message.machine_key
        match message:
            case CWNodeAssigned():
                stays |= added & {key}
            case CWNodeDeleted() | CWNodeRegistrationFailed():
                stays -= {key}
            case _:
                added |= {key} if isinstance(message, MachineAdded) else set()
                if stays - {key}:
                    intrusions.append(message)
    return intrusions


def hold(inventory: Inventory, key: MachineKey, assignment: int) -> Inventory:
    """The inventory in which a NodePool has a machine, perhaps too early."""
    machine = inventory.machines[key]
    is_early = machine.holder not in ("", TRIAGE)
    return inventory if is_early else inventory.assign(key, "pool", assignment)


def list_free(inventory: Inventory) -> set[MachineKey]:
    """The machines that the allocator may give to a NodePool."""
    return {key for key, each in inventory.machines.items() if not each.holder}


def find_broken_rules(site: Site) -> list[str]:
    """The rules of providers that were broken."""
    monitor, broken = Monitor("metal"), list[str]()
    for number, envelope in enumerate(site.world.envelopes(*_kinds()), start=1):
        broken += monitor.read(number, number, envelope.source, envelope.data)
    return broken


def _kinds() -> tuple[type[Message], ...]:
    return (*ProviderHears.__args__, *ProviderSays.__args__)


@tried(60)
@given(STEPS)
@example([("assign", 0), ("delete", 0), ("assign", 0), ("break", 0), ("repair", 0), ("read", 0)])
@example([("send", 0), ("boot", 0), ("wiped", 0), ("assign", 0), ("leave", 0), ("rename", 0)])
@example([("wait", 3), ("leave", 0)])
@example([("assign", 0), ("rename", 0), ("send", 0), ("read", 0), ("delete", 0), ("assign", 0)])
def test_no_request_is_sent_twice_or_in_vain_and_in_the_end_the_machine_is_as_desired(
    steps: list[Step],
) -> None:
    with patch("nodepool.contract.catalog.ZONES", zones_of_metal()):
        story = Story()
        for step in steps:
            story.take(step)
        check_story(story)


def check_story(story: Story) -> None:
    """Lets everything go well from now on, and checks the whole story."""
    site = story.site
    story.take(("return", 0))
    site.tell(*map(deleted, story.left))
    site.settle(100, every=5)

    check_end(story)
    assert [find_unwanted(site, name) for name in story.names] == [[] for _ in story.names]
    assert find_unwiped(site) == []
    assert find_intrusions(site) == []
    added = [each.machine for each in site.said(MachineAdded)]
    assert len(added) == len(set(added))
    assert story.name in added


def check_end(story: Story) -> None:
    """Check what holds of each story once everything went well for long: the machine is as desired.

    No request was sent twice, no rule of providers is broken, and a replay leads to the same state.
    """
    site, server = story.site, story.server
    numbers = [each.number for each in server.sent]
    assert len(numbers) == len(set(numbers))
    assert find_broken_rules(site) == []
    if story.stay is None:
        assert server.power is Power.OFF
        assert site.machine(server).state is not MachineState.ZAP
    elif not story.has_failed():
        assert story.has_booted()
        assert is_on_for(server, story)
    assert site.world.replay_differs() == []


def is_on_for(server: Server, story: Story) -> bool:
    """Whether the machine runs, and was powered on for the current stay."""
    machine = story.site.machine(server)
    run = (story.stay.assignment, story.boots, 0, 0) if story.stay is not None else None
    return server.power is Power.ON and machine.runs_for == run
