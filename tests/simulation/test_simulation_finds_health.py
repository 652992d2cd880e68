"""The simulation finds each fault that is put into the care of unhealthy Nodes on purpose."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from allocator.decide import SERVICE as ALLOCATOR
from lifecycle.decide import SERVICE as LIFECYCLE
from lifecycle.health import Health, Plan, make_plan
from lifecycle.node import Node
from lifecycle.node_events import draining
from lifecycle.table import PARTS, Case, publish_answer
from lifecycle.template import NodeTemplate
from nodepool.contract.events import CWDrainNode, CWNodeCordoned, NodeObserved
from nodepool.contract.model import NodePhase
from support.simulation.faults import Plant, hearing, violation_of
from support.simulation.profile import UNHEALTHY

PROFILE = replace(UNHEALTHY, steps=3_000)
VERIFIED = replace(
    PROFILE,
    faults=("boot",),
    verify_s=600,
    actions={"fail": 150, "allow": 0, "ask": 5, "repair_one": 16},
)
"""Nodes have problems while they are verified, and are cordoned only."""
CORDONED_ONLY = replace(PROFILE, actions={"ask": 30, "fail": 40, "allow": 0, "repair_one": 16})
"""Nodes have problems, and reboot only if a command asks for that."""
FORCED = replace(UNHEALTHY, steps=10_000, actions={"ask": 100, "run_pod": 100, "stop_pod": 5})
"""Commands drain Nodes at work."""

WITHOUT_ANSWERS = tuple(part for part in PARTS if part is not publish_answer)
"""The parts of the table but that which says that a machine owes no answer any more."""


def without_pods(_state: Any, message: Any) -> Any:
    """Nodes on which nothing is ever observed to run."""
    if not isinstance(message, NodeObserved):
        return message
    return message.model_copy(update={"pods": ()})


def without_cordons(_state: Any, message: Any) -> Any:
    """Nodes that are never cordoned."""
    return None if isinstance(message, CWNodeCordoned) else message


def always_evicting(health: Health, *, evicts: bool) -> Plan:
    """What is to become of a Node, whatever its NodePool allows."""
    return make_plan(health, evicts=True)


def never(_health: Health) -> None:
    """No moment."""


def unverified(case: Case) -> NodePhase:
    """The phase of a Node that stays, whatever its last verification was."""
    return NodePhase.PRODUCTION if case.plan.is_nothing else NodePhase.CORDONED


def without_force(template: NodeTemplate, node: Node) -> CWDrainNode:
    """Drains that wait for each Pod that blocks, whatever a command asks for."""
    return draining(template, node).model_copy(update={"force": False})


PLANTS = {
    "Pods that are not heard of": Plant(
        "while Pods run on it", PROFILE, (hearing(LIFECYCLE, without_pods),)
    ),
    "NodePools whose setting is not followed": Plant(
        "which its NodePool does not allow",
        PROFILE,
        functions={"lifecycle.look.make_plan": always_evicting},
    ),
    "a verification that is not waited for": Plant(
        "is replaced and has no problem",
        PROFILE,
        functions={"lifecycle.table._RESTART_MAX": {NodePhase.VERIFYING: timedelta(seconds=10)}},
    ),
    "Nodes that are in production unverified": Plant(
        "before it is verified",
        VERIFIED,
        functions={"lifecycle.table._resting_phase": unverified},
        seed=39,
    ),
    "problems that count before their reboot can show that it helped": Plant(
        "its reboot may have cured",
        PROFILE,
        functions={"lifecycle.health.Health.settles_at": property(never)},
    ),
    "cordons for triage before a reboot can show that it helped": Plant(
        "needs triage for a problem that its reboot may have cured",
        CORDONED_ONLY,
        functions={"lifecycle.health.Health.settles_at": property(never)},
    ),
    "forced drains that Pods block": Plant(
        "a command forces its drain",
        FORCED,
        functions={"lifecycle.table.draining": without_force},
        seed=31,
    ),
    "answers that are not published": Plant(
        "deadlines of answers", VERIFIED, functions={"lifecycle.table.PARTS": WITHOUT_ANSWERS}
    ),
    "cordons that are not heard of": Plant(
        "others cost less", PROFILE, (hearing(ALLOCATOR, without_cordons),)
    ),
}


@pytest.mark.parametrize("name", PLANTS)
def test_a_fault_of_health_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant = PLANTS[name]

    assert plant.text in violation_of(plant, monkeypatch)
