"""The machines of a zone belong to one provider: who is believed, and who is refused."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from fleet.decide import SERVICE as FLEET
from nodepool.contract import catalog
from nodepool.contract.catalog import ZONES, provider_fault, provider_of
from nodepool.contract.commands import AddMachines, BreakMachine
from nodepool.contract.events import CWNodeRegistered, MachineAdded
from nodepool.contract.keys import machine_key
from nodepool.contract.log import covers
from nodepool.contract.messages import Event, wrap
from nodepool.contract.subjects import subject_of, template_of
from nodepool.engine.world import World
from nodepool.placement.machines import Inventory
from nodepool.service import AnyService
from redfish.program import zones_of_metal
from support.constants import H100
from support.services import services
from support.single import SingleService
from support.texts import refusal

OWN, OTHER, UNKNOWN = "US-EAST-02A", "US-EAST-04A", "ATLANTIS-01A"


@pytest.fixture
def metal(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A second provider, which has one zone; all other zones belong to the fleet."""
    with monkeypatch.context() as patch:
        patch.setattr("nodepool.contract.catalog.ZONES", zones_of_metal(OTHER))
        yield


def fresh(*names: str) -> Sequence[AnyService]:
    """The services, which have not found out yet what they read."""
    return [replace(service) for service in services(*names)]


def added(zone: str, machine: str = "gabc123") -> MachineAdded:
    """A machine exists."""
    return MachineAdded(zone=zone, machine=machine, instance_type=H100)


def say(world: World, speaker: str, event: Event) -> None:
    """Publishes an event as a provider does."""
    envelope = wrap(event, id=f"e{len(world.log.entries)}", source=speaker)
    world.publish(subject_of(event, speaker), envelope.encode())
    world.run_until_idle()


def inventory(world: World) -> Inventory:
    """The machines as the allocator knows them."""
    found = world.state("allocator").inventory  # type: ignore[attr-defined]  # A state is any object.
    assert isinstance(found, Inventory)
    return found


# The catalog.


def test_a_zone_belongs_to_the_fleet_if_the_catalog_names_no_other_provider() -> None:
    others = {name for name, zone in ZONES.items() if zone.provider != "fleet"}

    assert others == {"LAB-01A"}
    assert ZONES["LAB-01A"].provider == "metal"
    assert provider_of(OWN) == provider_of(UNKNOWN) == "fleet"


def test_a_zone_of_an_unknown_provider_is_refused_with_its_field() -> None:
    entry = {"region": "R1", "access": "general", "provider": "mettle"}

    with pytest.raises(ValueError, match=r"zones\.R1A\.provider: mettle is no provider; choose"):
        catalog._zone("R1A", entry)


@pytest.mark.usefixtures("metal")
def test_a_provider_without_any_zone_is_told_so() -> None:
    text = provider_fault(OWN, "iron")

    assert text == f"the machines of {OWN} belong to the provider fleet: iron has no zone"


# Who is believed.


@pytest.mark.usefixtures("metal")
@pytest.mark.parametrize(
    ("speaker", "zone", "is_heard"),
    [("fleet", OWN, True), ("metal", OTHER, True), ("fleet", OTHER, False), ("metal", OWN, False)],
)
def test_a_service_believes_the_provider_of_the_zone_alone(
    speaker: str, zone: str, is_heard: bool
) -> None:
    subject = subject_of(added(zone), speaker)

    for service in fresh("capacity", "allocator", "aggregator"):
        assert service.is_input(subject) is is_heard
        assert any(covers(each, subject) for each in service.filters())


def test_the_subject_of_several_providers_leaves_the_speaker_open() -> None:
    assert template_of(MachineAdded) == "np.evt.{speaker}.fleet.{zone}.{machine}.MachineAdded"
    assert template_of(CWNodeRegistered).startswith("np.evt.lifecycle.")


@pytest.mark.usefixtures("metal")
def test_machines_of_each_provider_become_nodes_and_no_machine_of_a_foreign_zone() -> None:
    # given services that hear two providers
    world = World([each for each in fresh() if each.name != "fleet"])

    # when each says that it has machines, also in the zone of the other
    say(world, "fleet", added(OWN, "g000001"))
    say(world, "metal", added(OTHER, "g000002"))
    say(world, "metal", added(OWN, "g000003"))
    say(world, "fleet", added(OTHER, "g000004"))

    # then there are only the machines that their own provider has
    known = {machine_key(OWN, "g000001"), machine_key(OTHER, "g000002")}
    assert set(inventory(world).machines) == known
    assert subject_of(added(OWN), MachineAdded.speaker).startswith("np.evt.fleet.fleet.")


# Who is refused.


@pytest.mark.usefixtures("metal")
def test_the_fleet_adds_no_machine_to_a_zone_of_another_provider() -> None:
    fleet = SingleService(FLEET)

    outputs = fleet.process(AddMachines(zone=OTHER, instance_type=H100, count=1))

    assert refusal(outputs) == (
        f"Invalid zone: the machines of {OTHER} belong to the provider metal: "
        "name a zone of fleet, such as CA-EAST-01A"
    )


@pytest.mark.usefixtures("metal")
def test_a_fault_of_a_machine_of_another_provider_is_refused_with_the_provider() -> None:
    fleet = SingleService(FLEET)

    outputs = fleet.process(BreakMachine(zone=OTHER, machine="gabc123", fault="boot"))

    assert refusal(outputs).startswith("Invalid zone: the machines of")
