"""Every provider of machines keeps to its contract: its pure part, over a log in memory.

A provider takes part with a line in `PROVIDERS`; `long/test_provider_processes.py` runs the same
stories with its process on a real server.
"""

from collections.abc import Mapping

import pytest

from conformance.fleet import SILENT_S, FleetMachines
from conformance.memory import MemoryTrial
from conformance.requests import deleted
from conformance.scenarios import STORIES, Story
from conformance.trial import Machines
from fleet.decide import service as fleet
from nodepool.contract import services
from nodepool.contract.commands import AddMachines
from nodepool.contract.events import (
    MachineAdded,
    MachineBooted,
    MachineRepaired,
    MachineStateChanged,
)
from nodepool.contract.node_states import MachineState
from nodepool.service import AnyService

PROVIDERS: Mapping[str, tuple[AnyService, Machines]] = {
    "fleet": (fleet(SILENT_S), FleetMachines()),
}


def test_every_provider_is_on_trial() -> None:
    # The driver of `metal` has a part in each story: test_metal.py plays it.
    assert (*PROVIDERS, "metal") == services.PROVIDERS


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
@pytest.mark.parametrize("name", PROVIDERS)
def test_a_provider_keeps_to_its_contract(name: str, story: Story) -> None:
    service, machines = PROVIDERS[name]
    trial = MemoryTrial(service, machines)

    story(trial)

    assert trial.broken == []
    assert trial.owed() == []
    assert trial.world.replay_differs() == []


def test_the_fleet_takes_a_machine_through_triage_and_back_to_its_vendor() -> None:
    # given a machine that is repaired after a while
    service, machines = PROVIDERS["fleet"]
    trial = MemoryTrial(service, machines)
    trial.tell(
        AddMachines(
            zone=machines.zone, instance_type=machines.instance_type, count=1, repair_seconds=1
        )
    )
    machine = trial.expect(MachineAdded).machine

    # when it comes to triage three times
    for _ in range(2):
        trial.tell(deleted(trial.assign(machine), triage=True))
        trial.expect(MachineStateChanged, machine, state=MachineState.DEBUG)
        trial.expect(MachineRepaired, machine)
    trial.tell(deleted(trial.assign(machine), triage=True))
    trial.expect(MachineStateChanged, machine, state=MachineState.RMA)
    machines.repair(trial, machine)

    # then it has gone from state to state in order, and is free again
    trial.expect(MachineRepaired, machine)
    stay = trial.assign(machine)
    trial.expect(MachineBooted, machine, assignment=stay.assignment)
    assert trial.broken == []
    assert trial.owed() == []
