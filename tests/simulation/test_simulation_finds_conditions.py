"""The simulation finds conditions that do not show what holds, put in on purpose."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest

from aggregator.objects import NodePoolObject
from aggregator.verdicts import Verdict, _judge_nodes
from nodepool.contract.conditions import AtTarget, Condition, Quota
from nodepool.contract.progress import progressing
from nodepool.explanation.causes import _needs_quota
from nodepool.explanation.facts import Check, Facts
from support.simulation.faults import Plant, violation_of
from support.simulation.profile import CROWDED, SETTINGS, SILENT, UNHEALTHY

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
LOWERED = replace(
    SILENT,
    steps=2_000,
    machines=5,
    limits=(0, 9),
    targets=(2, 3),
    faults=("boot", "registration"),
    actions={
        **UNHEALTHY.actions,
        "fail": 60,
        "ask": 10,
        "change_limit": 40,
        "relabel": 40,
        "apply": 10,
        "scale": 4,
        "repair_one": 1,
        "add": 0,
        "bug": 0,
        "delete": 1,
        "preempt": 1,
        "run_pod": 2,
        "stop_pod": 20,
    },
)
"""Limits often fall below what is granted, and lost Nodes are not replaced."""


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


def lacks_a_higher_limit(facts: Facts, check: Check) -> bool:
    """A NodePool waits for quota up to its grant too, if there is a limit."""
    return check.reason == Quota.OVER or _needs_quota(facts, check)


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
    "a NodePool above its limit waits for quota up to its grant": Plant(
        "Quota is Over",
        LOWERED,
        (),
        {"nodepool.explanation.causes._needs_quota": lacks_a_higher_limit},
    ),
}
"""What is wrong, and how it is put into the aggregator."""


@pytest.mark.parametrize("name", PLANTS)
def test_a_wrong_condition_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant = PLANTS[name]

    assert plant.text in violation_of(plant, monkeypatch)
