"""A real machine that is new is wiped before its first stay, whatever its name was before."""

from collections.abc import Sequence

import pytest

from conformance.requests import deleted, not_registered, stay_of
from nodepool.contract.commands_metal import MaintainMachine, SetMachinePower, VerifyMachine
from nodepool.contract.events import (
    CommandRefused,
    CWNodeAssigned,
    CWNodeDeleted,
    MachineAdded,
    MachineBooted,
    MachineConditionChanged,
    MachineFailed,
    MachineRepaired,
    MachineStateChanged,
    MachineUndeclared,
    MachineWiped,
    PowerRequested,
)
from nodepool.contract.keys import machine_key
from nodepool.contract.node_states import MachineState
from nodepool.contract.real_machines import Power
from nodepool.placement.machines import Inventory, MachineChanged
from support.constants import ZONE
from support.real_machines import Server, Site

pytestmark = pytest.mark.usefixtures("zone_of_metal")
NAME, NEXT_NAME = "g000001", "g000002"


def a_new_machine(power: Power = Power.OFF) -> tuple[Site, Server]:
    """A machine that needs wipes, is declared and was read; its first request is stored."""
    site = Site()
    server = site.declare(NAME, power, wipes=True)
    site.see(server)
    return site, server


def boots_of(server: Server) -> Sequence[str]:
    """What a server was powered on from, in order."""
    return [each.boot_from for each in server.sent if each.action == "on"]


def is_free(site: Site, name: str = NAME) -> bool:
    """Whether the allocator may give a machine to a NodePool."""
    inventory = Inventory()
    for event in site.world.messages(CWNodeAssigned, CWNodeDeleted, *MachineChanged.__args__):
        match event:
            case CWNodeAssigned(machine_key=key, assignment=assignment):
                inventory = inventory.assign(key, "pool", assignment)
            case CWNodeDeleted():
                inventory = inventory.depart(event)
            case _:
                assert isinstance(event, MachineChanged)
                inventory = inventory.fold_change(event)
    machine = inventory.machines.get(machine_key(ZONE, name))
    return machine is not None and not machine.holder


def test_a_new_machine_is_wiped_before_it_is_free() -> None:
    # given a machine that the inventory has for the first time
    site, server = a_new_machine()

    # then it is known, and wiped before any NodePool gets it
    (added,) = site.said(MachineAdded)
    assert added.unwiped
    assert not is_free(site)
    (request,) = site.said(PowerRequested)
    assert (request.action, request.boot_from, request.wipe) == ("on", "wipe", 1)
    assert request.reason == "the machine is new, and is wiped before its first stay"

    # when its wipe is confirmed
    site.settle(5)

    # then it is free, and off
    assert [each.assignment for each in site.said(MachineWiped)] == [0]
    assert is_free(site)
    assert site.actions(server) == ["on", "off"]


def test_a_new_machine_that_is_on_loses_its_power_before_it_is_wiped() -> None:
    site, server = a_new_machine(Power.ON)

    site.settle(6)

    assert site.actions(server) == ["off", "on", "off"]
    assert is_free(site)


def test_a_machine_that_is_added_again_under_another_name_is_wiped_before_its_first_stay() -> None:
    # given a machine that has left the inventory in the middle of a stay, so that it is not wiped
    site, server = a_new_machine()
    site.settle(5)
    site.tell(stay_of(NAME))
    site.settle(2)
    site.tell(MachineUndeclared(zone=ZONE, machine=NAME))
    site.settle(2)

    # when it is added under another name
    again = site.declare(NEXT_NAME, server.power, wipes=True)
    site.see(again)

    # then it is off, and wiped, before another organisation gets it
    assert not is_free(site, NEXT_NAME)
    site.settle(5)
    assert boots_of(again) == ["wipe"]
    assert is_free(site, NEXT_NAME)


def rename(site: Site, server: Server, name: str, *, wipes: bool = True) -> Server:
    """The server under another name, which the inventory has for it from now on."""
    site.tell(MachineUndeclared(zone=ZONE, machine=server.name))
    del site.servers[server.name]
    again = site.declare(name, server.power, wipes=wipes, serial="SN1")
    again.runs = server.runs
    site.see(again)
    return again


def a_node() -> tuple[Site, Server]:
    """A machine with the serial number SN1 and a Node."""
    site = Site()
    server = site.declare(NAME, wipes=True, serial="SN1")
    site.settle(5)
    site.tell(stay_of(NAME))
    site.settle(3)
    assert boots_of(server) == ["wipe", "cluster"]
    return site, server


def test_a_machine_that_is_renamed_under_its_node_is_not_touched_before_that_is_gone() -> None:
    # given a machine with a Node
    site, server = a_node()

    # when the inventory has another name for it
    again = rename(site, server, NEXT_NAME)
    site.settle(5)

    # then it goes on as it is, and says what to do
    assert again.sent == []
    assert [each.machine for each in site.said(MachineAdded)] == [NAME]
    condition = site.said(MachineConditionChanged)[-1]
    assert (condition.machine, condition.type) == (NEXT_NAME, "OtherMachine")
    assert condition.message == (
        f"{machine_key(ZONE, NAME)} with this serial number has a Node: drain it first"
    )

    # when its Node is gone
    site.tell(deleted(stay_of(NAME)))
    site.settle(5)

    # then it is added under its new name, wiped, and free
    assert boots_of(again) == ["wipe"]
    assert is_free(site, NEXT_NAME)
    assert site.world.replay_differs() == []


def test_the_power_of_a_machine_that_is_renamed_under_its_node_is_not_for_operators() -> None:
    site, server = a_node()
    again = rename(site, server, NEXT_NAME)

    site.tell(SetMachinePower(zone=ZONE, machine=NEXT_NAME, power="off"))
    site.settle(2)

    (refused,) = site.said(CommandRefused)
    assert "has a Node: drain it first" in refused.message
    assert again.sent == []


def test_a_machine_that_gets_its_name_back_keeps_its_node() -> None:
    # given a machine that is renamed by mistake while it has a Node
    site, server = a_node()
    again = rename(site, server, NEXT_NAME)

    # when it gets its name back
    rename(site, again, NAME)
    site.settle(3)

    # then its Node goes on
    assert site.servers[NAME].sent == []
    assert site.machine(server).stay is not None
    assert not site.machine(server).conditions


def test_a_machine_waits_until_the_inventory_has_it_under_one_name_only() -> None:
    # given a free machine that the inventory has under two names for a moment
    site = Site()
    server = site.declare(NAME, wipes=True, serial="SN1")
    site.settle(5)
    again = site.declare(NEXT_NAME, wipes=True, serial="SN1")
    site.see(again)
    site.see(server)
    assert dict(site.machine(again).conditions) == {
        "OtherMachine": f"{machine_key(ZONE, NAME)} has this serial number too"
    }

    # when it has the machine no more under the first one
    site.tell(MachineUndeclared(zone=ZONE, machine=NAME))
    site.run()

    # then it is added under the other one
    assert [each.machine for each in site.said(MachineAdded)] == [NAME, NEXT_NAME]
    assert not site.machine(again).conditions


@pytest.mark.parametrize("wipes", [True, False])
def test_a_machine_that_was_not_wiped_is_wiped_under_its_next_name_in_any_rack(wipes: bool) -> None:
    # given a machine whose Node is gone, and which is not wiped yet
    site, server = a_node()
    site.tell(deleted(stay_of(NAME)))
    site.run()
    site.unsent().clear()

    # when it gets another name, in a rack with or without wipes
    again = rename(site, server, NEXT_NAME, wipes=wipes)

    # then no NodePool gets it before a wipe is confirmed
    assert not is_free(site, NEXT_NAME)
    site.settle(6)
    assert boots_of(again) == ["wipe"]
    assert is_free(site, NEXT_NAME)


def test_a_machine_does_not_get_an_earlier_name_back_before_it_is_wiped() -> None:
    # given a machine that was wiped, got another name, and a Node under that name
    site, server = a_node()
    site.tell(deleted(stay_of(NAME)))
    site.settle(6)
    again = rename(site, server, NEXT_NAME)
    site.settle(6)
    site.tell(stay_of(NEXT_NAME))
    site.settle(3)

    # when it gets its first name back, and its Node is gone
    first = rename(site, again, NAME)
    site.settle(2)
    site.tell(deleted(stay_of(NEXT_NAME)))
    site.settle(6)

    # then it is free under neither name, and says what to do
    assert not is_free(site)
    assert not is_free(site, NEXT_NAME)
    assert first.sent == []
    assert site.machine(first).conditions["OtherMachine"] == (
        f"{machine_key(ZONE, NEXT_NAME)} with this serial number was not wiped:"
        " give it that name or a new one"
    )

    # and once it is wiped under its last name, it may have the first one
    again = rename(site, first, NEXT_NAME)
    site.tell(VerifyMachine(zone=ZONE, machine=NEXT_NAME))
    site.settle(6)
    assert is_free(site, NEXT_NAME)
    rename(site, again, NAME)
    site.settle(3)
    assert is_free(site)


def test_a_machine_that_comes_back_under_its_own_name_is_not_wiped_again() -> None:
    # given a machine that was wiped after its last stay, and has left the inventory
    site, server = a_new_machine()
    site.settle(5)
    site.tell(MachineUndeclared(zone=ZONE, machine=NAME))
    site.settle(2)

    # when it is declared again
    site.declare(NAME, wipes=True)
    site.settle(3)

    # then it is free without another wipe
    assert boots_of(server) == ["wipe"]
    assert len(site.said(MachineRepaired)) == 1
    assert is_free(site)


def test_another_machine_does_not_get_the_name_of_one_that_was_wiped() -> None:
    # given a free machine with a serial number
    site = Site()
    server = site.declare(NAME, wipes=True, serial="SN1")
    site.see(server)
    site.settle(5)
    assert is_free(site)

    # when the inventory has another machine under its name
    site.declare(NAME, digest="another", wipes=True, serial="SN2")
    site.see(server, digest="another")
    site.run()

    # then that machine is for no NodePool, and the reason says what to do
    (condition,) = site.said(MachineConditionChanged)
    assert condition.type == "OtherType"
    assert condition.message == (
        "the inventory declares it with the serial number SN2, and it was added with SN1:"
        " give it another name"
    )
    assert not is_free(site)
    site.tell(VerifyMachine(zone=ZONE, machine=NAME))
    site.run()
    site.see(server, digest="another")
    assert not is_free(site)

    # and the first machine comes back with its own number, however it is written
    site.declare(NAME, digest="d", wipes=True, serial="sn1")
    site.see(server)
    site.settle(3)
    assert is_free(site)


@pytest.mark.parametrize("is_confirmed_late", [False, True])
def test_a_wipe_of_another_machine_under_its_name_frees_no_machine(
    is_confirmed_late: bool,
) -> None:
    # given a machine that is wiped after its first stay
    site = Site()
    server = site.declare(NAME, wipes=True, serial="SN1")
    site.settle(5)
    site.tell(stay_of(NAME))
    site.settle(2)
    site.tell(deleted(stay_of(NAME)))
    site.run()
    site.send()
    site.see(server)
    site.send()
    server.go_on()
    site.see(server)
    assert boots_of(server) == ["wipe", "cluster", "wipe"]
    requests = len(server.sent)

    # when the inventory has another machine under its name, and the wipe is confirmed
    other = Server(NAME)
    site.declare(NAME, digest="another", wipes=True, serial="SN2")
    site.see(other, digest="another")
    site.end_wipe(server)

    # then no machine is powered, and the wipe does not count, then or when the first one is back
    assert site.unsent() == []
    if is_confirmed_late:
        site.wait(5_000)
    site.declare(NAME, wipes=True, serial="SN1")
    site.see(server)
    site.end_wipe(server)
    assert not is_free(site)
    assert [each.assignment for each in site.said(MachineWiped)] == [0]

    # and the first machine is free once it was wiped again
    site.tell(VerifyMachine(zone=ZONE, machine=NAME))
    site.settle(6)
    assert is_free(site)
    assert [each.boot_from for each in server.sent[requests:]] == ["", "wipe", ""]


def test_operators_cannot_power_another_machine_under_the_name_of_one() -> None:
    # given a machine in maintenance, in whose place another one is declared
    site = Site()
    server = site.declare(NAME, wipes=True, serial="SN1")
    site.settle(5)
    site.tell(MaintainMachine(zone=ZONE, machine=NAME, reason="new fan"))
    site.declare(NAME, digest="another", wipes=True, serial="SN2")
    site.see(server, digest="another")

    # when an operator powers it on
    site.tell(SetMachinePower(zone=ZONE, machine=NAME, power="on"))
    site.run()

    # then that is refused, and the reason says what to do
    (refused,) = site.said(CommandRefused)
    assert "with the serial number SN2, and it was added with SN1" in refused.message
    assert site.unsent() == []


def test_a_machine_that_was_added_before_its_number_was_known_keeps_its_name() -> None:
    # given a machine that an earlier release has declared, without a serial number
    site, server = a_new_machine()
    site.settle(5)

    # when its number is declared, and then another one
    site.declare(NAME, wipes=True, serial="SN1")
    site.settle(2)
    assert is_free(site)
    site.declare(NAME, wipes=True, serial="SN2")
    site.run()

    # then only the other number is that of another machine
    assert not is_free(site)
    assert boots_of(server) == ["wipe"]


def test_a_wipe_counts_once_its_machine_shows_its_own_serial_number() -> None:
    # given a new machine whose controller stops to show a serial number during its wipe
    site, server = a_new_machine()
    site.send()
    server.go_on()
    site.see(server, stranger="its controller shows no serial number, and SN1 is expected")

    # when its wipe ends
    site.end_wipe(server)

    # then it is not touched, and free only once the number is there
    assert not is_free(site)
    assert not site.said(MachineWiped)
    assert site.unsent() == []
    site.see(server)
    assert is_free(site)
    assert boots_of(server) == ["wipe"]


def test_a_new_machine_whose_wipe_fails_is_out_of_service_until_another_wipe_is_confirmed() -> None:
    # given a new machine whose wipe says that it has failed
    site, server = a_new_machine()
    site.send()
    site.end_wipe(server, passed=False, cause="a disk cannot be erased")

    # then it is out of service with the cause
    (failed,) = site.said(MachineStateChanged)
    assert failed.state is MachineState.ZAP_FAIL
    assert "a disk cannot be erased" in failed.cause
    assert not is_free(site)

    # when it is repaired
    site.settle(3)
    site.tell(VerifyMachine(zone=ZONE, machine=NAME))
    site.settle(6)

    # then another wipe frees it
    assert [each.wipe for each in server.sent if each.boot_from == "wipe"] == [1, 2]
    assert is_free(site)


def test_a_new_machine_that_a_nodepool_gets_before_it_is_wiped_does_not_boot() -> None:
    # given a new machine that is being wiped
    site, server = a_new_machine()

    # when a NodePool gets it all the same
    site.tell(stay_of(NAME))
    site.settle(3)

    # then its boot has failed, and it is wiped once it is repaired
    (failed,) = site.said(MachineFailed)
    assert "not wiped" in failed.cause
    assert not site.said(MachineBooted)
    site.tell(not_registered(stay_of(NAME)), VerifyMachine(zone=ZONE, machine=NAME))
    site.settle(6)
    assert "cluster" not in boots_of(server)
    assert [each.assignment for each in site.said(MachineWiped)] == [1]


def test_no_stay_makes_a_machine_clean_that_was_not_wiped_and_needs_no_wipes_from_now_on() -> None:
    # given a machine that was not wiped after its stay, and is in a rack without wipes now
    site, server = a_node()
    site.tell(deleted(stay_of(NAME)))
    site.run()
    site.unsent().clear()
    again = rename(site, server, NEXT_NAME, wipes=False)

    # when NodePools get it too early, one after the other
    for assignment in (1, 2):
        site.tell(stay_of(NEXT_NAME, assignment))
        site.settle(2)
        site.tell(not_registered(stay_of(NEXT_NAME, assignment)))
        site.tell(VerifyMachine(zone=ZONE, machine=NEXT_NAME))
        site.run()
        site.see(again)

    # then it boots for none of them, and is wiped
    site.settle(6)
    assert "cluster" not in boots_of(again)
    assert ["not wiped" in each.cause for each in site.said(MachineFailed)] == [True, True]
    assert [each.assignment for each in site.said(MachineWiped)] == [0, 2]


def test_a_new_machine_on_which_people_work_is_wiped_once_they_have_ended() -> None:
    # given a machine that is in maintenance before its first reading
    site = Site()
    server = site.declare(NAME, wipes=True)
    site.tell(MaintainMachine(zone=ZONE, machine=NAME, reason="new fan"))
    site.settle(2)
    assert server.sent == []

    # when the work has ended
    site.tell(MaintainMachine(zone=ZONE, machine=NAME, maintenance=False))
    site.settle(5)

    # then it is wiped, and free
    assert boots_of(server) == ["wipe"]
    assert is_free(site)


def test_the_power_of_a_new_machine_that_is_wiped_is_not_for_operators() -> None:
    site, _ = a_new_machine()

    site.tell(SetMachinePower(zone=ZONE, machine=NAME, power="off"))
    site.run()

    (refused,) = site.said(CommandRefused)
    assert "the machine is wiped: wait for that" in refused.message


def test_a_new_machine_of_a_rack_without_wipes_is_free_as_it_is() -> None:
    site = Site()
    server = site.declare(NAME)

    site.see(server)

    assert is_free(site)
    assert not site.said(PowerRequested)
