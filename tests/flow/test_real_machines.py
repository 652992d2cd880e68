"""Each power request to a real machine is sent at most once, whatever fails around it."""

from typing import get_args

import pytest

from conformance.requests import asked, deleted, not_registered, registered, stay_of, updated
from metal.power import find_boot
from nodepool.contract.catalog import ZONES
from nodepool.contract.commands_metal import MaintainMachine, SetMachinePower, VerifyMachine
from nodepool.contract.events import (
    CommandAccepted,
    CommandRefused,
    ControllerSilent,
    MachineAdded,
    MachineBooted,
    MachineCheckRequested,
    MachineConditionChanged,
    MachineDeclared,
    MachineFailed,
    MachineRepaired,
    MachineStateChanged,
    MachineUndeclared,
    MachineWiped,
    NodeConditionChanged,
    NodeVerified,
    PowerOverdue,
    PowerRequested,
)
from nodepool.contract.model import NodePhase
from nodepool.contract.node_states import MachineState
from nodepool.contract.real_machines import Power
from nodepool.engine.snapshot import dump
from support.constants import A100, H100, ORG, ZONE
from support.real_machines import Happens, Server, Site

pytestmark = pytest.mark.usefixtures("zone_of_metal")
NAME = "g000001"
STAY = stay_of(NAME)


def a_free_machine(replicas: int = 1, *, wipes: bool = False) -> tuple[Site, Server]:
    """A machine that is declared, was read, and is off; as new it was wiped if it `wipes`."""
    site = Site(replicas)
    server = site.declare(NAME, wipes=wipes)
    site.run()
    site.see(server)
    if wipes:
        site.settle(4)
        server.sent.clear()
    return site, server


def wiped_after(site: Site) -> list[int]:
    """The stays after which the machine was wiped."""
    return [each.assignment for each in site.said(MachineWiped) if each.assignment]


def a_requested_boot(replicas: int = 1) -> tuple[Site, Server]:
    """A machine that has to be powered on; the request is stored, and not sent."""
    site, server = a_free_machine(replicas)
    site.tell(STAY)
    site.run()
    assert [each.action for each in site.said(PowerRequested)] == ["on"]
    return site, server


def a_node() -> tuple[Site, Server]:
    """A machine that has booted, and is a Node in production."""
    site, server = a_requested_boot()
    site.send()
    server.go_on()
    site.see(server)
    assert len(site.said(MachineBooted)) == 1
    site.tell(registered(STAY))
    site.run()
    return site, server


# A machine comes into production.


def test_a_machine_is_added_once_it_was_read() -> None:
    site = Site()
    server = site.declare(NAME)
    site.run()
    assert not site.said(MachineAdded)

    site.see(server)
    site.see(server)

    assert len(site.said(MachineAdded)) == 1
    assert not site.said(PowerRequested)


def test_a_machine_that_is_not_the_declared_one_is_kept_out_and_never_touched() -> None:
    # given a machine that is on
    site = Site()
    server = site.declare(NAME, Power.ON)

    # when its controller tells another serial number
    site.see(server, stranger="the serial number is A, and B is expected")
    site.wait(3_600)

    # then it says so, and is left alone
    (condition,) = site.said(MachineConditionChanged)
    assert (condition.type, condition.status) == ("OtherMachine", True)
    assert not site.said(MachineAdded)
    assert not site.said(PowerRequested)


def test_a_machine_that_another_one_has_replaced_is_not_touched() -> None:
    # given a Node in whose place another machine is found
    site, server = a_node()
    site.see(server, stranger="the serial number is A, and B is expected")

    # when the Node is rebooted, and deleted
    site.tell(updated(STAY, NodePhase.REBOOTING, boot=1))
    site.wait(600)
    site.tell(deleted(STAY, triage=True))
    site.wait(600)

    # then the other machine goes on, and the reboot has failed with the reason
    assert site.actions(server) == ["on"]
    (failed,) = site.said(MachineFailed)
    assert "B is expected" in failed.cause


@pytest.mark.parametrize("what", ["declared", "shown"])
def test_another_machine_in_the_place_of_that_of_a_node_does_not_speak_for_the_node(
    what: str,
) -> None:
    # given a Node whose machine has a serial number
    site = Site()
    server = site.declare(NAME, serial="SN1")
    site.settle(2)
    site.tell(STAY)
    site.settle(3)
    site.tell(registered(STAY))
    site.see(server)

    # when another machine, which runs, is declared under its name, or found at its address
    if what == "declared":
        site.declare(NAME, digest="another", serial="SN2")
        site.see(server, digest="another")
    else:
        site.see(server, stranger="the serial number is SN2, and SN1 is expected")
    assert site.said(NodeConditionChanged) == []
    site.wait(41)

    # then the Node is silent, and stays so however often the other machine is read
    site.see(
        server,
        digest="another" if what == "declared" else "d",
        stranger="SN2" if what == "shown" else "",
    )
    site.tell(asked(STAY, 1))
    site.run()
    told = [(each.type, each.status, each.request) for each in site.said(NodeConditionChanged)]
    assert told == [("Ready", "Unknown", 0), ("Ready", "Unknown", 1)]

    # and it is Ready again once its own machine is there
    site.declare(NAME, serial="SN1")
    site.see(server)
    assert [each.status for each in site.said(NodeConditionChanged)][2:] == ["True"]
    assert site.actions(server) == ["on"]


def test_a_verification_does_not_judge_another_machine_under_the_name_of_the_node() -> None:
    # given a Node that is verified
    site = Site()
    server = site.declare(NAME, serial="SN1")
    site.settle(2)
    site.tell(STAY)
    site.settle(3)
    site.tell(registered(STAY, NodePhase.VERIFYING))
    site.run()

    # when another machine is declared under its name, which lacks a part
    site.declare(NAME, digest="another", serial="SN2")
    site.see(server, digest="another", unfit=("it has 7 GPUs",))

    # then it has not passed, and the cause is the declaration alone
    (verified,) = site.said(NodeVerified)
    assert not verified.passed
    assert verified.cause == (
        "the inventory declares it with the serial number SN2, and it was added with SN1:"
        " give it another name"
    )


def test_a_reading_of_an_earlier_declaration_is_ignored() -> None:
    # given a machine whose controller is declared with another address
    site, server = a_free_machine()
    site.declare(NAME, digest="other")
    site.see(server, stranger="the serial number is A, and B is expected")
    site.tell(STAY)

    # then only a reading at the new address counts
    site.run()
    assert not site.said(MachineConditionChanged)
    assert not site.said(PowerRequested)
    site.see(server, digest="other")
    assert len(site.said(PowerRequested)) == 1


def test_a_machine_keeps_the_type_with_which_it_was_added() -> None:
    site, _ = a_free_machine()

    site.tell(MachineDeclared(zone=ZONE, machine=NAME, instance_type=A100, digest="d"), STAY)
    site.run()

    (failed,) = site.said(MachineFailed)
    assert A100 in failed.cause
    assert len(site.said(MachineAdded)) == 1


def test_a_machine_in_a_zone_of_another_provider_is_not_taken() -> None:
    site, other = Site(), next(zone for zone in ZONES if zone != ZONE)
    site.declare(NAME)

    site.tell(MachineDeclared(zone=other, machine=NAME, instance_type=H100, digest="d"))
    site.run()

    assert site.machines() == [f"{ZONE}/{NAME}"]


def test_a_free_machine_that_is_on_is_powered_off() -> None:
    site, server = a_free_machine()
    server.set_power(is_on=True)

    site.see(server)
    site.send()
    site.see(server)

    assert site.actions(server) == ["off"]
    assert not site.unsent()


# Between the intention and its effect.


def test_a_machine_that_another_address_stands_for_during_a_boot_has_not_booted() -> None:
    # given a machine whose boot is under way
    site, server = a_requested_boot()
    site.send()

    # when the inventory gives another address for it, where a machine is on
    site.declare(NAME, digest="another")
    site.see(server, Power.ON, digest="another")
    site.wait(60)

    # then that machine has not booted for the NodePool: it is off first
    assert not site.said(MachineBooted)
    assert [each.action for each in site.said(PowerRequested)] == ["on", "off"]


def test_only_the_process_that_stored_a_request_sends_it() -> None:
    # given two processes
    site, server = a_requested_boot(replicas=2)

    # then one of them has the request, and the other one never sends it
    assert sorted(len(site.unsent(process)) for process in range(2)) == [0, 1]
    site.settle(5)
    assert site.actions(server) == ["on"]
    assert len(site.said(MachineBooted)) == 1


def test_a_process_that_ends_before_it_sends_a_request_never_sends_it() -> None:
    # given a process that ends between the intention and the request
    site, server = a_requested_boot()
    site.kill()

    # when the machine stays off until the request is overdue
    site.settle(2)
    assert server.sent == []
    site.wait(600)

    # then nothing is asked of it until a new reading shows that it is off
    assert len(site.said(PowerRequested)) == 1
    site.settle(3)

    # and then another request is stored and sent
    assert [each.number for each in server.sent] == [2]
    assert len(site.said(PowerOverdue)) == 1
    assert len(site.said(MachineBooted)) == 1


def test_a_process_that_ends_after_it_has_sent_a_request_sends_no_other_one() -> None:
    # given a process that ends between the request and its answer
    site, server = a_requested_boot()
    site.send(answers=False)
    site.kill()

    # when the machine is on, which counts once the request is overdue
    site.settle(10)

    # then the boot is reported, and nothing else was sent
    assert site.actions(server) == ["on"]
    assert len(site.said(MachineBooted)) == 1


@pytest.mark.parametrize("happens", get_args(Happens))
def test_a_request_whose_outcome_is_unknown_is_waited_for(happens: Happens) -> None:
    # given a connection that breaks in the middle of a reset
    site, server = a_requested_boot()
    site.send(outcome="unknown", happens=happens)

    # when the machine was powered on, or is powered on a minute later, or never
    site.wait(60)
    for request in server.late:
        server.follow(request)
    site.settle(10)

    # then it was asked again only if it was not powered on
    assert site.actions(server) == (["on", "on"] if happens == "never" else ["on"])
    assert len(site.said(MachineBooted)) == 1


def test_a_request_that_is_refused_is_made_three_times_and_the_boot_has_failed() -> None:
    site, server = a_requested_boot()

    for _ in range(3):
        site.send(outcome="refused")
        site.see(server)
        site.wait(130)

    (failed,) = site.said(MachineFailed)
    assert "3 times" in failed.cause
    site.settle(90)
    assert site.actions(server) == ["on"] * 3
    site.tell(not_registered(STAY))
    site.settle(5)
    assert server.power is Power.OFF


def test_a_reading_from_before_the_answer_proves_nothing() -> None:
    # given a request that is not answered yet
    site, server = a_requested_boot()

    # when a controller says wrongly that the machine is on
    server.runs = True
    site.see(server, Power.ON)

    # then the boot is not over
    assert not site.said(MachineBooted)


def test_a_reading_from_before_the_deadline_proves_nothing() -> None:
    # given a request that nobody has sent, and a controller that is wrong about the power
    site, server = a_requested_boot()
    site.kill()
    server.runs = True
    site.see(server, Power.ON)

    # when the request is overdue
    site.wait(181)
    assert len(site.said(PowerOverdue)) == 1

    # then the old reading does not count, and nothing is done until there is a new one
    site.wait(600)
    assert not site.said(MachineBooted)
    assert len(site.said(PowerRequested)) == 1
    site.see(server)
    assert len(site.said(PowerRequested)) == 2


def test_nothing_is_asked_because_of_a_reading_that_is_late() -> None:
    # given a machine that is powered off after its stay, as a reading shows
    site, server = a_node()
    site.tell(deleted(STAY))
    site.run()
    site.send()
    site.see(server)

    # when a reading comes that began before that
    site.see(server, Power.ON, settled=1)

    # then nothing more is asked of the machine
    assert site.actions(server) == ["on", "off"]
    assert not site.unsent()


def test_a_machine_that_was_powered_on_by_hand_after_a_refusal_boots_anew() -> None:
    # given a request that its controller has refused
    site, server = a_requested_boot()
    site.send(outcome="refused")

    # when somebody presses the button
    server.set_power(is_on=True)
    site.settle(8)

    # then the machine is powered off and on, so that it boots for its cluster
    assert site.actions(server) == ["on", "off", "on"]
    assert len(site.said(MachineBooted)) == 1


def test_a_reboot_is_off_and_then_on() -> None:
    site, server = a_node()

    site.tell(updated(STAY, NodePhase.REBOOTING, boot=1))
    site.settle(5)

    assert site.actions(server) == ["on", "shutdown", "on"]
    assert [each.boot for each in site.said(MachineBooted)] == [0, 1]


def test_a_system_that_does_not_shut_down_loses_its_power() -> None:
    site, server = a_node()

    site.tell(updated(STAY, NodePhase.REBOOTING, boot=1))
    site.run()
    site.send(happens="never")
    site.settle(12)

    assert site.actions(server) == ["on", "shutdown", "off", "on"]


def test_a_stay_that_ends_while_a_request_is_under_way_leaves_the_machine_off() -> None:
    # given a boot whose request is sent, and has its effect later
    site, server = a_requested_boot()
    site.send(outcome="unknown", happens="later")

    # when the NodePool gives the machine back before that
    site.tell(deleted(STAY))
    site.settle(5)
    server.follow(server.late.pop())
    site.settle(5)

    # then it is off again, and no boot was reported
    assert server.power is Power.OFF
    assert site.actions(server) == ["on", "off"]
    assert not site.said(MachineBooted)


def test_a_machine_that_is_on_from_an_earlier_stay_boots_anew() -> None:
    site, server = a_node()

    site.tell(deleted(STAY), stay_of(NAME, 2))
    site.settle(5)

    assert site.actions(server) == ["on", "off", "on"]
    assert server.sent[-1].assignment == 2


@pytest.mark.parametrize("power", [Power.PAUSED, Power.UNKNOWN])
def test_a_machine_in_an_unclear_power_state_is_off_before_it_is_powered_on(power: Power) -> None:
    site, server = a_free_machine()
    site.tell(STAY)
    site.run()
    site.unsent().clear()
    site.wait(181)

    site.see(server, power)
    site.wait(31)
    site.settle(5)

    assert site.actions(server) == ["off", "on"]


@pytest.mark.parametrize("power", [Power.POWERING_ON, Power.POWERING_OFF])
def test_nothing_is_asked_of_a_machine_whose_power_state_changes_by_itself(power: Power) -> None:
    site, server = a_free_machine()
    site.see(server, power)

    site.tell(STAY)
    site.wait(600)

    assert not site.said(PowerRequested)


def test_a_node_that_lost_its_power_is_powered_on_for_its_cluster() -> None:
    site, server = a_node()

    server.set_power(is_on=False)
    site.settle(5)

    assert site.actions(server) == ["on", "on"]
    assert (server.sent[-1].org, server.sent[-1].boot_from) == (ORG, "cluster")
    assert len(site.said(MachineBooted)) == 1


def test_a_controller_that_is_wrong_about_the_power_is_asked_a_few_times_an_hour() -> None:
    # given a free machine whose controller says that it is on, whatever it was asked for
    site, server = a_free_machine()
    for _ in range(55):
        site.see(server, Power.ON)
        while site.unsent():
            site.send()
        site.wait(60)

    assert site.actions(server) == ["off"] * 3
    assert any(each.type == "PowerStuck" for each in site.said(MachineConditionChanged))


# Between two stays.


def a_machine_to_wipe(minutes: int = 60) -> tuple[Site, Server]:
    """A machine whose stay is over, and whose request to power it off is stored."""
    site, server = a_free_machine(wipes=True)
    site.declare(NAME, wipes=True, wipe_minutes=minutes)
    site.tell(STAY)
    site.settle(2)
    site.tell(deleted(STAY))
    site.run()
    return site, server


def test_a_machine_is_off_and_then_wiped_after_its_stay() -> None:
    site, server = a_machine_to_wipe()

    site.settle(6)

    assert site.actions(server) == ["on", "off", "on", "off"]
    assert [each.boot_from for each in server.sent] == ["cluster", "", "wipe", ""]
    assert wiped_after(site) == [1]


def test_a_machine_that_is_to_be_wiped_only_since_it_was_added_is_for_no_other_nodepool() -> None:
    # given a Node whose machine is not wiped after its stay
    site, server = a_node()

    # when the inventory wants it wiped from now on
    site.declare(NAME, wipes=True)
    site.settle(1)

    # then the Node stays, and no other one boots on what it has left
    assert server.power is Power.ON
    assert not site.said(MachineFailed)
    site.tell(deleted(STAY), stay_of(NAME, 2))
    site.settle(2)
    (failed,) = site.said(MachineFailed)
    assert "added as one that is not" in failed.cause
    site.tell(not_registered(stay_of(NAME, 2)), VerifyMachine(zone=ZONE, machine=NAME))
    site.settle(3)
    assert not site.said(MachineRepaired)
    assert "OtherType" in site.machine(server).conditions

    # and when the inventory says again that it is not wiped, it comes back
    site.declare(NAME)
    site.tell(VerifyMachine(zone=ZONE, machine=NAME))
    site.settle(2)
    assert len(site.said(MachineRepaired)) == 1


def test_a_machine_that_was_not_wiped_boots_for_no_nodepool() -> None:
    # given a machine that is being wiped
    site, server = a_machine_to_wipe()
    site.send()
    site.see(server)

    # when a NodePool gets it all the same
    site.tell(stay_of(NAME, 2))
    site.settle(5)

    # then its boot has failed, and it is wiped once it is repaired
    (failed,) = site.said(MachineFailed)
    assert "not wiped" in failed.cause
    assert "cluster" not in [each.boot_from for each in server.sent[1:]]
    assert wiped_after(site) == []
    site.tell(not_registered(stay_of(NAME, 2)), VerifyMachine(zone=ZONE, machine=NAME))
    site.settle(6)
    assert wiped_after(site) == [2]


def test_only_the_wipe_that_a_machine_has_booted_ends_it() -> None:
    # given a machine that is powered off before its wipe
    site, server = a_machine_to_wipe()

    # when its wipe, or another one, says that it is over
    site.end_wipe(server, 2)
    site.send()
    site.see(server)
    site.send()
    site.end_wipe(server, 1)
    site.end_wipe(server, 3)

    # then the machine is not free until its own wipe says so
    assert wiped_after(site) == []
    site.end_wipe(server, 2)
    assert wiped_after(site) == [1]


def test_the_wipe_of_a_machine_says_nothing_of_another_one_that_has_got_its_name() -> None:
    # given a machine that has booted its wipe
    site, server = a_machine_to_wipe()
    site.send()
    site.see(server)
    site.send()

    # when the inventory has another machine under its name, and the first one is wiped
    site.declare(NAME, digest="another", wipes=True)
    site.end_wipe(server, 2)

    # then the other one is wiped before it is free
    assert wiped_after(site) == []
    site.see(server, digest="another")
    site.send()
    site.see(server, digest="another")
    assert site.send().boot_from == "wipe"
    site.end_wipe(server)
    assert wiped_after(site) == [1]


@pytest.mark.parametrize("step", range(6))
def test_a_wipe_is_neither_lost_nor_reported_twice_if_the_process_ends(step: int) -> None:
    # given a process that ends before one of the steps of a wipe
    site, server = a_machine_to_wipe()
    steps = ("send", "see", "send", "run", "see", "end")
    for number, name in enumerate(steps):
        if number == step:
            site.kill()
        if name == "send" and site.unsent():
            site.send()
        elif name == "see":
            site.see(server)
        elif name == "run":
            server.go_on()

    site.settle(12)

    assert wiped_after(site) == [1]
    assert server.power is Power.OFF


def test_a_wipe_that_fails_is_done_again_after_a_repair() -> None:
    # given a wipe that says that it has failed
    site, server = a_machine_to_wipe()
    site.send()
    site.see(server)
    site.send()
    site.end_wipe(server, passed=False, cause="a disk cannot be erased")

    # then the machine is out of service with the cause, and off
    (failed,) = site.said(MachineStateChanged)
    assert failed.state is MachineState.ZAP_FAIL
    assert "a disk cannot be erased" in failed.cause
    site.see(server)
    site.send()
    site.see(server)
    assert server.power is Power.OFF

    # when it is repaired
    site.tell(VerifyMachine(zone=ZONE, machine=NAME))
    site.settle(6)

    # then another wipe is done
    assert [each.wipe for each in server.sent if each.boot_from == "wipe"] == [2, 3]
    assert len(site.said(MachineRepaired)) == 1
    assert wiped_after(site) == [1]


def test_only_a_boot_that_is_wanted_gets_what_it_needs() -> None:
    # given a machine that is assigned, and not yet powered on
    site, server = a_free_machine(wipes=True)
    site.tell(STAY)
    assert find_boot(site.machine(server)) == ""

    # when it is powered on for its cluster, which ends with its stay
    site.run()
    assert find_boot(site.machine(server)) == "cluster"
    site.settle(2)
    assert find_boot(site.machine(server)) == "cluster"
    site.tell(deleted(STAY))
    site.run()
    assert find_boot(site.machine(server)) == ""

    # then a wipe is wanted from its request to its end
    site.send()
    site.see(server)
    assert find_boot(site.machine(server)) == "wipe"
    site.send()
    site.end_wipe(server)
    assert find_boot(site.machine(server)) == ""


def test_a_boot_that_was_refused_gets_nothing() -> None:
    site, server = a_free_machine()
    site.tell(STAY)
    site.run()

    site.send(outcome="refused")

    assert find_boot(site.machine(server)) == ""


def test_a_boot_that_has_failed_gets_nothing_any_more() -> None:
    # given a machine on which no system ever runs
    site, server = a_free_machine()
    site.tell(STAY)
    site.run()
    site.send()
    site.see(server)
    assert find_boot(site.machine(server)) == "cluster"

    # when its boot has failed
    site.wait(26 * 60)

    assert len(site.said(MachineFailed)) == 1
    assert find_boot(site.machine(server)) == ""


@pytest.mark.parametrize("minutes", [20, 60, 300])
def test_a_wipe_has_the_minutes_with_which_its_machine_is_declared(minutes: int) -> None:
    # given a wipe that never ends
    site, server = a_machine_to_wipe(minutes)
    site.send()
    site.see(server)
    site.send()
    server.go_on()
    site.see(server)

    # when other minutes are declared, then these are for the next wipe
    site.declare(NAME, wipes=True, wipe_minutes=1)
    site.wait(minutes * 60 - 30)
    assert not site.said(MachineStateChanged)
    site.wait(60)
    (failed,) = site.said(MachineStateChanged)
    assert failed.state is MachineState.ZAP_FAIL
    assert f"not ended in {minutes} minutes" in failed.cause


@pytest.mark.parametrize("last", ["refused", "looked at"])
def test_a_wipe_fails_in_time_although_its_controller_falls_silent(last: str) -> None:
    # given a wipe whose controller falls silent after its last request
    site, server = a_machine_to_wipe()
    site.send()
    site.see(server)
    site.send(outcome="refused" if last == "refused" else "done")
    if last == "looked at":
        site.see(server)
        site.tell(VerifyMachine(zone=ZONE, machine=NAME))
    site.tell(ControllerSilent(zone=ZONE, machine=NAME, cause="timed out"))

    # when its time is over
    site.wait(3_600)

    # then it has failed
    (failed,) = site.said(MachineStateChanged)
    assert failed.state is MachineState.ZAP_FAIL
    assert "timed out" in failed.cause


# Controllers that do not answer, and machines that are gone.


def test_a_silent_controller_is_a_condition_of_its_machine() -> None:
    # given a machine whose controller is silent when it has to boot, and another one
    site, server = a_free_machine()
    other = site.declare("g000002")
    site.see(other)
    site.tell(ControllerSilent(zone=ZONE, machine=NAME, cause="timed out"), STAY)
    site.run()

    # then nothing is asked of it, and after a while its boot has failed, with this cause
    assert not site.said(PowerRequested)
    site.wait(26 * 60)
    (failed,) = site.said(MachineFailed)
    assert "timed out" in failed.cause
    assert len(site.said(MachineConditionChanged)) == 1

    # when the controller answers again, the condition ends, and nobody wants the machine any more
    site.see(server)
    assert [each.status for each in site.said(MachineConditionChanged)] == [True, False]
    assert not site.said(PowerRequested)


def test_a_machine_that_is_not_declared_any_more_boots_for_nobody() -> None:
    site, _ = a_free_machine()

    site.tell(MachineUndeclared(zone=ZONE, machine=NAME), STAY)
    site.run()

    assert len(site.said(MachineFailed)) == 1
    assert not site.said(PowerRequested)


# A free machine is taken out of service before a NodePool gets it.


@pytest.mark.parametrize("what", ["silent", "unfit", "undeclared", "maintained"])
def test_a_free_machine_with_a_problem_is_taken_out_and_comes_back_after_a_check(
    what: str,
) -> None:
    # given a free machine
    site, server = a_free_machine()

    # when something is wrong with it
    if what == "silent":
        site.tell(ControllerSilent(zone=ZONE, machine=NAME, cause="timed out"))
    elif what == "undeclared":
        site.tell(MachineUndeclared(zone=ZONE, machine=NAME))
    elif what == "maintained":
        site.tell(MaintainMachine(zone=ZONE, machine=NAME, reason="new fan"))
    else:
        site.see(server, unfit=("it has 7 GPUs",))
    site.run()

    # then it is out of service, which names the cause
    (out, *_) = site.said(MachineStateChanged)
    causes = {
        "silent": "timed out",
        "unfit": "7 GPUs",
        "undeclared": "the inventory does not have it any more",
        "maintained": "it is in maintenance: new fan",
    }
    assert (out.state, out.assignment) == (MachineState.TRIAGE, 0)
    assert causes[what] in out.cause
    site.wait(600)
    assert not site.said(MachineRepaired)

    # when that has ended
    if what == "undeclared":
        site.declare(NAME)
    elif what == "maintained":
        site.tell(MaintainMachine(zone=ZONE, machine=NAME, maintenance=False))
    site.see(server)
    site.settle(3)

    # then one check brings it back, and its power was never touched
    assert len(site.said(MachineCheckRequested)) == 1
    assert len(site.said(MachineRepaired)) == 1
    assert not site.said(PowerRequested)


def test_a_machine_that_is_assigned_while_it_is_taken_out_fails_and_waits_for_people() -> None:
    # given a machine that was taken out when the allocator had just assigned it
    site, server = a_free_machine()
    site.see(server, unfit=("it has 7 GPUs",))
    site.tell(STAY)
    site.run()

    # then its boot fails with the reason
    (failed,) = site.said(MachineFailed)
    assert "7 GPUs" in failed.cause

    # when it is in triage for that, and nothing is wrong any more
    site.tell(not_registered(STAY))
    site.run()
    site.see(server)
    site.settle(3)

    # then it stays there until people have it checked
    assert not site.said(MachineRepaired)
    assert not site.said(PowerRequested)


# What operators do.


def test_the_power_of_a_machine_in_service_is_not_for_operators() -> None:
    site, _ = a_free_machine()

    site.tell(SetMachinePower(zone=ZONE, machine=NAME, power="on"))
    site.run()

    (refused,) = site.said(CommandRefused)
    assert refused.reason == "Conflict"
    assert not site.said(PowerRequested)


def test_an_operator_resets_a_machine_in_maintenance_which_boots_for_no_nodepool() -> None:
    site, server = a_free_machine()
    site.tell(
        MaintainMachine(zone=ZONE, machine=NAME, reason="new fan"),
        SetMachinePower(zone=ZONE, machine=NAME, power="on"),
    )
    site.settle(3)
    site.tell(SetMachinePower(zone=ZONE, machine=NAME, power="reset"))
    site.settle(3)
    assert site.actions(server) == ["on", "off", "on"]

    site.tell(STAY)
    site.run()

    (failed,) = site.said(MachineFailed)
    assert "new fan" in failed.cause
    site.tell(not_registered(STAY), MaintainMachine(zone=ZONE, machine=NAME, maintenance=False))
    site.settle(3)
    assert server.power is Power.OFF


def test_a_machine_in_maintenance_keeps_its_power_when_its_stay_ends_badly() -> None:
    site, server = a_node()
    site.tell(MaintainMachine(zone=ZONE, machine=NAME), deleted(STAY, triage=True))
    site.settle(3)
    assert site.actions(server) == ["on"]

    site.tell(MaintainMachine(zone=ZONE, machine=NAME, maintenance=False))
    site.settle(3)

    assert site.actions(server) == ["on", "off"]


def test_a_machine_in_maintenance_keeps_its_power_when_its_wipe_has_had_its_hour() -> None:
    # given a machine on which people work, before its stay ends
    site, server = a_machine_to_wipe()
    site.tell(MaintainMachine(zone=ZONE, machine=NAME))
    site.settle(2)
    site.tell(SetMachinePower(zone=ZONE, machine=NAME, power="on"))
    site.settle(2)
    assert server.power is Power.ON

    site.settle(65)

    (failed,) = site.said(MachineStateChanged)
    assert failed.state is MachineState.ZAP_FAIL
    assert server.power is Power.ON


def test_a_machine_out_of_service_comes_back_when_a_check_finds_nothing_wrong() -> None:
    site, server = a_node()
    site.tell(deleted(STAY, triage=True), MaintainMachine(zone=ZONE, machine=NAME))
    site.settle(3)
    (moved,) = site.said(MachineStateChanged)
    assert moved.state is MachineState.DEBUG
    site.tell(MaintainMachine(zone=ZONE, machine=NAME, maintenance=False))
    site.settle(3)
    assert server.power is Power.OFF
    assert not site.said(MachineRepaired)

    site.tell(*[VerifyMachine(zone=ZONE, machine=NAME)] * 2)
    site.settle(2)

    assert len(site.said(MachineCheckRequested)) == 1
    assert len(site.said(MachineRepaired)) == 1
    assert len(site.said(CommandAccepted)) == 4


def test_a_machine_out_of_service_that_the_inventory_has_again_is_powered_off() -> None:
    # given a machine whose wipe has failed, and which the inventory does not have any more
    site, server = a_machine_to_wipe()
    site.unsent().clear()
    site.wait(4_000)
    site.settle(2)
    assert server.power is Power.OFF
    site.tell(MachineUndeclared(zone=ZONE, machine=NAME))
    site.run()
    server.set_power(is_on=True)

    # when it is declared again
    site.declare(NAME, wipes=True)
    site.settle(5)

    # then it is powered off, as it was to be before
    assert server.power is Power.OFF
    assert not site.machine(server).is_in_service


def test_a_restart_at_any_moment_changes_nothing() -> None:
    # given a machine that was reset, by a process that is ended after each step
    site, server = a_requested_boot()
    site.send()
    site.kill()
    server.go_on()
    site.see(server)
    site.kill()
    site.tell(registered(STAY), updated(STAY, NodePhase.REBOOTING, boot=1))
    site.run()
    site.send()
    site.kill()
    site.settle(5)

    # then each request was sent once, and a replay gives the same state
    assert site.actions(server) == ["on", "shutdown", "on"]
    assert site.world.replay_differs() == []
    assert list(dump(site.world.hosts[0].replica.safe))
