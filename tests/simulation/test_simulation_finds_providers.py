"""The simulation finds each fault that is put into what the fleet reports on purpose."""

from collections.abc import Iterable
from typing import Any

import pytest

from fleet.decide import SERVICE as FLEET
from nodepool.contract.events import MachineBooted, NodeConditionChanged, NodeReportRequested
from nodepool.contract.messages import Message
from nodepool.service import AnyService, Context
from support.simulation.faults import Plant, hearing, violation_of, with_events
from support.simulation.planted import SILENCED


def repeating(kind: type[Message]) -> AnyService:
    """The fleet that says each event of a class twice."""

    def change(_state: Any, event: Any, _context: Context) -> Iterable[Any]:
        return (event, event) if isinstance(event, kind) else (event,)

    return with_events(FLEET, change)


def without_requests(_state: Any, message: Any) -> Any:
    """What the fleet hears, without the requests for reports."""
    return None if isinstance(message, NodeReportRequested) else message


PLANTS = {
    "boots that are reported twice": Plant(
        "fleet breaks BootReportedTwice", SILENCED, (repeating(MachineBooted),)
    ),
    "conditions that are reported without a change": Plant(
        "fleet breaks ConditionUnchanged", SILENCED, (repeating(NodeConditionChanged),)
    ),
    "requests that are not answered": Plant(
        "fleet breaks AnswerMissing", SILENCED, (hearing(FLEET, without_requests),)
    ),
}


@pytest.mark.parametrize("name", PLANTS)
def test_a_fault_of_a_report_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant = PLANTS[name]

    assert plant.text in violation_of(plant, monkeypatch)
