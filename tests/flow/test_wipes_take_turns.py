"""A few real machines of a zone are wiped at a time, in the order of their declarations."""

from collections.abc import Sequence
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.requests import deleted, stay_of
from flow.test_new_real_machines import NAME, boots_of, is_free
from metal import turns
from metal.machine import Machine
from metal.observing import fold_decision
from metal.state import State
from metal.turns import WIPES_MAX, Turns
from nodepool.contract.commands_metal import MaintainMachine, SetMachinePower, VerifyMachine
from nodepool.contract.events import (
    CommandRefused,
    ControllerSilent,
    MachineConditionChanged,
    MachineStateChanged,
    MachineUndeclared,
    MachineWiped,
    PowerRequested,
)
from nodepool.contract.node_states import MachineState
from nodepool.contract.real_machines import Power
from nodepool.engine.world import START
from support.constants import ZONE
from support.examples import tried
from support.real_machines import Server, Site

pytestmark = pytest.mark.usefixtures("zone_of_metal")
RACK = [f"g{number:06}" for number in range(1, WIPES_MAX + 5)]
"""Four machines more than are wiped at a time."""
WAITS = f"it waits for its turn: {WIPES_MAX} machines of a zone are wiped at a time"


def a_new_rack(site: Site, names: Sequence[str] = RACK) -> list[Server]:
    """The servers of a rack that is declared, and read from its last machine to its first one."""
    servers = [site.declare(name, wipes=True) for name in names]
    for server in reversed(servers):
        site.see(server)
    return servers


def wiped_now(site: Site) -> Sequence[str]:
    """The machines whose power is requested for a wipe, in the order of the first request."""
    return list(dict.fromkeys(each.machine for each in site.said(PowerRequested) if each.wipe))


def end_wipe(site: Site, server: Server) -> None:
    """Let the wipe of a machine end well, whose request is stored."""
    unsent = site.unsent()
    unsent.sort(key=lambda request: request.machine != server.name)
    site.send()
    server.go_on()
    site.see(server)
    site.end_wipe(server)


def test_of_a_new_rack_a_few_machines_are_wiped_at_a_time_and_the_others_say_that_they_wait() -> (
    None
):
    # given a new rack, of which the last machine was read first
    site = Site()
    servers = a_new_rack(site)

    # then as many machines are wiped as a zone may have, and the others are off and wait
    assert wiped_now(site) == RACK[:3:-1]
    conditions = [
        (each.machine, each.type, each.message) for each in site.said(MachineConditionChanged)
    ]
    assert conditions == [(name, "WipeWaits", WAITS) for name in RACK[3::-1]]

    # when a wipe ends
    end_wipe(site, servers[-1])

    # then it is the turn of the machine that was declared first
    assert wiped_now(site) == [*RACK[:3:-1], RACK[0]]
    over = site.said(MachineConditionChanged)[-1]
    assert (over.machine, over.type, over.status) == (RACK[0], "WipeWaits", False)

    # and in the end each machine was wiped once, is off, and free
    site.settle(10)
    assert sorted(each.machine for each in site.said(MachineWiped)) == RACK
    assert [site.actions(each) for each in servers] == [["on", "off"]] * len(RACK)
    assert all(is_free(site, name) for name in RACK)
    assert site.world.replay_differs() == []


def test_a_machine_that_comes_back_goes_before_those_that_are_newer() -> None:
    # given a Node, and a rack that is declared later
    site = Site()
    first = site.declare(NAME, wipes=True)
    site.settle(5)
    site.tell(stay_of(NAME))
    site.settle(3)
    servers = [site.declare(name, wipes=True) for name in RACK[1:]]
    for server in servers:
        site.see(server)

    # when its stay ends
    site.tell(deleted(stay_of(NAME)))
    site.run()

    # then it is powered off at once, and is the next one to be wiped
    request = site.said(PowerRequested)[-1]
    assert (request.machine, request.action, request.wipe) == (NAME, "off", 0)
    assert request.reason == "it waits to be wiped"
    site.unsent().insert(0, site.unsent().pop())
    site.send()
    site.see(first)
    end_wipe(site, servers[0])
    request = site.said(PowerRequested)[-1]
    assert (request.machine, request.action, request.wipe) == (NAME, "on", 2)
    site.settle(10)
    assert boots_of(first) == ["wipe", "cluster", "wipe"]
    assert is_free(site)


@pytest.mark.parametrize("what", ["silent", "maintained"])
def test_a_machine_whose_wipe_cannot_go_on_leaves_its_turn_to_another_one(what: str) -> None:
    # given a rack of which all turns are taken
    site = Site()
    servers = a_new_rack(site)
    last = servers[-1]

    # when a machine that is wiped cannot be reached, or must not be touched
    if what == "silent":
        site.tell(ControllerSilent(zone=ZONE, machine=last.name, cause="timed out"))
    else:
        site.tell(MaintainMachine(zone=ZONE, machine=last.name, reason="new fan"))
    site.run()

    # then another one is wiped meanwhile
    assert wiped_now(site)[-1] == RACK[0]
    if what == "maintained":
        site.tell(MaintainMachine(zone=ZONE, machine=last.name, maintenance=False))
    site.see(last)

    # and the first one goes on when it can, with the wipe that had begun
    site.settle(10)
    assert [each.wipe for each in last.sent if each.boot_from] == [1]
    assert all(is_free(site, name) for name in RACK)


@pytest.mark.parametrize(
    ("what", "cause"),
    [
        ("silent", "timed out"),
        ("undeclared", "the inventory does not have it any more"),
        ("unread", "its controller was not read"),
    ],
)
def test_a_machine_whose_wipe_cannot_begin_is_out_of_service_after_the_time_for_a_wipe(
    what: str, cause: str
) -> None:
    # given a Node whose machine cannot be reached, is at another address, or is not declared
    site = Site()
    server = site.declare(NAME, wipes=True, wipe_minutes=30)
    site.settle(5)
    site.tell(stay_of(NAME))
    site.settle(3)
    minutes = 30
    if what == "silent":
        site.tell(ControllerSilent(zone=ZONE, machine=NAME, cause="timed out"))
    elif what == "unread":
        site.declare(NAME, digest="moved", wipes=True, wipe_minutes=30)
    else:
        site.tell(MachineUndeclared(zone=ZONE, machine=NAME))
        minutes = 60

    # when its stay ends, and it cannot be wiped for as long as a wipe may take
    site.tell(deleted(stay_of(NAME)))
    site.wait(minutes * 60 - 1)
    assert site.machine(server).state is MachineState.ZAP
    site.wait(1)

    # then it says so, and nobody counts on it
    (moved,) = site.said(MachineStateChanged)
    assert (moved.state, moved.cause) == (
        MachineState.ZAP_FAIL,
        f"its wipe has failed: it could not begin in time; {cause}",
    )
    assert not is_free(site)

    # and once it is back, it is checked, wiped, and free
    site.declare(NAME, wipes=True, wipe_minutes=30)
    site.see(server)
    site.settle(10)
    assert boots_of(server) == ["wipe", "cluster", "wipe"]
    assert is_free(site)
    assert site.world.replay_differs() == []


def test_the_time_of_a_machine_that_waits_for_its_turn_does_not_run() -> None:
    # given a rack of which all turns are taken, and a machine that waits
    site = Site()
    servers = a_new_rack(site)
    waits = servers[3]

    # when its controller is silent for a moment, and it waits for long
    site.tell(ControllerSilent(zone=ZONE, machine=waits.name, cause="timed out"))
    site.wait(1800)
    site.see(waits)
    site.wait(1799)

    # then its wipe has not failed
    assert site.machine(waits).state is MachineState.ZAP
    assert site.said(MachineStateChanged) == []


@pytest.mark.parametrize("step", range(4))
def test_a_restart_neither_loses_a_turn_nor_gives_one_twice(
    step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a rack with a few turns, whose provider is started again
    monkeypatch.setattr(turns, "WIPES_MAX", 4)
    site, names = Site(), RACK[:8]
    servers = a_new_rack(site, names)
    for number in range(4):
        if number == step:
            site.kill()
            site.settle(4)
            break
        end_wipe(site, servers[-1 - number])

    site.settle(15)

    assert all(is_free(site, name) for name in names)
    for server in servers:
        numbers = [each.number for each in server.sent]
        assert len(numbers) == len(set(numbers))
        assert boots_of(server) == ["wipe"]


def test_the_power_of_a_machine_that_waits_is_not_for_operators() -> None:
    site = Site()
    a_new_rack(site)

    site.tell(SetMachinePower(zone=ZONE, machine=RACK[0], power="on"))
    site.run()

    (refused,) = site.said(CommandRefused)
    assert "the machine waits to be wiped: wait for that" in refused.message


def test_a_wipe_that_an_earlier_release_has_begun_goes_on() -> None:
    waits = Machine(added_type="t", state=MachineState.ZAP, is_unwiped=True)
    request = PowerRequested(
        zone=ZONE, machine=NAME, number=1, action="on", within_s=180, wipe=2, reason="new"
    )

    wiped = fold_decision(waits, request, START)

    assert (wiped.wipe, wiped.wipe_end, wiped.runs_for) == (2, None, (0, 0, 0, 2))
    assert wiped.wipe_due is not None


# Whatever happens in whatever order.

FEW = 2
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["read", "send", "lose", "wiped", "fail", "silence", "maintain", "kill", "wait", "get"]
        ),
        st.integers(0, 4),
    ),
    max_size=40,
)


def take(site: Site, server: Server, step: str, number: int) -> None:
    """Let one thing happen, if it can."""
    match step:
        case "read":
            server.go_on()
            site.see(server)
        case "send" | "lose" if site.unsent():
            site.send(answers=step == "send")
        case "wiped" | "fail" if server.is_wiped:
            site.end_wipe(server, passed=step == "wiped")
        case "silence":
            site.tell(ControllerSilent(zone=ZONE, machine=server.name, cause="timed out"))
        case "maintain":
            is_begun = not site.machine(server).is_maintained
            site.tell(MaintainMachine(zone=ZONE, machine=server.name, maintenance=is_begun))
        case "kill":
            site.kill()
        case "wait":
            site.wait(10 ** (number % 4 + 1))
        case "get" if is_free(site, server.name):
            stay = stay_of(server.name, site.machine(server).assignment + 1)
            site.tell(stay, deleted(stay))
    site.run()


def turns_of(site: Site) -> Turns:
    """The wipes of the zone."""
    state = site.world.state("metal")
    assert isinstance(state, State)
    return state.turns.get(ZONE, Turns())


@tried(30)
@given(STEPS)
def test_turns_are_bounded_and_none_is_lost(steps: list[tuple[str, int]]) -> None:
    with patch.object(turns, "WIPES_MAX", FEW):
        site = Site()
        servers = [site.declare(name, wipes=True) for name in RACK[:5]]
        for step, number in steps:
            before = [site.machine(each).wipe for each in servers]
            take(site, servers[number], step, number)

            # A wipe begins only if there is room; and nobody waits while there is.
            found = turns_of(site)
            has_begun = [site.machine(each).wipe for each in servers] != before
            assert len(found.taken) <= FEW or not has_begun
            assert len(found.taken) >= FEW or not found.waiting

        for server in servers:
            site.tell(MaintainMachine(zone=ZONE, machine=server.name, maintenance=False))
        site.settle(10)
        site.tell(*(VerifyMachine(zone=ZONE, machine=each.name) for each in servers))
        site.settle(70, every=2)
        for server in servers:
            numbers = [each.number for each in server.sent]
            assert len(numbers) == len(set(numbers))
            assert is_free(site, server.name)
            assert server.power is Power.OFF
        assert turns_of(site) == Turns()
        assert site.world.replay_differs() == []
