"""The simulation finds faults in the configurations and the taints that Nodes show."""

from dataclasses import replace
from typing import Any

import pytest

from aggregator.profiles import counted_profiles, profile_of
from nodepool.contract.keys import pool_path
from nodepool.contract.model import NodePoolSpec, Taint
from support.simulation.faults import Plant, violation_of
from support.simulation.profile import IMAGES

PROFILE = replace(IMAGES, steps=3_000)
RESERVED = replace(PROFILE, actions={**PROFILE.actions, "reserve": 30})


def as_booted_first(known: Any, node: Any, _context: Any) -> Any:
    """Return the Node after a reboot as it was booted first."""
    return node, known


def without_kernel(spec: NodePoolSpec) -> str:
    """Return the configuration of a NodePool, whatever its kernel is."""
    image = spec.image and spec.image.model_copy(update={"kernel": None})
    return profile_of(spec.model_copy(update={"image": image}))


def never_fewer(profiles: Any, profile: str, change: int) -> Any:
    """Return the counts of configurations, in which Nodes that are gone still count."""
    return counted_profiles(profiles, profile, max(0, change))


def as_they_are(event: Any) -> tuple[Taint, ...]:
    """Return the taints of a Node in production without the taint of its organisation."""
    return tuple(event.taints)


def always_of_the_owner(template: Any, _standing: Any) -> str:
    """Return the organisation of a Node, whomever the Node is reserved for."""
    return pool_path(template.key)[0]


PLANTS = {
    "a Node keeps its configuration over a reboot": Plant(
        "shows the profile",
        PROFILE,
        functions={"aggregator.changes._booted_again": as_booted_first},
    ),
    "a NodePool shows a configuration without its kernel": Plant(
        "shows the profiles", PROFILE, functions={"aggregator.status.profile_of": without_kernel}
    ),
    "a NodePool counts the configurations of Nodes that are gone": Plant(
        "shows the profiles",
        PROFILE,
        functions={"aggregator.pools.counted_profiles": never_fewer},
        seed=2,
    ),
    "a Node in production lacks the taint of its organisation": Plant(
        "and lacks", PROFILE, functions={"lifecycle.options._add_reservation_taint": as_they_are}
    ),
    "a Node that is not in production is reserved for its organisation": Plant(
        "and reserved for",
        RESERVED,
        functions={"lifecycle.look._find_reserved": always_of_the_owner},
    ),
}


@pytest.mark.parametrize("name", PLANTS)
def test_a_fault_in_what_nodes_show_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant = PLANTS[name]

    assert plant.text in violation_of(plant, monkeypatch)
