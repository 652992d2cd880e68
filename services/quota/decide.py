"""What the quota service says: the outcome of `SetQuota`, verdicts, and what is released."""

from collections.abc import Iterable, Iterator
from typing import assert_never

from nodepool.contract.catalog import INSTANCE_TYPES, ZONES
from nodepool.contract.commands import SetQuota
from nodepool.contract.conditions import Quota
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
from nodepool.contract.keys import LedgerKey, PoolKey, ledger_key, ledger_parts
from nodepool.contract.messages import pool_fields
from nodepool.contract.outcomes import CommandOutcome, accepted, refused
from nodepool.service import Context, Failure, Reconciler, Service
from quota import Hears, Says
from quota.state import Ledger, Pool, State, evolve
from quota.verdict import verdict


def decide(state: State, message: Hears, _context: Context) -> Iterator[Says | CommandOutcome]:
    """The outcome of a command, the verdict on a NodePool, and what a NodePool gives back."""
    match message:
        case SetQuota():
            yield from _set(state, message)
        case NodePoolValidated(key=key):
            pool = state.pools[key]
            if pool.eligible:
                yield from _checked(pool, verdict(pool, state.ledgers[pool.ledger]), always=True)
        case (
            GrantAcknowledged(key=key)
            | CWNodeDeleted(key=key)
            | CWNodeRegistrationFailed(key=key)
            | CWNodePoolDeleted(key=key)
        ):
            yield from _release(state, key)
        case NodePoolDeleting() | CWNodeAssigned():
            return
        case _:
            assert_never(message)


def reconcile(state: State, key: LedgerKey, context: Context) -> Iterator[Says]:
    """New verdicts under a limit: for waiters in their order, then for all if it is passed."""
    ledger = state.ledgers.get(key, Ledger())
    others: tuple[PoolKey, ...] = ()
    if ledger.limit is not None and ledger.used > ledger.limit:
        others = tuple(sorted(k for k, p in state.pools.items() if p.ledger == key and p.eligible))
    for pool_key in (*ledger.waiting, *others):
        pool = state.pools[pool_key]
        for event in _checked(pool, verdict(pool, state.ledgers[key]), always=False):
            yield event
            state = evolve(state, event, context)


def _set(state: State, command: SetQuota) -> Iterator[Says | CommandOutcome]:
    if command.zone not in ZONES:
        yield refused(command, "zone", f"{command.zone} is not known")
        return
    if command.instance_type not in INSTANCE_TYPES:
        yield refused(command, "instanceType", f"{command.instance_type} is not known")
        return
    key = ledger_key(command.org, command.zone, command.instance_type)
    ledger = state.ledgers.get(key, Ledger())
    if ledger.limit == command.limit:
        yield accepted(command, "unchanged")
        return
    yield accepted(command, "configured")
    yield QuotaSet(
        org=command.org,
        zone=command.zone,
        instance_type=command.instance_type,
        limit=command.limit,
        granted=ledger.used,
    )


def _checked(pool: Pool, new: QuotaChecked, *, always: bool) -> Iterator[Says]:
    """A verdict that differs from the last one, and a warning that was not given yet."""
    reason, text = pool.reason, pool.message
    if always or new.reason is not reason or new.granted != pool.granted:
        yield new
        reason, text = new.reason, new.message
    if reason is not Quota.UNDER and text != pool.warned:
        yield CWOverQuota(**pool_fields(pool.key), message=text)


def _release(state: State, key: PoolKey) -> Iterator[Says]:
    pool = state.pools.get(key)
    if pool is None or (pool.needed >= pool.reserved and (pool.needed or not pool.deleting)):
        return
    _, zone, instance_type = ledger_parts(pool.ledger)
    yield QuotaReleased(
        **pool_fields(key),
        granted=pool.needed,
        zone=zone,
        instance_type=instance_type,
        used=state.ledgers[pool.ledger].used - pool.reserved + pool.needed,
    )


def on_failure(_state: State, failure: Failure) -> Iterable[Says]:
    """A NodePool whose quota could not be checked shows it."""
    if failure.input == NodePoolValidated.__name__ and failure.pool is not None:
        text = f"internal error while checking quota: {failure.cause}"
        yield CWNodePoolQuotaCheckFailed(**pool_fields(failure.pool), message=text)


SERVICE: Service[State, Hears, Says] = Service(
    name="quota",
    hears=Hears,
    says=Says,
    initial=State(),
    evolve=evolve,
    decide=decide,
    reconciler=Reconciler(reconcile),
    on_failure=on_failure,
)
