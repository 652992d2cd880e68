"""The simulation finds conditions that do not show what holds, put in on purpose."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest

from aggregator.objects import NodePoolObject
from aggregator.verdicts import Verdict, _judge_nodes
from nodepool.contract.conditions import AtTarget, Condition
from nodepool.contract.progress import progressing
from nodepool.explanation.facts import Check, Facts
from support.simulation.faults import Plant, violation_of
from support.simulation.profile import CROWDED, SETTINGS

FAILING = replace(
    SETTINGS, steps=3_000, actions={"bug": 60, "scale": 60, "run_pod": 30, "delete": 1}
)
"""Services often fail while NodePools shrink."""
ENDING = replace(
    SETTINGS, steps=3_000, actions={"bug": 30, "delete": 60, "run_pod": 60}, bugs=("validator",)
)
"""The validator often fails while NodePools are deleted."""
UNLIMITED = replace(CROWDED, steps=2_000, machines=14, actions={"delete_limit": 40, "scale": 20})
"""Limits are often deleted."""
WORKING = replace(
    UNLIMITED, actions={"delete_limit": 40, "scale": 40, "run_pod": 60, "stop_pod": 2}
)
"""The same, while Nodes are at work."""


def only_while_deleting(pool: NodePoolObject) -> Iterator[Verdict]:
    """A failed removal shows during a deletion only."""
    known = pool if pool.deleting is not None else replace(pool, node_error="")
    return _judge_nodes(known)


def with_end_unheard(pool: NodePoolObject, *_: object) -> NodePoolObject:
    """A deletion that could not be ended does not show."""
    return pool


def stalled_anyway(
    conditions: Mapping[str, Condition], generation: int, *, deleting: bool, is_granted: bool
) -> Condition | None:
    """A failed check stalls a NodePool although it has all its Nodes."""
    checks = {kind: each for kind, each in conditions.items() if kind != AtTarget.__name__}
    stalled = progressing(checks, generation, deleting=deleting, is_granted=False)
    return stalled or progressing(conditions, generation, deleting=deleting, is_granted=is_granted)


def stalled_while_shrinking(
    conditions: Mapping[str, Condition], generation: int, *, deleting: bool, is_granted: bool
) -> Condition | None:
    """A failed check stalls a NodePool although it loses Nodes."""
    shown = progressing(conditions, generation, deleting=deleting, is_granted=is_granted)
    is_over = shown is not None and shown.reason == AtTarget.OVER_TARGET
    if not is_over:
        return shown
    return stalled_anyway(conditions, generation, deleting=deleting, is_granted=is_granted)


def stalled_within_its_grant(
    conditions: Mapping[str, Condition], generation: int, *, deleting: bool, is_granted: bool
) -> Condition | None:
    """A NodePool without quota is stalled although its whole target is granted."""
    del is_granted
    return progressing(conditions, generation, deleting=deleting, is_granted=False)


def lacks_quota(_facts: Facts, _check: Check) -> bool:
    """A NodePool waits for quota up to its grant too."""
    return True


PLANTS: Mapping[str, Plant] = {
    "a failed removal does not show while the NodePool stays": Plant(
        "the failed decision about Nodes is not shown",
        FAILING,
        (),
        {"aggregator.verdicts._judge_nodes": only_while_deleting},
    ),
    "a deletion that could not be ended does not show": Plant(
        "the deletion could not be ended, and NodesRemoved is Complete",
        ENDING,
        (),
        {"aggregator.pools.update_failed": with_end_unheard},
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
    "a NodePool without quota is stalled above its target": Plant(
        "shows ['Stalled'], not ['Reconciling']",
        WORKING,
        (),
        {
            "aggregator.verdicts.progressing": stalled_while_shrinking,
            "aggregator.status.progressing": stalled_while_shrinking,
        },
    ),
    "a NodePool without quota is stalled within its grant": Plant(
        "shows ['Stalled'], not ['Reconciling']",
        UNLIMITED,
        (),
        {
            "aggregator.verdicts.progressing": stalled_within_its_grant,
            "aggregator.status.progressing": stalled_within_its_grant,
        },
    ),
    "a NodePool without quota waits for it up to its grant": Plant(
        "AtTarget is",
        UNLIMITED,
        (),
        {"nodepool.explanation.causes._needs_quota": lacks_quota},
    ),
}
"""What is wrong, and how it is put into the aggregator."""


@pytest.mark.parametrize("name", PLANTS)
def test_a_wrong_condition_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant = PLANTS[name]

    assert plant.text in violation_of(plant, monkeypatch)
