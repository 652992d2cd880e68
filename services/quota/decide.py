"""Grants Nodes to NodePools so that an organisation's limit is never passed."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from immutables import Map

from nodepool.contract.catalog import INSTANCE_TYPES, ZONES
from nodepool.contract.commands import SetQuota
from nodepool.contract.conditions import HEALTHY, Quota, Validated
from nodepool.contract.events import (
    CommandAccepted,
    CommandRefused,
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
    Wake,
)
from nodepool.contract.messages import Message, PoolFields, path_fields, pool_fields
from nodepool.service import IMMEDIATELY, OUTPUTS_MAX, Context, Failure, Service, refused
from nodepool.state.persistent import Queue
from nodepool.state.receipts import Receipts

Hears = (
    SetQuota
    | NodePoolValidated
    | NodePoolDeleting
    | GrantAcknowledged
    | CWNodeAssigned
    | CWNodeDeleted
    | CWNodeRegistrationFailed
    | CWNodePoolDeleted
    | Wake
)
Says = (
    CommandAccepted
    | CommandRefused
    | QuotaSet
    | QuotaChecked
    | QuotaReleased
    | CWOverQuota
    | CWNodePoolQuotaCheckFailed
)

VERDICTS_MAX = OUTPUTS_MAX // 2
"""How many verdicts one decision may change; each may come with an event beside it."""


@dataclass(frozen=True, slots=True)
class Pool:
    """What a NodePool wants, may have and holds.

    `granted` is what it was told it may have. `grants` are those, by generation, that the allocator
    may still work to: each later one is smaller, for what a larger one allows it allows too.
    """

    of: tuple[str, str, str]
    uid: str
    ledger: str
    generation: int = 0
    wanted: int = 0
    judged: bool = False
    leaving: bool = False
    granted: int = 0
    grants: tuple[tuple[int, int], ...] = ()
    held: int = 0
    shown: int = 0
    reason: Quota | None = None
    message: str = ""

    @property
    def reserved(self) -> int:
        """What counts against the limit: Nodes that are there, and those that may still come."""
        return max(self.held, self.grants[0][1] if self.grants else 0)


@dataclass(frozen=True, slots=True)
class Ledger:
    """What is reserved under one limit, by how many NodePools; None for a limit never set.

    `waiting` holds the NodePools over it, in the order in which they began to wait.
    """

    limit: int | None = None
    used: int = 0
    holders: int = 0
    waiting: Queue = Queue()


@dataclass(frozen=True, slots=True)
class State:
    """NodePools by key, ledgers by `org/zone/type`, and the ledgers to be looked at again.

    `again` fills while NodePools wait and something changes; a `Wake` moves it to `looking`.
    """

    pools: Map[str, Pool] = Map()
    ledgers: Map[str, Ledger] = Map()
    again: Queue = Queue()
    looking: str = ""
    receipts: Receipts = Receipts()


def wakes(state: State) -> datetime | None:
    """At once while a ledger is to be looked at again."""
    return IMMEDIATELY if len(state.again) else None


def evolve(state: State, message: Message, now: Context) -> State:
    """Folds wishes, grants, and the coming and going of Nodes."""
    match message:
        case NodePoolValidated():
            return _wished(state, message)
        case CWNodeAssigned(key=key, uid=uid):
            return _held(state, key, uid, 1)
        case CWNodeDeleted(key=key, uid=uid) | CWNodeRegistrationFailed(key=key, uid=uid):
            return _held(state, key, uid, -1)
        case GrantAcknowledged(key=key):
            return _bounded(state, key, message)
        case NodePoolDeleting(key=key, uid=uid) if _is(state, key, uid):
            return _leaving(state, key)
        case CWNodePoolDeleted(key=key) if key in state.pools:
            gone = replace(state.pools[key], leaving=True, granted=0, grants=(), held=0)
            return _stored(state, key, gone)
        case QuotaChecked(key=key) if key in state.pools:
            return _granted(state, key, message)
        case QuotaReleased(key=key, granted=granted) if key in state.pools:
            return _released(state, key, granted)
        case QuotaSet():
            return _limited(state, message)
        case CommandAccepted() | CommandRefused():
            return replace(state, receipts=state.receipts.put(now.id, message))
        case Wake():
            looking = next(iter(state.again), "")
            return replace(state, looking=looking, again=state.again.drop(looking))
    return state


def _is(state: State, key: str, uid: str) -> bool:
    pool = state.pools.get(key)
    return pool is not None and pool.uid == uid


def _stored(state: State, key: str, pool: Pool) -> State:
    """The state with this NodePool, its ledger in step, looked at again where room was made."""
    before = state.pools.get(key)
    reserved = before.reserved if before is not None else 0
    ledger = state.ledgers.get(pool.ledger, Ledger())
    after = replace(
        ledger,
        used=ledger.used + pool.reserved - reserved,
        holders=ledger.holders + (pool.reserved > 0) - (reserved > 0),
    )
    state = replace(
        state,
        pools=state.pools.set(key, pool),
        ledgers=state.ledgers.set(pool.ledger, after),
    )
    return _again(state, pool.ledger) if pool.reserved < reserved else state


def _again(state: State, ledger: str) -> State:
    if not len(state.ledgers[ledger].waiting):
        return state
    return replace(state, again=state.again.put(ledger))


def _wished(state: State, wish: NodePoolValidated) -> State:
    pool = state.pools.get(wish.key)
    if pool is None or pool.uid != wish.uid:
        ledger = f"{wish.org}/{wish.zone}/{wish.spec.instance_type}"
        pool = Pool(of=wish.path, uid=wish.uid, ledger=ledger)
    judged = wish.reason is Validated.VALID and not pool.leaving
    target = wish.spec.target_nodes
    state = _stored(
        state, wish.key, replace(pool, generation=wish.generation, wanted=target, judged=judged)
    )
    return state if judged else _waits(state, wish.key, waits=False)


def _waits(state: State, key: str, *, waits: bool) -> State:
    name = state.pools[key].ledger
    ledger = state.ledgers[name]
    waiting = ledger.waiting.put(key) if waits else ledger.waiting.drop(key)
    return replace(state, ledgers=state.ledgers.set(name, replace(ledger, waiting=waiting)))


def _held(state: State, key: str, uid: str, change: int) -> State:
    if not _is(state, key, uid):
        return state
    pool = state.pools[key]
    assert pool.held + change >= 0, f"{key} holds fewer than no Nodes"
    return _stored(state, key, replace(pool, held=pool.held + change))


def _bounded(state: State, key: str, said: GrantAcknowledged) -> State:
    if not _is(state, key, said.uid):
        return state
    pool = state.pools[key]
    # An output to an older grant says nothing about what may be taken up under a newer one.
    grants = tuple(grant for grant in pool.grants if grant[0] >= said.generation)
    return _stored(state, key, replace(pool, grants=grants))


def _leaving(state: State, key: str) -> State:
    pool = replace(state.pools[key], judged=False, leaving=True)
    return _waits(_stored(state, key, pool), key, waits=False)


def _granted(state: State, key: str, verdict: QuotaChecked) -> State:
    before = state.pools[key]
    larger = (grant for grant in before.grants if grant[1] > verdict.granted)
    pool = replace(
        before,
        granted=verdict.granted,
        grants=(*larger, (verdict.generation, verdict.granted)),
        reason=verdict.reason,
        message=verdict.message,
    )
    pool = replace(pool, shown=max(pool.shown, pool.reserved))
    state = _waits(_stored(state, key, pool), key, waits=verdict.reason is not Quota.UNDER)
    changed = before.reason is not verdict.reason or before.granted != verdict.granted
    # There may be more to change than one decision may say: then look again until nothing does.
    return _again(state, pool.ledger) if changed and pool.ledger == state.looking else state


def _released(state: State, key: str, granted: int) -> State:
    pool = state.pools[key]
    if pool.leaving and not granted:
        return replace(state, pools=state.pools.delete(key))
    return _stored(state, key, replace(pool, shown=granted))


def _limited(state: State, said: QuotaSet) -> State:
    name = f"{said.org}/{said.zone}/{said.instance_type}"
    ledger = replace(state.ledgers.get(name, Ledger()), limit=said.limit)
    return replace(state, ledgers=state.ledgers.set(name, ledger), again=state.again.put(name))


def decide(state: State, message: Message, now: Context) -> Iterator[Says]:
    """The verdict on a wish, and what becomes of those who wait when room is made."""
    match message:
        case SetQuota():
            yield from _set(state, message, now)
        case NodePoolValidated(key=key) if state.pools[key].judged:
            yield from _verdict(state, key, always=True)
        case (
            GrantAcknowledged(key=key)
            | CWNodeDeleted(key=key)
            | CWNodeRegistrationFailed(key=key)
            | CWNodePoolDeleted(key=key)
        ) if key in state.pools:
            yield from _release(state, key)
        case Wake():
            yield from _look_again(state, now)


def _set(state: State, message: SetQuota, now: Context) -> Iterator[Says]:
    outcome = state.receipts.again(message, now.id)
    if outcome is not None:
        yield outcome
        return
    of = path_fields(message)
    field, value = "zone", message.zone
    if message.zone in ZONES:
        field, value = "instanceType", message.instance_type
    if field == "zone" or value not in INSTANCE_TYPES:
        yield CommandRefused(
            **of, command="SetQuota", reason="Invalid", field=field, message=f"{value} is not known"
        )
        return
    ledger = state.ledgers.get(f"{message.org}/{message.zone}/{message.instance_type}", Ledger())
    same = ledger.limit == message.limit
    yield CommandAccepted(**of, command="SetQuota", result="unchanged" if same else "configured")
    if not same:
        yield QuotaSet(
            org=message.org,
            zone=message.zone,
            instance_type=message.instance_type,
            limit=message.limit,
            granted=ledger.used,
        )


def _release(state: State, key: str) -> Iterator[Says]:
    pool = state.pools[key]
    if pool.reserved < pool.shown or (pool.leaving and not pool.reserved):
        _, zone, kind = pool.ledger.split("/")
        yield QuotaReleased(
            **_of(pool),
            granted=pool.reserved,
            zone=zone,
            instance_type=kind,
            used=state.ledgers[pool.ledger].used,
        )


def _look_again(state: State, now: Context) -> Iterator[Says]:
    """Those who wait first, in their order; then, where the limit is passed, everybody else."""
    name = state.looking
    ledger = state.ledgers.get(name, Ledger())
    others: tuple[str, ...] = ()
    if ledger.limit is not None and ledger.used > ledger.limit:
        others = tuple(sorted(k for k, p in state.pools.items() if p.ledger == name and p.judged))
    verdicts = 0
    for key in (*ledger.waiting, *others):
        for said in _verdict(state, key, always=False):
            verdicts += isinstance(said, QuotaChecked)
            yield said
            state = evolve(state, said, now)
        if verdicts >= VERDICTS_MAX:
            return


def _verdict(state: State, key: str, *, always: bool) -> Iterator[Says]:
    pool = state.pools[key]
    verdict = judge(state, key)
    same = verdict.reason is pool.reason and verdict.granted == pool.granted
    if same and not always:
        return
    yield verdict
    if verdict.reason is not Quota.UNDER and verdict.message != pool.message:
        yield CWOverQuota(**_of(pool), message=verdict.message)


def judge(state: State, key: str) -> QuotaChecked:
    """What a NodePool may have: its whole target if that fits, else what it was granted before."""
    pool = state.pools[key]
    ledger = state.ledgers[pool.ledger]
    others = ledger.used - pool.reserved
    fits = ledger.limit is not None and others + pool.wanted <= ledger.limit
    granted = pool.wanted if fits else min(pool.granted, pool.wanted)
    _, zone, kind = pool.ledger.split("/")
    return QuotaChecked(
        **_of(pool),
        generation=pool.generation,
        uid=pool.uid,
        reason=Quota.UNDER if fits else Quota.NOT_SET if ledger.limit is None else Quota.OVER,
        granted=granted,
        zone=zone,
        instance_type=kind,
        limit=ledger.limit,
        used=others + max(pool.reserved, granted),
        message=HEALTHY[Quota.UNDER] if fits else _over(pool, ledger, others, zone, kind),
    )


def _over(pool: Pool, ledger: Ledger, others: int, zone: str, kind: str) -> str:
    if ledger.limit is None:
        return f"no quota is set for {kind} in {zone}, and targetNodes is {pool.wanted}"
    count = ledger.holders - (pool.reserved > 0)
    used = f" ({others} used by {count} other pool{'' if count == 1 else 's'})" if count else ""
    return f"targetNodes {pool.wanted} exceeds quota {ledger.limit} for {kind}{used}"


def _of(pool: Pool) -> PoolFields:
    return pool_fields(pool.of)


def on_failure(failure: Failure) -> Iterable[Says]:
    """A command that cannot be taken is refused; a NodePool that cannot be judged is told so."""
    if failure.is_command:
        yield refused(failure)
    elif failure.input == NodePoolValidated.__name__:
        org, cluster, pool = failure.address.path
        told = f"internal error while checking quota: {failure.cause}"
        yield CWNodePoolQuotaCheckFailed(org=org, cluster=cluster, pool=pool, message=told)


SERVICE = Service(
    name="quota",
    hears=Hears,
    says=Says,
    initial=State(),
    evolve=evolve,
    decide=decide,
    wakes=wakes,
    on_failure=on_failure,
)
