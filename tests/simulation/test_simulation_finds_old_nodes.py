"""The simulation finds each fault that services for Nodes and objects once had, put back."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import pytest

from allocator.decide import SERVICE as ALLOCATOR_SERVICE
from allocator.members import Member
from allocator.pool import Left, Pool, Stage, drop_node
from allocator.state import State as AllocatorState
from lifecycle.node import Exit
from lifecycle.table import Case, Steps
from nodepool.contract.conditions import Condition, list_deprecated
from nodepool.contract.events import (
    CWNodeAssigned,
    CWNodePoolNodesRemoved,
    GrantAcknowledged,
    NodePoolDeleting,
    NodePoolValidated,
    NodePreempted,
    PreemptionPending,
)
from nodepool.contract.messages import Message
from nodepool.contract.model import RemovalReason
from nodepool.engine import bounds, step
from nodepool.engine.folded import Folded
from nodepool.placement.racks import Delivery
from nodepool.service import AnyService, Context
from preemption.decide import SERVICE as PREEMPTION
from support.simulation.faults import Plant, hearing, saying, unconcerned, violation_of
from support.simulation.planted import (
    CALM,
    DELETED,
    KEPT,
    LARGE,
    OVERTAKEN,
    PREEMPTED,
    REWRITTEN,
    SHRUNK,
    SILENCED,
    WRONG,
)
from support.simulation.profile import RACKS
from validator import conflict

ALLOCATOR: AnyService = ALLOCATOR_SERVICE


def grant_kept(state: AllocatorState, event: Message) -> bool:
    """A NodePool that is being deleted gives back its grant when its last Node has gone."""
    if not isinstance(event, GrantAcknowledged):
        return True
    pool = state.pools[event.key]
    return pool.stage is not Stage.DELETING or not len(pool.members)


def ended_without_a_word(state: AllocatorState, event: Message) -> bool:
    """A scale-down whose target has risen again ends without saying what was removed."""
    if not isinstance(event, CWNodePoolNodesRemoved) or event.removal != RemovalReason.SCALE_DOWN:
        return True
    pool = state.pools[event.key]
    return pool.target < pool.scaled


def ended_with_nothing(_state: AllocatorState, event: Message) -> bool:
    """A scale-down that is taken back before a Node has left ends without saying so."""
    return not isinstance(event, CWNodePoolNodesRemoved) or event.count > 0 or not event.remaining


def in_part(
    _size: int, goal: int, held: Mapping[str, int], free: Mapping[str, int], *_: object
) -> Iterator[Delivery]:
    """As many machines as are wanted, of whichever racks."""
    missing = goal - sum(held.values())
    for domain in sorted(free):
        count = min(missing, free[domain])
        missing -= count
        yield Delivery(domain, count)


def spared(member: Member) -> Member:
    """A Node that is kept stays, whatever else it was leaving for."""
    return replace(member, removal=None)


def left_uncounted(pool: Pool, member: Member, event: Left) -> Pool:
    """A preempted Node does not count as removed by the scale-down that is under way."""
    if member.removal is RemovalReason.PREEMPTED:
        return replace(pool, members=pool.members.put(event.node, None))
    return drop_node(pool, member, event)


def requested_still(pool: Pool, member: Member, event: Left) -> Pool:
    """What a NodePool removed itself it has requested for ever."""
    return replace(drop_node(pool, member, event), requested=pool.requested)


def continuing_removals() -> AnyService:
    """An allocator in which a deletion goes on with the scale-down that is under way."""

    def evolve(state: AllocatorState, message: Message, context: Context) -> AllocatorState:
        before = state.pools.get(message.key) if isinstance(message, NodePoolDeleting) else None
        after: AllocatorState = ALLOCATOR.evolve(state, message, context)
        if before is None or before.removed is None:
            return after
        pool = replace(after.pools[before.key], removed=before.removed)
        return replace(after, pools=after.pools.set(pool.key, pool))

    return replace(ALLOCATOR, evolve=evolve)


def reporting(change: Callable[[Pool, Pool], str]) -> AnyService:
    """An allocator that takes another fault for reported after a new version of a NodePool.

    change: what is taken for reported, from the NodePool before and after.
    """

    def evolve(state: AllocatorState, message: Message, context: Context) -> AllocatorState:
        before = state.pools.get(message.key) if isinstance(message, NodePoolValidated) else None
        after: AllocatorState = ALLOCATOR.evolve(state, message, context)
        if before is None or before.key not in after.pools:
            return after
        pool = after.pools[before.key]
        pool = replace(pool, reported=change(before, pool))
        return replace(after, pools=after.pools.set(pool.key, pool))

    return replace(ALLOCATOR, evolve=evolve)


def from_the_future(*args: object) -> object:
    """A version that lies behind the command is taken for a new one."""
    field, version, pool, _, *rest = args
    return UNFIT(field, version, pool, 10**12, *rest)


UNFIT: Callable[..., object] = conflict._refuse_stale


def accepted_of_its_source(
    conditions: Mapping[str, Condition], accepted: Condition | None
) -> tuple[Condition, ...]:
    """The transition time of Accepted is that of the condition that it follows now."""
    shown = list_deprecated(conditions, accepted)
    if accepted is None:
        return shown
    source = conditions["Quota" if accepted.reason == "NoQuota" else "Validated"]
    return replace(accepted, since=source.since), *shown[1:]


def no_more_than_fit(
    service: AnyService, folded: Folded[object], key: str, size: bounds.Size, context: Context
) -> tuple[Folded[object], list[Message]]:
    """Fail what is missing for a key and does not fit one step, instead of going on later."""
    assert service.reconciler is not None
    events = service.reconciler.reconcile(folded.state, key, context)
    folded, outputs = step._fold_events(service, folded, events, context)
    assert size.messages + len(outputs) <= bounds.OUTPUTS_MAX, "too many outputs"
    return folded, outputs


def not_requeued(folded: Folded[object], *_: object) -> Folded[object]:
    """What does not fit one step is forgotten."""
    return folded


def unshown(exit: Exit) -> RemovalReason | None:
    """As if each reason to leave showed already."""
    return exit.reason


def nothing(case: Case) -> Steps:
    """No event."""
    yield from ()
    return case.node


PLANTS: Mapping[str, Plant] = {
    "what does not fit one step fails": Plant(
        "cannot process the entry", LARGE, (), {"nodepool.engine.step._missing": no_more_than_fit}
    ),
    "what does not fit one step is forgotten": Plant(
        "has left undone for",
        REWRITTEN,
        (),
        {"nodepool.engine.step._requeue_keys": not_requeued},
        seed=40,
    ),
    "a preemption is forgotten where its Node is kept": Plant(
        "left and", KEPT, (), {"allocator.changes._spare_node": spared}
    ),
    "a preemption spares no other Node": Plant(
        "leaving Nodes at",
        PREEMPTED,
        (unconcerned(ALLOCATOR, PreemptionPending, NodePreempted),),
        seed=4,
    ),
    "a preemption is not counted in a scale-down": Plant(
        "left and", OVERTAKEN, (), {"allocator.state.drop_node": left_uncounted}, seed=60
    ),
    "a deletion keeps the grant to its end": Plant(
        "keeps its grant at", DELETED, (saying(ALLOCATOR, grant_kept),)
    ),
    "a machine that never answers blocks its Node for ever": Plant(
        "is not deleted yet",
        SILENCED,
        (),
        {"lifecycle.table._give_up": nothing},
    ),
    "a wrong setting is warned of with every version": Plant(
        "CWNodeDeliverFail is repeated",
        WRONG,
        (reporting(lambda _before, _after: ""),),
    ),
    "a setting that is wrong again is not warned of": Plant(
        "has no CWNodeDeliverFail", WRONG, (reporting(lambda before, _: before.reported),), seed=1
    ),
    "a scale-down that is taken back ends without a word": Plant(
        "and does not say so", SHRUNK, (saying(ALLOCATOR, ended_without_a_word),)
    ),
    "a scale-down that is taken back before a Node has left never ends": Plant(
        "and does not say so", SHRUNK, (saying(ALLOCATOR, ended_with_nothing),)
    ),
    "what a scale-down removed is not requested again": Plant(
        "were requested", SHRUNK, (), {"allocator.state.drop_node": requested_still}
    ),
    "a deletion goes on with a scale-down": Plant(
        "without CWNodePoolRemoveNodes", DELETED, (continuing_removals(),)
    ),
    "a Node of a deleted NodePool shows its scale-down": Plant(
        "goes with its NodePool and shows",
        DELETED,
        (),
        {"lifecycle.node.Exit.shown": property(unshown)},
        seed=2,
    ),
    "Accepted changed when its source did": Plant(
        "the transition time of Accepted moves",
        WRONG,
        (),
        {"aggregator.status.list_deprecated": accepted_of_its_source},
    ),
    "a Node that a scale-down removed ends as preempted": Plant(
        "was not deleted for its preemption",
        OVERTAKEN,
        (),
        {
            "preemption.state.is_announced": lambda node, _: node.pending_since is not None,
        },
        seed=249,
    ),
    "a Node has two taints of a key": Plant(
        "has the taint",
        replace(WRONG, actions={**CALM, "retaint": 60, "run_pod": 60}),
        (),
        {
            "nodepool.contract.production._MANAGED": frozenset(),
            "nodepool.contract.rules._MANAGED": frozenset(),
        },
        seed=1,
    ),
    "a version of the future is accepted": Plant(
        "is from the future", WRONG, (), {"validator.conflict._refuse_stale": from_the_future}
    ),
    "a booting Node is no spot Node": Plant(
        "is a spot Node:",
        PREEMPTED,
        (hearing(PREEMPTION, lambda _, m: None if isinstance(m, CWNodeAssigned) else m),),
    ),
    "racks are delivered in part": Plant(
        "which are no whole racks",
        replace(RACKS, steps=3_000),
        (),
        {"nodepool.placement.plan.deliveries": in_part},
        seed=3,
    ),
}
"""What is wrong, and how it is put into the services."""


@pytest.mark.parametrize("name", PLANTS)
def test_an_old_fault_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant = PLANTS[name]

    violation = violation_of(plant, monkeypatch)

    assert plant.text in violation
