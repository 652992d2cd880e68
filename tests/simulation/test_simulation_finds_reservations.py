"""The simulation finds faults about Nodes that are reserved for the control plane."""

from dataclasses import replace
from typing import Any

import pytest

from nodepool.contract.events import NodeReservationChanged
from quota.decide import SERVICE as QUOTA
from quota.pool import Pool
from support.simulation.faults import Plant, hearing, violation_of
from support.simulation.profile import CROWDED

RESERVED = replace(
    CROWDED,
    steps=3_000,
    actions={**CROWDED.actions, "reserve": 60, "change_limit": 30, "bug": 0, "run_pod": 1},
)
"""Nodes are often reserved for the control plane, and limits often change."""


def without_reservations(_state: Any, message: Any) -> Any:  # Of any service.
    """Return the message, unless the message changes what a Node is reserved for."""
    return None if isinstance(message, NodeReservationChanged) else message


def test_a_reserved_node_that_counts_against_the_limit_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    service = hearing(QUOTA, without_reservations)
    plant = Plant("releases all but", RESERVED, (service,), seed=2)

    violation = violation_of(plant, monkeypatch)

    assert plant.text in violation


def test_a_grant_that_rises_for_a_node_that_comes_back_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def with_held(pool: Pool, held: int) -> Pool:
        return replace(pool, held=held)

    instead = {"quota.pool.Pool.with_held": with_held}
    plant = Plant("and has to be Over", RESERVED, functions=instead, seed=2)

    violation = violation_of(plant, monkeypatch)

    assert plant.text in violation
