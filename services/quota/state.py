"""The state of the quota service: limits, the Nodes reserved under each, and the NodePools."""

from dataclasses import dataclass
from datetime import timedelta
from typing import assert_never

from immutables import Map

from nodepool.contract import events as on
from nodepool.contract.commands import DeleteQuota, SetQuota
from nodepool.contract.conditions import Quota, Validated
from nodepool.contract.keys import LedgerKey, PoolKey, ledger_key
from nodepool.service import Context
from nodepool.state.values import replace
from nodepool.state.work import WithWork
from quota import Hears, Says
from quota.ledger import Ledger
from quota.nodes import NodeCounted, count_node
from quota.pool import Pool, Warned


@dataclass(frozen=True, slots=True)
class State(WithWork[LedgerKey | PoolKey]):
    """NodePools and ledgers; an invalid NodePool is forgotten once it has nothing reserved.

    numbers: the number of the last grant of each NodePool that was forgotten while it was invalid.
        Its next grant has a higher number, as the allocator may still give back an earlier grant.
    work: ledgers in which a NodePool may be served or a verdict names outdated numbers, and
        NodePools that have a release to publish or whose check failed.
    """

    pools: Map[PoolKey, Pool] = Map()
    ledgers: Map[LedgerKey, Ledger] = Map()
    numbers: Map[PoolKey, int] = Map()

    def pool(self, key: PoolKey, uid: str) -> Pool | None:
        """Return the NodePool of this key if it has this uid; None otherwise."""
        pool = self.pools.get(key)
        return pool if pool is not None and pool.uid == uid else None

    def ledger(self, key: LedgerKey) -> Ledger:
        """Return the ledger of this key; an unused ledger if the key has no ledger."""
        return self.ledgers.get(key, Ledger())


def evolve(state: State, message: Hears | Says, context: Context) -> State:
    """Return the state after a message; a message about a NodePool that is gone changes nothing."""
    match message:
        case on.NodePoolValidated():
            return _fold_spec(state, message, context)
        case on.NodePoolDeleting(key=key, uid=uid):
            return _deleting(state, state.pool(key, uid), context)
        case on.CWNodePoolDeleted(key=key, uid=uid):
            numbers = state.numbers.delete(key) if key in state.numbers else state.numbers
            state = replace(state, numbers=numbers)
            return _fold_deletion(state, state.pool(key, uid), context)
        case (
            on.CWNodeAssigned(key=key, uid=uid)
            | on.CWNodeDeleted(key=key, uid=uid)
            | on.CWNodeRegistrationFailed(key=key, uid=uid)
        ):
            return _fold_node_count(state, state.pool(key, uid), message, context)
        case on.NodeReservationChanged(key=key):
            return _fold_node_count(state, state.pools.get(key), message, context)
        case on.GrantAcknowledged(key=key, uid=uid):
            return _fold_acknowledgement(state, state.pool(key, uid), message, context)
        case on.QuotaChecked(key=key):
            return _fold_quota_verdict(state, state.pools.get(key), message, context)
        case on.QuotaReleased(key=key):
            return _fold_release(state, state.pools.get(key), message, context)
        case on.QuotaSet(limit=limit):
            return _fold_limit(state, message, limit, context)
        case on.QuotaDeleted():
            return _fold_limit(state, message, None, context)
        case on.CWOverQuota(key=key):
            return _fold_warning(state, state.pools.get(key))
        case on.QuotaCheckFailed(key=key, message=text):
            return _fold_failure(state, state.pools.get(key), text, context)
        case SetQuota() | DeleteQuota() | on.CWNodePoolQuotaCheckFailed():
            return state
        case _:
            assert_never(message)


def _fold_spec(state: State, event: on.NodePoolValidated, context: Context) -> State:
    known = state.pool(event.key, event.uid)
    is_valid = event.reason is Validated.VALID
    if known is None and not is_valid:
        return state
    if known is not None and event.reason is Validated.INTERNAL_ERROR:
        return _store_pool(state, replace(known, unvalidated=True), context)
    key = ledger_key(event.org, event.zone, event.spec.instance_type)
    state, former = (state, None) if known else _without_former(state, event.key, key, context)
    number = state.numbers.get(event.key, 0)
    before = known or Pool(event.key, event.uid, key, former=former, last_number=number)
    target = event.spec.target
    pool = replace(
        before,
        generation=event.generation,
        target=target,
        racks=event.spec.target_racks,
        eligible=is_valid and not before.deleting,
        fault="",
        created=event.created,
        withdrawn=before.withdrawn or not is_valid,
        unvalidated=False,
    )
    state = _store_pool(state, pool, context)
    if not pool.eligible:
        return state
    is_larger = target > before.target
    ledger = state.ledger(pool.ledger).join_line(pool, keeps_place=not is_larger)
    return _with_ledger(state, pool.ledger, ledger, context)


def _without_former(
    state: State, key: PoolKey, ledger: LedgerKey, context: Context
) -> tuple[State, LedgerKey | None]:
    """Return the state in which no earlier NodePool of this name counts against another limit.

    Also return that other limit if its release has failed so far and is still to be published.
    """
    pool = state.pools.get(key)
    if pool is None or pool.ledger == ledger:
        return state, pool.former if pool is not None else None
    state = _store_pool(state, replace(pool, eligible=False, reserved=0), context)
    state = replace(state, pools=state.pools.delete(key), work=state.work.drop(key))
    return _schedule_ledger(state, pool.ledger), pool.ledger


def _deleting(state: State, pool: Pool | None, context: Context) -> State:
    if pool is None:
        return state
    state = _store_pool(state, replace(pool, eligible=False, deleting=True, fault=""), context)
    # A NodePool behind it may fit, and waited only since this NodePool comes first.
    return _schedule_ledger(state, pool.ledger)


def _fold_deletion(state: State, pool: Pool | None, context: Context) -> State:
    if pool is None:
        return state
    pool = replace(pool, eligible=False, deleting=True, grants=(), held=0, beyond=0, away=Map())
    return _store_pool(state, pool, context)


def _fold_node_count(
    state: State, pool: Pool | None, event: NodeCounted, context: Context
) -> State:
    """Return the state after another number of Nodes of a NodePool may count."""
    after = count_node(pool, event) if pool is not None else None
    if pool is None or after is None or after is pool:
        return state
    state = _recheck_uncovered(state, after, context)
    # A target that is covered now fits, at any place in line.
    return _schedule_ledger(state, after.ledger) if after.lacks != pool.lacks else state


def _recheck_uncovered(state: State, pool: Pool, context: Context) -> State:
    """Return the state with a NodePool due for a check if its grant does not cover its Nodes."""
    state = _store_pool(state, pool, context)
    if not pool.is_uncovered:
        return state
    ledger = state.ledger(pool.ledger)
    ledger = replace(ledger, unchecked=ledger.unchecked.put(pool.key))
    return _with_ledger(state, pool.ledger, ledger, context)


def _fold_acknowledgement(
    state: State, pool: Pool | None, event: on.GrantAcknowledged, context: Context
) -> State:
    if pool is None:
        return state
    pool = pool.acknowledge(event.number, event.granted, final=event.final)
    return _recheck_uncovered(state, pool, context)


def _fold_quota_verdict(
    state: State, pool: Pool | None, verdict: on.QuotaChecked, context: Context
) -> State:
    if pool is None:
        return state
    waits = pool.eligible and verdict.reason is not Quota.UNDER
    state = _store_pool(state, pool.apply_verdict(verdict), context, waits=waits)
    return replace(state, work=state.work.clear_failures(pool.key))


def _fold_release(
    state: State, pool: Pool | None, event: on.QuotaReleased, context: Context
) -> State:
    if pool is None:
        return state
    if pool.former is not None:
        return _store_pool(state, replace(pool, former=None), context)
    granted = event.granted
    state = _store_pool(state, replace(pool, reserved=granted), context)
    if not granted and not pool.eligible and not pool.away:
        state = replace(state, pools=state.pools.delete(pool.key))
        if pool.number and not pool.deleting:
            state = replace(state, numbers=state.numbers.set(pool.key, pool.number))
    work = state.work
    # After a failed check, the NodePool stays scheduled for the retry.
    work = replace(work, ready=work.ready.drop(pool.key)) if pool.fault else work.drop(pool.key)
    return _schedule_ledger(replace(state, work=work), pool.ledger)


def _fold_limit(
    state: State, event: on.QuotaSet | on.QuotaDeleted, limit: int | None, context: Context
) -> State:
    key = ledger_key(event.org, event.zone, event.instance_type)
    before = state.ledger(key)
    ledger = before.set_limit(limit, lambda: before.by_creation(state.pools))
    return _schedule_ledger(_with_ledger(state, key, ledger, context), key)


def _fold_warning(state: State, pool: Pool | None) -> State:
    if pool is None or pool.reason is None:
        return state
    warned = Warned(pool.reason, pool.target, state.ledger(pool.ledger).limit)
    return replace(state, pools=state.pools.set(pool.key, replace(pool, warned=warned)))


def _fold_failure(state: State, pool: Pool | None, text: str, context: Context) -> State:
    """Return the state in which a NodePool whose check failed is passed over until a retry.

    The NodePool keeps its place in line. A NodePool that may not be granted Nodes is tried again
    only if it has something to release.
    """
    if pool is None or not (pool.eligible or pool.is_releasable):
        return state
    if pool.eligible:
        shrinks = pool.shrinks or pool.key in state.ledger(pool.ledger).exceeding
        pool = replace(pool, fault=text, shrinks=shrinks)
        state = _store_pool(state, pool, context, waits=True)
    work = replace(state.work, ready=state.work.ready.drop(pool.key))
    work = work.retry_later(pool.key, context.time)
    if len(state.ledger(pool.ledger).waiting) > 1 and pool.ledger not in work.deadlines.moments:
        # The failure may have kept other NodePools from new numbers. The ledger is scheduled too,
        # since a check of this NodePool before its retry may cancel the retry.
        work = work.put_at(pool.ledger, work.deadlines.moments[pool.key])
    return _schedule_ledger(replace(state, work=work), pool.ledger)


def _store_pool(state: State, pool: Pool, context: Context, *, waits: bool | None = None) -> State:
    """Return the state with this NodePool, and with the ledger of the NodePool updated.

    waits: whether the NodePool is in line from now on; None if that does not change.
    """
    known = state.pools.get(pool.key)
    work = (
        state.work
        if pool.eligible or known is None or not known.eligible
        else state.work.drop(pool.key)
    )
    if pool.is_releasable:
        work = work.put(pool.key)
    state = replace(state, pools=state.pools.set(pool.key, pool), work=work)
    if waits is None and known is not None and _part(known) == _part(pool):
        return state
    before = known.reserved if known is not None else 0
    ledger = state.ledger(pool.ledger).with_pool(before, pool)
    if waits is not None:
        ledger = ledger.waits(pool, waits=waits)
    return _with_ledger(state, pool.ledger, ledger, context)


def _part(pool: Pool) -> tuple[bool, int, int, int, int | None]:
    """Return the parts of a NodePool that a ledger depends on."""
    return pool.eligible, pool.reserved, pool.returning, pool.own_room, pool.lacks


def _with_ledger(state: State, key: LedgerKey, ledger: Ledger, context: Context) -> State:
    """Return the state with this ledger; schedule new verdicts if the numbers in them changed."""
    if ledger.is_unused:
        if key not in state.ledgers:
            return state
        return replace(state, ledgers=state.ledgers.delete(key), work=state.work.drop(key))
    before = state.ledger(key)
    state = replace(state, ledgers=state.ledgers.set(key, ledger))
    is_same = (before.used, before.holders) == (ledger.used, ledger.holders)
    if is_same or not ledger.waiting:
        return state
    due = context.time + timedelta(seconds=ledger.renewal_s)
    earliest = min(due, state.work.deadlines.moments.get(key, due))
    return replace(state, work=state.work.put_at(key, earliest))


def _schedule_ledger(state: State, key: LedgerKey) -> State:
    """Return the state in which the ledger is work if it has a NodePool to check."""
    ledger = state.ledgers.get(key)
    if ledger is None or ledger.next() is None:
        return state
    return replace(state, work=state.work.put(key))
