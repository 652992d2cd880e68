"""The monitor finds each breach of the contract: for each rule there is a fleet that breaks it."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple, get_args

import pytest

from conformance import scenarios
from conformance.fleet import SILENT_S, FleetMachines
from conformance.memory import MemoryTrial
from conformance.requests import deleted
from conformance.scenarios import Story
from fleet.decide import service
from nodepool.contract import events as on
from nodepool.contract.messages import Message
from nodepool.contract.node_states import MachineState
from nodepool.contract.providers import ProviderDuty, ProviderRule
from nodepool.service import AnyService, Context
from redfish.program import zones_of_metal
from support.providers.monitor import Monitor
from support.simulation.faults import with_events

FLEET = service(SILENT_S)
STRANGER = "gbad000"
"""The name of a machine that was never added."""


class Plant(NamedTuple):
    """A fleet with a fault, and a story that shows the fault."""

    fleet: AnyService
    story: Story


def saying(change: Callable[[Any], Iterable[Message]], *kinds: type[Message]) -> AnyService:
    """The fleet that says what `change` makes of each event of these classes."""
    # `AnyService` does not say of which type the state and the messages of its service are.

    def change_event(_state: Any, event: Any, _context: Context) -> Iterable[Any]:
        return change(event) if isinstance(event, kinds) else (event,)

    def evolve(state: Any, message: Any, context: Context) -> Any:
        is_strange = getattr(message, "machine", "") == STRANGER
        return state if is_strange else FLEET.evolve(state, message, context)

    return with_events(replace(FLEET, evolve=evolve), change_event)


def deaf(*kinds: type[Message]) -> AnyService:
    """The fleet that ignores messages of these classes."""

    def evolve(state: Any, message: Any, context: Context) -> Any:
        return state if isinstance(message, kinds) else FLEET.evolve(state, message, context)

    return replace(FLEET, evolve=evolve)


def twice(event: Any) -> Iterable[Message]:
    """An event that is said once more."""
    return event, event


def with_fields(**fields: object) -> Callable[[Any], Iterable[Message]]:
    """An event with other values."""
    return lambda event: (event.model_copy(update=fields),)


def of_stranger(event: Any) -> Iterable[Message]:
    """An event, and the same of a machine that does not exist."""
    return event, event.model_copy(update={"machine": STRANGER})


def of_next_boot(event: Any) -> Iterable[Message]:
    """A boot that nobody has asked for yet."""
    return (event.model_copy(update={"boot": event.boot + 1}),)


def after_all(event: Any) -> Iterable[Message]:
    """A machine that boots after it has failed to boot."""
    booted = on.MachineBooted(**of_machine(event), assignment=event.assignment, boot=event.boot)
    return event, booted


def of_machine(event: Any) -> Any:
    """The fields that name the machine of an event."""
    return {"zone": event.zone, "machine": event.machine}


def unasked(event: Any) -> Iterable[Message]:
    """A boot with a verification that nobody has asked for."""
    fields = {**of_machine(event), "assignment": event.assignment, "boot": event.boot}
    return event, on.NodeVerified(**fields, passed=True)


def observed(event: Any) -> Iterable[Message]:
    """An event with an observation of the Node."""
    fields = {**of_machine(event), "assignment": event.assignment}
    return event, on.NodeObserved(**fields, unschedulable=False)


def with_next_request(event: Any) -> Iterable[Message]:
    """An answer to another request."""
    return (event.model_copy(update={"request": event.request + 1}),)


def with_next_cordon(event: Any) -> Iterable[Message]:
    """An observation of a cordon that nobody has asked for yet."""
    return (event.model_copy(update={"cordon": event.cordon + 1}),)


def returned_to_vendor(event: Any) -> Iterable[Message]:
    """A machine that goes back to its vendor while it is a Node."""
    return event, on.MachineStateChanged(**of_machine(event), state=MachineState.RMA)


def wiped(event: Any) -> Iterable[Message]:
    """An event, and the wipe of its machine in the middle of a stay."""
    return event, on.MachineWiped(**of_machine(event), assignment=event.assignment)


PLANTS: Mapping[ProviderRule | ProviderDuty, Plant] = {
    "ZoneOfAnotherProvider": Plant(FLEET, scenarios.a_machine_boots_for_its_assignment),
    "MachineUnknown": Plant(
        saying(of_stranger, on.MachineBooted), scenarios.a_machine_boots_for_its_assignment
    ),
    "MachineAddedTwice": Plant(
        saying(twice, on.MachineAdded), scenarios.a_machine_is_added_with_its_type_and_its_zone
    ),
    "MachineUnfit": Plant(
        saying(with_fields(instance_type="gd-9xnone"), on.MachineAdded),
        scenarios.a_machine_is_added_with_its_type_and_its_zone,
    ),
    "BootNotRequested": Plant(
        saying(of_next_boot, on.MachineBooted), scenarios.a_machine_boots_for_its_assignment
    ),
    "BootReportedTwice": Plant(
        saying(twice, on.MachineBooted), scenarios.a_machine_boots_for_its_assignment
    ),
    "FailedMachineBooted": Plant(
        saying(after_all, on.MachineFailed), scenarios.a_reboot_that_fails_names_the_cause
    ),
    "CauseMissing": Plant(
        saying(with_fields(cause=""), on.NodeVerified),
        scenarios.a_verification_that_fails_names_the_cause,
    ),
    "VerificationNotRequested": Plant(
        saying(unasked, on.MachineBooted), scenarios.a_node_is_verified_after_its_boot
    ),
    "NodeVerifiedTwice": Plant(
        saying(twice, on.NodeVerified), scenarios.a_node_is_verified_after_its_boot
    ),
    "NodeUnknown": Plant(
        saying(observed, on.MachineBooted), scenarios.a_machine_boots_for_its_assignment
    ),
    "ReportedBesideAgent": Plant(
        saying(observed, on.MachineBooted), scenarios.an_agent_reports_the_nodes_of_its_cluster
    ),
    "ConditionUnchanged": Plant(
        saying(twice, on.NodeConditionChanged),
        scenarios.a_problem_is_reported_when_it_begins_and_when_it_ends,
    ),
    "AnswerNotRequested": Plant(
        saying(with_next_request, on.NodeConditionChanged),
        scenarios.a_request_for_a_report_is_answered_with_its_number,
    ),
    "SilentNodeReported": Plant(
        saying(observed, on.NodeConditionChanged),
        scenarios.a_lost_machine_is_silent_until_it_answers_again,
    ),
    "MarkNotHeard": Plant(
        saying(with_next_cordon, on.NodeObserved), scenarios.cordons_and_drains_are_observed
    ),
    "RepairNotNeeded": Plant(
        saying(twice, on.MachineRepaired), scenarios.a_lost_machine_goes_to_triage_and_comes_back
    ),
    "StateOutOfOrder": Plant(
        saying(returned_to_vendor, on.MachineBooted), scenarios.a_machine_boots_for_its_assignment
    ),
    "WipeNotRequested": Plant(
        saying(wiped, on.MachineBooted), scenarios.a_machine_is_wiped_when_its_stay_is_over
    ),
    "WipedTwice": Plant(
        saying(twice, on.MachineWiped), scenarios.a_machine_is_wiped_when_its_stay_is_over
    ),
    "WipeNotReported": Plant(
        saying(lambda _: (), on.MachineWiped), scenarios.a_machine_is_wiped_whose_boot_was_not_over
    ),
    "BootNotReported": Plant(deaf(on.NodeUpdated), scenarios.a_reboot_that_fails_names_the_cause),
    "VerificationNotReported": Plant(
        deaf(on.CWNodeRegistered), scenarios.a_node_is_verified_after_its_boot
    ),
    "AnswerMissing": Plant(
        deaf(on.NodeReportRequested), scenarios.a_request_for_a_report_is_answered_with_its_number
    ),
    "MarksNotObserved": Plant(deaf(on.NodeUpdated), scenarios.cordons_and_drains_are_observed),
}


def found(plant: Plant) -> set[str]:
    """The names of all that the monitor finds in the story of a plant, which may break off."""
    trial = MemoryTrial(plant.fleet, FleetMachines())
    with suppress(AssertionError):
        plant.story(trial)
    return {*trial.broken, *(duty for _, duty in trial.owed())}


def test_there_is_a_plant_for_each_rule_and_each_duty() -> None:
    assert set(PLANTS) == {*get_args(ProviderRule), *get_args(ProviderDuty)}


@pytest.mark.parametrize("name", [name for name in PLANTS if name != "ZoneOfAnotherProvider"])
def test_the_monitor_names_the_rule_that_a_provider_breaks(
    name: ProviderRule | ProviderDuty,
) -> None:
    assert name in found(PLANTS[name])


def test_the_monitor_finds_machines_in_a_zone_of_another_provider(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # given a catalog in which the zone belongs to another provider, and a fleet that does not look
    zone = FleetMachines.zone
    monkeypatch.setattr("nodepool.contract.catalog.ZONES", zones_of_metal(zone))
    monkeypatch.setattr("fleet.refusal.provider_fault", lambda _zone, _provider: None)

    # when it adds a machine there
    # then the monitor finds it
    assert found(PLANTS["ZoneOfAnotherProvider"]) == {"ZoneOfAnotherProvider"}


@pytest.mark.parametrize(("cause", "broken"), [(2, ()), (3, ("BootNotRequested",))])
def test_a_report_is_judged_by_what_its_provider_had_read(
    cause: int, broken: tuple[ProviderRule, ...]
) -> None:
    # given a machine whose stay ends while it boots
    trial = MemoryTrial(FLEET, FleetMachines())
    stay = trial.assignment_of("gabc123", "prod", FleetMachines.zone)
    zone, machine, type_ = stay.zone, stay.node, stay.instance_type
    monitor = Monitor("fleet")
    added = on.MachineAdded(zone=zone, machine=machine, instance_type=type_)
    monitor.read(1, 0, "fleet", added)
    monitor.read(2, 0, "allocator", stay)
    monitor.read(3, 0, "lifecycle", deleted(stay))

    # when its provider reports the boot, and had read up to `cause`
    booted = on.MachineBooted(zone=zone, machine=machine, assignment=stay.assignment)

    # then only a provider that had read of the end breaks a rule
    assert monitor.read(4, cause, "fleet", booted) == broken
    assert monitor.read(5, 4, "metal", booted) == ()


@pytest.mark.parametrize("name", PLANTS)
def test_the_monitor_finds_nothing_in_the_same_story_of_a_sound_provider(
    name: ProviderRule | ProviderDuty,
) -> None:
    assert found(Plant(FLEET, PLANTS[name].story)) == set()
