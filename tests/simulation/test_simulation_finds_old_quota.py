"""The simulation finds each fault that quota and capacity once had, put back into them."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest

from aggregator.decide import SERVICE as AGGREGATOR_SERVICE
from aggregator.objects import QuotaObject
from aggregator.state import State as AggregatorState
from capacity.decide import SERVICE as CAPACITY_SERVICE
from capacity.pool import Pool as CapacityPool
from capacity.pool import Share
from capacity.state import State as CapacityState
from nodepool.contract.commands import SetQuota
from nodepool.contract.conditions import Quota, Validated
from nodepool.contract.events import (
    CapacityChecked,
    CapacityCheckFailed,
    CWNodePoolQuotaCheckFailed,
    CWOverQuota,
    NodePoolDeleting,
    NodePoolValidated,
    QuotaChecked,
    QuotaCheckFailed,
)
from nodepool.contract.keys import PoolKey, ledger_key
from nodepool.contract.messages import Message, pool_fields
from nodepool.service import AnyService, Context
from quota.checks import Check
from quota.decide import SERVICE as QUOTA_SERVICE
from quota.ledger import Ledger
from quota.pool import Pool
from quota.state import State as QuotaState
from quota.verdict import _over, verdict
from support.simulation.faults import Plant, hearing, unconcerned, violation_of
from support.simulation.profile import CROWDED, FAILING, SETTINGS, SPOT

QUOTA: AnyService = QUOTA_SERVICE
CAPACITY: AnyService = CAPACITY_SERVICE
AGGREGATOR: AnyService = AGGREGATOR_SERVICE
MACHINE_FAULTS = ("boot",)
BUSY = replace(CROWDED, steps=3_000, faults=MACHINE_FAULTS)
LINE = replace(BUSY, actions={**BUSY.actions, "line_up": 60})
SHORT = replace(
    BUSY, machines=3, limits=(9, 12), actions={"break_one": 40, "repair_one": 10, "scale": 10}
)
WRONG = replace(SETTINGS, steps=3_000, faults=MACHINE_FAULTS)
BROKEN = replace(
    FAILING,
    steps=3_000,
    faults=MACHINE_FAULTS,
    actions={"bug": 14, "apply": 40, "scale": 40, "run_pod": 4, "stop_pod": 4},
)


def keeping_ledgers() -> AnyService:
    """Quota, which keeps a ledger for each instance type that it hears of."""

    def evolve(state: QuotaState, message: Message, context: Context) -> QuotaState:
        state = QUOTA.evolve(state, message, context)
        if isinstance(message, NodePoolValidated):
            key = ledger_key(message.org, message.zone, message.spec.instance_type)
            if key not in state.ledgers:
                return replace(state, ledgers=state.ledgers.set(key, Ledger()))
        return state

    return replace(QUOTA, evolve=evolve)


def showing_ledgers() -> AnyService:
    """The aggregator, which shows a limit for each instance type that it hears of."""

    def evolve(state: AggregatorState, message: Message, context: Context) -> AggregatorState:
        state = AGGREGATOR.evolve(state, message, context)
        if isinstance(message, NodePoolValidated):
            org, zone, kind = message.org, message.zone, message.spec.instance_type
            key = ledger_key(org, zone, kind)
            quotas = state.read_model.quotas
            if key not in quotas:
                item = QuotaObject(org, zone, kind, None, 0, context.position)
                model = replace(state.read_model, quotas=quotas.set(key, item))
                return replace(state, read_model=model)
        return state

    return replace(AGGREGATOR, evolve=evolve)


def keeping_invalid_pools() -> AnyService:
    """Capacity, which knows NodePools that were never valid."""

    def evolve(state: CapacityState, message: Message, context: Context) -> CapacityState:
        if isinstance(message, NodePoolValidated):
            valid = message.model_copy(update={"reason": Validated.VALID})
            state = CAPACITY.evolve(state, valid, context)
        after: CapacityState = CAPACITY.evolve(state, message, context)
        return after

    return replace(CAPACITY, evolve=evolve)


def nothing_over_quota(state: CapacityState, message: Message) -> Message:
    """While Quota is Over, a NodePool wants nothing more than it has."""
    if isinstance(message, QuotaChecked) and message.reason is not Quota.UNDER:
        pool = state.pools.get(message.key)
        return message.model_copy(update={"granted": pool.held if pool is not None else 0})
    return message


def reviving(_state: CapacityState, message: Message) -> Message | None:
    """A deletion is overheard."""
    return None if isinstance(message, NodePoolDeleting) else message


def fits_now(ledger: Ledger, pool: Pool) -> bool:
    """Return whether a target fits now, whoever waits longer for what others give back."""
    return ledger.limit is not None and pool.target - pool.reserved <= ledger.limit - ledger.used


def newest_first(ledger: Ledger) -> PoolKey | None:
    """The next NodePool of a ledger is one that has not been checked yet."""
    fits = None if ledger.limit is None else ledger.waiting.first(ledger.limit - ledger.used)
    return ledger.unchecked.head or fits or ledger.exceeding.head


def in_its_place(ledger: Ledger, pool: Pool, *, keeps_place: bool) -> Ledger:
    """Every change of a NodePool that waits leaves it where it was."""
    del keeps_place
    waiting = ledger.waiting.put(pool.key, pool.lacks)
    return replace(ledger, waiting=waiting, unchecked=ledger.unchecked.put(pool.key))


def at_the_end(ledger: Ledger, pool: Pool, *, keeps_place: bool) -> Ledger:
    """Every change of a NodePool that waits puts it behind all others."""
    del keeps_place
    waiting = ledger.waiting.drop(pool.key).put(pool.key, pool.lacks)
    return replace(ledger, waiting=waiting, unchecked=ledger.unchecked.put(pool.key))


def limited(ledger: Ledger, limit: int | None, by_creation: object) -> Ledger:
    """A lower limit leaves every grant what it was."""
    del by_creation
    return replace(ledger, limit=limit)


def acknowledged(pool: Pool, number: int, _nodes: int, *, final: bool) -> Pool:
    """An invalid NodePool has the grant that it had."""
    grants = () if final else tuple(each for each in pool.grants if each.number >= number)
    return replace(pool, grants=grants)


def granted_before(pool: Pool) -> int:
    """A grant does not cover the Nodes that were assigned while it shrank."""
    return min(pool.granted, pool.target)


def always_compared(pool: Pool, ledger: Ledger) -> QuotaChecked:
    """A target that is not above the Nodes of its NodePool is compared with the limit too."""
    right = verdict(pool, ledger)
    if ledger.limit is None or ledger.fits(pool):
        return right
    text = _over(pool, ledger, ledger.used - pool.reserved)
    return right.model_copy(update={"reason": Quota.OVER, "message": text})


def over_with_no_nodes(pool: Pool, ledger: Ledger) -> QuotaChecked:
    """A target of no Nodes exceeds a limit that others have used up, and no other target does."""
    return verdict(pool, ledger) if pool.target else always_compared(pool, ledger)


def warning_always(state: QuotaState, key: PoolKey) -> Iterator[Check]:
    """Each verdict that is not good is warned of."""
    pool = state.pools[key]
    new = verdict(pool, state.ledger(pool.ledger))
    yield new
    if new.reason is not Quota.UNDER:
        yield CWOverQuota(**pool_fields(key), message=new.message)


def reporting_always(pool: Pool, cause: str) -> Iterator[Check]:
    """Each failure is told to users, a repeated one too."""
    text = f"internal error while checking quota: {cause}"
    yield QuotaCheckFailed(**pool_fields(pool.key), message=text)
    yield CWNodePoolQuotaCheckFailed(**pool_fields(pool.key), uid=pool.uid, message=text)


def failed_once(state: QuotaState, pool: Pool | None, _text: str, _context: Context) -> QuotaState:
    """A NodePool whose check failed is checked again only once it changes itself."""
    if pool is None:
        return state
    ledger = state.ledger(pool.ledger)
    ledger = replace(ledger.done(pool.key), waiting=ledger.waiting.drop(pool.key))
    return replace(state, ledgers=state.ledgers.set(pool.ledger, ledger))


def retried_never(_state: CapacityState, message: Message) -> Message | None:
    """A failure is forgotten as soon as it is said."""
    return None if isinstance(message, CapacityCheckFailed) else message


def numbers_of_then(
    pool: CapacityPool, share: Share, last: CapacityChecked, *, exact: bool
) -> bool:
    """A verdict differs from the last one by its reason alone."""
    checked = pool.generation, pool.granted, share.reason
    return checked != (last.generation, last.granted, last.reason)


def warned_of_by_reason(pool: CapacityPool, share: Share) -> bool:
    """A lack of machines is warned of for its reason, however much it grows."""
    return pool.warned != (share.reason, pool.goal or 0)


PLANTS: Mapping[str, Plant] = {
    "a ledger is left of a misspelt type": Plant(
        "of which nothing is left", WRONG, (keeping_ledgers(),), seed=3
    ),
    "a limit is shown for a misspelt type": Plant(
        "the bucket quotas holds", WRONG, (showing_ledgers(),), seed=3
    ),
    "capacity knows invalid NodePools": Plant(
        "which was never valid", WRONG, (keeping_invalid_pools(),), seed=3
    ),
    "what is lost while Quota is Over is not replaced": Plant(
        "granted Nodes, while",
        replace(SPOT, limits=(2, 3), targets=(2, 3, 8, 9)),
        (hearing(CAPACITY, nothing_over_quota),),
        seed=0,
    ),
    "a newcomer is served before a NodePool that waits": Plant(
        "waits for since",
        LINE,
        (unconcerned(QUOTA, SetQuota),),
        {"quota.ledger.Ledger.next": newest_first, "quota.ledger.Ledger.fits": fits_now},
        seed=2,
    ),
    "a NodePool that waits keeps its place by a change": Plant(
        "waits for since", LINE, (), {"quota.ledger.Ledger.join_line": in_its_place}, seed=2
    ),
    "a NodePool that waits loses its place by a smaller target": Plant(
        "waits for since", LINE, (), {"quota.ledger.Ledger.join_line": at_the_end}, seed=4
    ),
    "a deletion is overheard": Plant(
        "though it is invalid or being deleted", BUSY, (hearing(CAPACITY, reviving),)
    ),
    "a grant stays above a lower limit": Plant(
        "has to be Over with one of", BUSY, (), {"quota.ledger.Ledger.set_limit": limited}
    ),
    "an invalid NodePool keeps its grant": Plant(
        "the quotas do not add up", WRONG, (), {"quota.pool.Pool.acknowledge": acknowledged}
    ),
    "a grant does not cover the Nodes that were assigned while it shrank": Plant(
        "with one of", BUSY, (), {"quota.pool.Pool.kept": property(granted_before)}
    ),
    "a message keeps the numbers of an old limit": Plant(
        "Quota is ('False', 'Over',", BUSY, (), {"quota.decide.recheck_pool": lambda *_: ()}
    ),
    "a target within the Nodes that a NodePool has exceeds a lowered limit": Plant(
        "has to be Under with one of", BUSY, (), {"quota.checks.verdict": always_compared}, seed=25
    ),
    "a target of no Nodes exceeds a lowered limit": Plant(
        "has to be Under with one of [0]", BUSY, (), {"quota.checks.verdict": over_with_no_nodes}
    ),
    "a warning is said for each number": Plant(
        "CWOverQuota is said for a number", BUSY, (), {"quota.checks.check_pool": warning_always}
    ),
    "a message keeps the numbers of earlier machines": Plant(
        "Capacity is ('False',",
        SHORT,
        (),
        {"capacity.decide.is_new": numbers_of_then},
    ),
    "a lack that grows is not warned of": Plant(
        "has no CWInsufficientCapacity",
        SHORT,
        (),
        {"capacity.decide._is_new_warning": warned_of_by_reason},
    ),
    "a lack is warned of for each number": Plant(
        "CWInsufficientCapacity is said for a number",
        SHORT,
        (),
        {"capacity.decide._is_new_warning": lambda *_: True},
    ),
    "a failed check of quota is not made again": Plant(
        "Quota is ('Unknown', 'InternalError'",
        BROKEN,
        (),
        {"quota.state._fold_failure": failed_once},
        seed=3,
    ),
    "a failed check of capacity is not made again": Plant(
        "Capacity is ('Unknown', 'InternalError'",
        BROKEN,
        (hearing(CAPACITY, retried_never),),
        seed=38,
    ),
    "a failure is told again and again": Plant(
        "CWNodePoolQuotaCheckFailed is repeated",
        BROKEN,
        (),
        {
            "quota.checks.report_failure": reporting_always,
            "quota.decide.report_failure": reporting_always,
        },
        seed=8,
    ),
}
"""What is wrong, and how it is put into the services."""


@pytest.mark.parametrize("name", PLANTS)
def test_an_old_fault_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant = PLANTS[name]

    violation = violation_of(plant, monkeypatch)

    assert plant.text in violation
