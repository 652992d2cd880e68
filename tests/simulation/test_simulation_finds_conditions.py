"""The simulation finds conditions that do not show what holds, put in on purpose."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest

from aggregator.objects import NodePoolObject
from aggregator.verdicts import Verdict, _judge_nodes
from nodepool.contract.conditions import AtTarget, Condition
from nodepool.contract.progress import progressing
from support.simulation.faults import Plant, violation_of
from support.simulation.profile import CROWDED, SETTINGS

FAILING = replace(
    SETTINGS, steps=3_000, actions={"bug": 60, "scale": 60, "run_pod": 30, "delete": 1}
)
"""Services often fail while NodePools shrink."""
UNLIMITED = replace(CROWDED, steps=2_000, machines=14, actions={"delete_limit": 40, "scale": 20})
"""Limits are often deleted."""


def only_while_deleting(pool: NodePoolObject) -> Iterator[Verdict]:
    """A failed removal shows during a deletion only."""
    known = pool if pool.deleting is not None else replace(pool, removal_error="")
    return _judge_nodes(known)


def stalled_anyway(
    conditions: Mapping[str, Condition], generation: int, *, deleting: bool
) -> Condition | None:
    """A failed check stalls a NodePool although it has all its Nodes."""
    checks = {kind: each for kind, each in conditions.items() if kind != AtTarget.__name__}
    stalled = progressing(checks, generation, deleting=deleting)
    return stalled or progressing(conditions, generation, deleting=deleting)


PLANTS: Mapping[str, Plant] = {
    "a failed removal does not show while the NodePool stays": Plant(
        "the failed decision about Nodes is not shown",
        FAILING,
        (),
        {"aggregator.verdicts._judge_nodes": only_while_deleting},
    ),
    "a NodePool without quota is stalled at its target": Plant(
        "shows ['Stalled'], not []",
        UNLIMITED,
        (),
        {
            "aggregator.verdicts.progressing": stalled_anyway,
            "aggregator.status.progressing": stalled_anyway,
        },
    ),
}
"""What is wrong, and how it is put into the aggregator."""


@pytest.mark.parametrize("name", PLANTS)
def test_a_wrong_condition_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant = PLANTS[name]

    assert plant.text in violation_of(plant, monkeypatch)
