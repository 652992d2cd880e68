"""What operators see of real machines: their place, their power, and what is wrong with them."""

from collections.abc import Iterator

import pytest

from aggregator.decide import PROJECTION
from aggregator.decide import SERVICE as AGGREGATOR
from aggregator.real_machines import ENTRIES_MAX, TEXT_MAX
from aggregator.state import State
from conformance.requests import deleted, registered, stay_of
from metal.turns import WIPES_MAX
from nodepool.contract.catalog import ZONES
from nodepool.contract.commands_metal import MaintainMachine, SetMachinePower
from nodepool.contract.documents import field, items
from nodepool.contract.events import (
    ControllerSilent,
    MachineAdded,
    MachineUndeclared,
)
from nodepool.contract.metrics import MACHINES, POWER_REQUESTS, REAL_MACHINES
from nodepool.contract.real_machines import Power
from support.constants import H100, ZONE
from support.documents import Document, document_of, documents_of
from support.real_machines import Server, Site

pytestmark = pytest.mark.usefixtures("zone_of_metal")
NAME = "g000001"
KEY = f"{ZONE}/{NAME}"
STAY = stay_of(NAME)


def a_declared_machine() -> tuple[Site, Server]:
    """A machine that is declared, whose controller was not read."""
    site = Site(others=[AGGREGATOR])
    server = site.declare(NAME)
    site.run()
    return site, server


def a_free_machine() -> tuple[Site, Server]:
    """A machine that is in production, and off."""
    site, server = a_declared_machine()
    site.see(server)
    assert len(site.said(MachineAdded)) == 1
    return site, server


def shown(site: Site) -> Document:
    """The machine as operators see it."""
    document = document_of(site.world, "machines", KEY)
    assert document is not None
    return document


def log_of(site: Site) -> list[str]:
    """What happened to the machine lately."""
    return [str(field(each, "text")) for each in items(shown(site), "status", "log")]


def values(site: Site, name: str) -> Iterator[tuple[tuple[str, ...], object]]:
    """The series of a metric, by their labels."""
    state = site.world.state("aggregator")
    assert isinstance(state, State)
    for sample in AGGREGATOR.samples(state):
        if sample.metric.name == name:
            yield sample.labels, sample.value


def keys(site: Site) -> list[str]:
    """The keys of the machines in the read model."""
    state = site.world.state("aggregator")
    assert isinstance(state, State)
    return list(PROJECTION.keys(state, "machines"))


def test_a_machine_that_is_declared_is_shown_before_it_is_in_production() -> None:
    site, server = a_declared_machine()

    waiting, listed = shown(site), keys(site)
    site.see(server)

    assert field(waiting, "status", "state") == "Onboard"
    assert listed == [KEY]
    assert field(waiting, "status", "power") == "Unknown"
    assert field(waiting, "spec", "instanceType") == H100
    assert field(shown(site), "status", "state") == "Free"
    assert field(shown(site), "status", "power") == "Off"
    assert [labels for labels, _ in values(site, MACHINES.name) if "onboard" in labels] == []


def test_a_machine_that_is_kept_out_of_production_says_what_differs() -> None:
    site, server = a_declared_machine()

    site.see(server, stranger="the serial number is A, and B is expected")

    (condition,) = items(shown(site), "status", "conditions")
    assert field(shown(site), "status", "state") == "Onboard"
    assert field(shown(site), "status", "fault") == "OtherMachine"
    assert field(condition, "message") == "the serial number is A, and B is expected"
    assert dict(values(site, MACHINES.name)) == {(ZONE, H100, "onboard", "OtherMachine"): 1}
    conditions = dict(values(site, REAL_MACHINES.name))
    assert conditions[ZONE, H100, "OtherMachine"] == 1
    assert conditions[ZONE, H100, "ControllerSilent"] == 0


def test_a_silent_controller_is_shown_since_when_and_why_until_it_answers() -> None:
    # given a machine
    site, server = a_free_machine()

    # when its controller is silent
    site.tell(ControllerSilent(zone=ZONE, machine=NAME, cause="no answer within 10 s"))
    site.run()

    # then that is a condition of the machine
    (condition,) = items(shown(site), "status", "conditions")
    assert field(condition, "type") == "ControllerSilent"
    assert field(condition, "message") == "no answer within 10 s"
    since = field(condition, "lastTransitionTime")
    site.wait(60)
    site.tell(ControllerSilent(zone=ZONE, machine=NAME, cause="no route to its network"))
    site.run()
    (condition,) = items(shown(site), "status", "conditions")
    assert field(condition, "message") == "no route to its network"
    assert field(condition, "lastTransitionTime") == since

    # and it ends when the controller answers
    site.see(server)
    assert items(shown(site), "status", "conditions") == ()
    assert field(shown(site), "status", "fault") is None
    assert "ControllerSilent is over" in log_of(site)


def test_maintenance_is_shown_with_its_reason() -> None:
    site, _ = a_free_machine()

    site.tell(MaintainMachine(zone=ZONE, machine=NAME, reason="a new cable"))
    site.run()
    maintained = field(shown(site), "status", "maintenance", "reason")
    counted = dict(values(site, REAL_MACHINES.name))
    site.tell(MaintainMachine(zone=ZONE, machine=NAME, maintenance=False))
    site.run()

    assert maintained == "a new cable"
    assert counted[ZONE, H100, "Maintenance"] == 1
    assert field(shown(site), "status", "maintenance") is None


def test_the_log_of_a_machine_has_each_request_and_what_became_of_it() -> None:
    # given a machine on which people work
    site, server = a_free_machine()
    site.tell(MaintainMachine(zone=ZONE, machine=NAME, reason="a new cable"))

    # when an operator powers it on
    site.tell(SetMachinePower(zone=ZONE, machine=NAME, power="on"))
    site.run()
    site.send()
    site.see(server)

    # then its log says so, the last at the end, and the request is counted
    assert field(shown(site), "status", "power") == "On"
    *_, requested, answered, power = log_of(site)
    assert requested.startswith("request 1: on, ")
    assert answered == "request 1 accepted"
    assert power == "power On"
    assert dict(values(site, POWER_REQUESTS.name))[ZONE, "done"] == 1
    assert dict(values(site, POWER_REQUESTS.name))[ZONE, "overdue"] == 0


def test_a_machine_shows_when_it_was_last_wiped() -> None:
    # given a machine that has been a Node, and is wiped
    site = Site(others=[AGGREGATOR])
    server = site.declare(NAME, wipes=True)
    site.see(server)
    site.tell(STAY)
    site.settle(2)
    site.tell(registered(STAY), deleted(STAY))
    site.run()
    assert field(shown(site), "status", "lastWiped") is None

    # when the wipe says that nothing is left
    site.settle(6)

    # then it says since when
    assert field(shown(site), "status", "lastWiped") is not None
    assert "wiped" in log_of(site)


def test_a_machine_that_waits_for_its_wipe_says_so_until_its_turn_comes() -> None:
    # given as many machines as are wiped at a time
    site = Site(others=[AGGREGATOR])
    for number in range(WIPES_MAX):
        site.see(site.declare(f"g1{number:05}", wipes=True))

    # when another one is declared
    site.see(site.declare(NAME, wipes=True))

    # then it says that it waits, and is shown as any machine that is to be wiped
    (condition,) = items(shown(site), "status", "conditions")
    assert field(shown(site), "status", "state") == "Zap"
    assert field(shown(site), "status", "fault") == field(condition, "type") == "WipeWaits"
    text = "it waits for its turn: 64 machines of a zone are wiped at a time"
    assert field(condition, "message") == text
    assert dict(values(site, REAL_MACHINES.name))[ZONE, H100, "WipeWaits"] == 1
    site.settle(5)
    assert field(shown(site), "status", "state") == "Free"
    assert "WipeWaits is over" in log_of(site)


def test_the_log_of_a_machine_is_bounded() -> None:
    site, server = a_free_machine()

    for number in range(3 * ENTRIES_MAX):
        site.see(server, Power.ON if number % 2 else Power.OFF)
    long = "x" * 2 * TEXT_MAX
    site.tell(MaintainMachine(zone=ZONE, machine=NAME, reason=long[:1_000]))
    site.run()

    assert len(log_of(site)) == ENTRIES_MAX
    assert max(map(len, log_of(site))) == TEXT_MAX


def test_a_machine_that_was_never_added_is_gone_with_its_declaration() -> None:
    site, _ = a_declared_machine()

    site.tell(MachineUndeclared(zone=ZONE, machine=NAME))
    site.run()

    assert documents_of(site.world, "machines") == {}
    assert keys(site) == []
    site.declare(NAME)
    site.run()
    assert len(log_of(site)) == 1


def test_a_machine_in_production_stays_when_its_declaration_goes_and_says_so() -> None:
    site, _ = a_free_machine()

    site.tell(MachineUndeclared(zone=ZONE, machine=NAME))
    site.run()

    assert field(shown(site), "status", "declared") is False


def test_nothing_is_shown_of_a_machine_that_is_declared_in_a_zone_of_another_provider(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("nodepool.contract.catalog.ZONES", ZONES)

    site, _ = a_declared_machine()

    assert documents_of(site.world, "machines") == {}
