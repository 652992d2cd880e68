"""The simulation finds each fault that is put into the care of silent Nodes on purpose."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from fleet.decide import SERVICE as FLEET
from lifecycle.areas import Areas, find_silent, is_excused
from lifecycle.health import Silence
from lifecycle.node import Node
from lifecycle.node_events import silent
from lifecycle.template import NodeTemplate
from nodepool.contract.events import HeartbeatsStopped, NodeSilent
from nodepool.contract.keys import MachineKey
from support.simulation.faults import Plant, saying, violation_of
from support.simulation.planted import SILENCED

PROFILE = replace(
    SILENCED,
    faults=("boot", "hang"),
    actions={**SILENCED.actions, "fall_silent": 30, "answer_again": 20},
)


def heartbeats_go_on(_state: Any, event: Any) -> bool:
    """Machines whose silence nobody hears."""
    return not isinstance(event, HeartbeatsStopped)


def unconfirmed(silence: Silence, _event: Any) -> Silence:
    """The silence of a Node, which counts as confirmed once the question is put."""
    return silence._replace(is_lasting=True)


def hasty(template: NodeTemplate, node: Node, silence: Silence, _until: datetime) -> NodeSilent:
    """A silence whose time is over as it begins."""
    return silent(template, node, silence, silence.since)


def unsaid(silence: Silence) -> bool:
    """Return whether a silence has not been published yet; a widespread silence never is."""
    return not (silence.is_published or silence.is_lasting or silence.is_excused)


def forgotten(areas: Areas, names: frozenset[str]) -> Iterator[MachineKey]:
    """The Nodes of zones that fall silent, and not those of zones that answer again."""
    return find_silent(areas, names) if is_excused(areas, tuple(names)) else iter(())


PLANTS = {
    "silences that are not heard": Plant(
        "is silent, and is shown as", PROFILE, (saying(FLEET, heartbeats_go_on),)
    ),
    "silences that nobody confirms": Plant(
        "which nobody has confirmed",
        PROFILE,
        functions={"lifecycle.health.Silence.follow": unconfirmed},
    ),
    "silences that are judged too early": Plant(
        "is asked after too short a silence",
        PROFILE,
        functions={"lifecycle.table.silent": hasty},
    ),
    "widespread silences that are not published": Plant(
        "although most of its zone or of its cluster is silent",
        PROFILE,
        functions={"lifecycle.health.Silence.is_new": property(unsaid)},
        seed=8,
    ),
    "zones that are repaired": Plant(
        "are silent", PROFILE, functions={"nodepool.contract.health.BEGINS_AT": 2.0}
    ),
    "Nodes that nobody looks at once their zone answers again": Plant(
        "is silent, and is not cordoned for that",
        PROFILE,
        functions={"lifecycle.known.find_silent": forgotten},
        seed=15,
    ),
}


@pytest.mark.parametrize("name", PLANTS)
def test_a_fault_of_silence_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant = PLANTS[name]

    assert plant.text in violation_of(plant, monkeypatch)
