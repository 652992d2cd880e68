"""What the quota service knows: limits, what is reserved under each, and each NodePool's part."""

from dataclasses import dataclass, replace
from typing import NamedTuple, assert_never

from immutables import Map

from nodepool.contract.commands import SetQuota
from nodepool.contract.conditions import Quota, Validated
from nodepool.contract.events import (
    CWNodeAssigned,
    CWNodeDeleted,
    CWNodePoolDeleted,
    CWNodePoolQuotaCheckFailed,
    CWNodeRegistrationFailed,
    CWOverQuota,
    GrantAcknowledged,
    NodePoolDeleting,
    NodePoolValidated,
    QuotaChecked,
    QuotaReleased,
    QuotaSet,
)
from nodepool.contract.keys import LedgerKey, PoolKey, ledger_key
from nodepool.service import Context
from nodepool.state.queue import Queue
from nodepool.state.work import WithWork
from quota import Hears, Says


class Grant(NamedTuple):
    """How many Nodes a NodePool may have, as checked for a generation of it."""

    generation: int
    nodes: int


@dataclass(frozen=True, slots=True)
class Pool:
    """A NodePool as far as a limit depends on it.

    wants: `target` Nodes, in this `generation`.
    eligible: whether it is valid and stays, so that it may be granted Nodes.
    deleting: whether it is on its way out.
    grants: what the allocator may still work to, oldest first; each is smaller than the one before.
    held: the Nodes that it has.
    reserved: what counts against the limit for it, as it was published last.
    reason, message: the verdict that was published last; no reason before the first.
    warned: the message of the last `CWOverQuota`; empty while it is within the limit.
    """

    key: PoolKey
    uid: str
    ledger: LedgerKey
    generation: int = 0
    target: int = 0
    eligible: bool = False
    deleting: bool = False
    grants: tuple[Grant, ...] = ()
    held: int = 0
    reserved: int = 0
    reason: Quota | None = None
    message: str = ""
    warned: str = ""

    @property
    def granted(self) -> int:
        """How many Nodes it may have, as it was published last."""
        return self.grants[-1].nodes if self.grants else 0

    @property
    def needed(self) -> int:
        """What has to stay reserved: the Nodes that are there, and those that may still come."""
        return max(self.held, self.grants[0].nodes if self.grants else 0)


@dataclass(frozen=True, slots=True)
class Ledger:
    """One limit, and what is reserved under it.

    limit: the most Nodes; None where it was never set.
    used: what all NodePools together have reserved.
    holders: how many NodePools have something reserved.
    waiting: the NodePools that may not have all they want, longest waiting first.
    """

    limit: int | None = None
    used: int = 0
    holders: int = 0
    waiting: Queue[PoolKey] = Queue()


@dataclass(frozen=True, slots=True)
class State(WithWork[LedgerKey]):
    """NodePools and ledgers; the work queue holds ledgers under which a verdict may change."""

    pools: Map[PoolKey, Pool] = Map()
    ledgers: Map[LedgerKey, Ledger] = Map()

    def pool(self, key: PoolKey, uid: str) -> Pool | None:
        """The NodePool of this key, if it is the one with this uid."""
        pool = self.pools.get(key)
        return pool if pool is not None and pool.uid == uid else None


def evolve(state: State, message: Hears | Says, _context: Context) -> State:
    """The state after a message; one about a NodePool that is gone changes nothing."""
    match message:
        case NodePoolValidated():
            return _specified(state, message)
        case NodePoolDeleting(key=key, uid=uid):
            return _deleting(state, state.pool(key, uid))
        case CWNodePoolDeleted(key=key):
            return _deleted(state, state.pools.get(key))
        case CWNodeAssigned(key=key, uid=uid):
            return _held(state, state.pool(key, uid), 1)
        case CWNodeDeleted(key=key, uid=uid) | CWNodeRegistrationFailed(key=key, uid=uid):
            return _held(state, state.pool(key, uid), -1)
        case GrantAcknowledged(key=key, uid=uid, generation=generation):
            return _acknowledged(state, state.pool(key, uid), generation)
        case QuotaChecked(key=key):
            return _granted(state, state.pools.get(key), message)
        case QuotaReleased(key=key, granted=granted):
            return _released(state, state.pools.get(key), granted)
        case QuotaSet():
            return _limited(state, message)
        case CWOverQuota(key=key, message=text):
            return _warned(state, state.pools.get(key), text)
        case SetQuota() | CWNodePoolQuotaCheckFailed():
            return state
        case _:
            assert_never(message)


def _specified(state: State, event: NodePoolValidated) -> State:
    pool = state.pool(event.key, event.uid)
    if pool is None:
        ledger = ledger_key(event.org, event.zone, event.spec.instance_type)
        pool = Pool(event.key, event.uid, ledger)
    pool = replace(
        pool,
        generation=event.generation,
        target=event.spec.target_nodes,
        eligible=event.reason is Validated.VALID and not pool.deleting,
    )
    state = _stored(state, pool)
    return state if pool.eligible else _waits(state, pool, waits=False)


def _deleting(state: State, pool: Pool | None) -> State:
    if pool is None:
        return state
    return _waits(_stored(state, replace(pool, eligible=False, deleting=True)), pool, waits=False)


def _deleted(state: State, pool: Pool | None) -> State:
    if pool is None:
        return state
    return _stored(state, replace(pool, eligible=False, deleting=True, grants=(), held=0))


def _held(state: State, pool: Pool | None, change: int) -> State:
    if pool is None:
        return state
    assert pool.held + change >= 0, f"{pool.key} holds fewer than no Nodes"
    return _stored(state, replace(pool, held=pool.held + change))


def _acknowledged(state: State, pool: Pool | None, generation: int) -> State:
    if pool is None:
        return state
    # An older grant cannot be worked to any more; a newer one still can.
    grants = tuple(grant for grant in pool.grants if grant.generation >= generation)
    return _stored(state, replace(pool, grants=grants))


def _granted(state: State, pool: Pool | None, verdict: QuotaChecked) -> State:
    if pool is None:
        return state
    larger = (grant for grant in pool.grants if grant.nodes > verdict.granted)
    waits = verdict.reason is not Quota.UNDER
    pool = replace(
        pool,
        grants=(*larger, Grant(verdict.generation, verdict.granted)),
        reason=verdict.reason,
        message=verdict.message,
        warned=pool.warned if waits else "",
    )
    pool = replace(pool, reserved=max(pool.reserved, pool.needed))
    return _waits(_stored(state, pool), pool, waits=waits)


def _released(state: State, pool: Pool | None, granted: int) -> State:
    if pool is None:
        return state
    released = _stored(state, replace(pool, reserved=granted))
    if pool.deleting and not granted:
        return replace(released, pools=released.pools.delete(pool.key))
    return released


def _limited(state: State, event: QuotaSet) -> State:
    key = ledger_key(event.org, event.zone, event.instance_type)
    ledger = replace(state.ledgers.get(key, Ledger()), limit=event.limit)
    return replace(state, ledgers=state.ledgers.set(key, ledger), work=state.work.put(key))


def _warned(state: State, pool: Pool | None, text: str) -> State:
    if pool is None:
        return state
    return replace(state, pools=state.pools.set(pool.key, replace(pool, warned=text)))


def _stored(state: State, pool: Pool) -> State:
    """The state with this NodePool and its ledger in step; room in a ledger is work for waiters."""
    known = state.pools.get(pool.key)
    before = known.reserved if known is not None else 0
    ledger = state.ledgers.get(pool.ledger, Ledger())
    ledger = replace(
        ledger,
        used=ledger.used + pool.reserved - before,
        holders=ledger.holders + (pool.reserved > 0) - (before > 0),
    )
    room_was_made = pool.reserved < before and len(ledger.waiting) > 0
    return replace(
        state,
        pools=state.pools.set(pool.key, pool),
        ledgers=state.ledgers.set(pool.ledger, ledger),
        work=state.work.put(pool.ledger) if room_was_made else state.work,
    )


def _waits(state: State, pool: Pool, *, waits: bool) -> State:
    ledger = state.ledgers[pool.ledger]
    waiting = ledger.waiting.put(pool.key) if waits else ledger.waiting.drop(pool.key)
    ledgers = state.ledgers.set(pool.ledger, replace(ledger, waiting=waiting))
    return replace(state, ledgers=ledgers)
