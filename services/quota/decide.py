"""What the quota service says: limits, what is released, and the verdicts in a ledger."""

from collections.abc import Generator, Iterable, Iterator
from typing import assert_never

from nodepool.contract import grammar
from nodepool.contract.catalog import INSTANCE_TYPES, ZONES
from nodepool.contract.commands import DeleteQuota, SetQuota
from nodepool.contract.events import (
    CWNodeAssigned,
    CWNodeDeleted,
    CWNodePoolDeleted,
    CWNodeRegistrationFailed,
    GrantAcknowledged,
    NodePoolDeleting,
    NodePoolValidated,
    QuotaDeleted,
    QuotaReleased,
    QuotaSet,
)
from nodepool.contract.keys import FLEET, LedgerKey, PoolKey, ledger_key, ledger_parts
from nodepool.contract.messages import pool_fields
from nodepool.contract.outcomes import CommandOutcome, accepted, refused
from nodepool.service import Context, Failure, Reconciler, Service
from quota import Hears, Says
from quota.checks import Check, checked, checked_safely, renewed, reported
from quota.state import State, evolve


def decide(state: State, message: Hears, _context: Context) -> Iterator[Says | CommandOutcome]:
    """The outcome of a command, and what a NodePool gives back."""
    match message:
        case SetQuota():
            yield from _set(state, message)
        case DeleteQuota():
            yield from _unset(state, message)
        case (
            NodePoolValidated(key=key)
            | NodePoolDeleting(key=key)
            | GrantAcknowledged(key=key)
            | CWNodeDeleted(key=key)
            | CWNodeRegistrationFailed(key=key)
            | CWNodePoolDeleted(key=key)
        ):
            yield from _released(state, key)
        case CWNodeAssigned():
            return
        case _:
            assert_never(message)


def concerns(state: State, message: Hears) -> LedgerKey | PoolKey | None:
    """The ledger of a command, and the NodePool whose newest version is to be checked.

    A limit is applied before the next input is processed, so that what came before it and what
    comes after it does not depend on how inputs are batched.
    """
    match message:
        case SetQuota() | DeleteQuota():
            return ledger_key(message.org, message.zone, message.instance_type)
        case NodePoolValidated(key=key, uid=uid):
            pool = state.pool(key, uid)
            return key if pool is not None and pool.eligible else None
        case (
            NodePoolDeleting()
            | CWNodePoolDeleted()
            | GrantAcknowledged()
            | CWNodeAssigned()
            | CWNodeDeleted()
            | CWNodeRegistrationFailed()
        ):
            return None
        case _:
            assert_never(message)


def reconcile(state: State, key: LedgerKey | PoolKey, context: Context) -> Iterator[Says]:
    """The verdicts that are due in a ledger, in the order in which NodePools wait.

    Of a ledger as a whole also those that name other numbers than those of now; of one NodePool
    also the one that could not be made before. What its check raises is then a failure of its own.
    """
    pool = state.pools.get(PoolKey(key))
    if pool is None:
        state = yield from _served(state, LedgerKey(key), context)
        yield from _renewed(state, LedgerKey(key), context)
        return
    state = yield from _served(state, pool.ledger, context, own=pool.key)
    pool = state.pools[pool.key]
    if pool.fault and pool.eligible:
        yield from checked(state, pool.key)


def _served(
    state: State, key: LedgerKey, context: Context, own: PoolKey | None = None
) -> Generator[Check, None, State]:
    while (pool := state.ledger(key).next()) is not None:
        events = checked(state, pool) if pool == own else checked_safely(state, pool)
        for event in tuple(events):
            yield event
            state = evolve(state, event, context)
    return state


def _renewed(state: State, key: LedgerKey, context: Context) -> Iterator[Check]:
    for pool in state.ledger(key).waiting:
        for event in renewed(state, pool):
            yield event
            state = evolve(state, event, context)


def _set(state: State, command: SetQuota) -> Iterator[Says | CommandOutcome]:
    refusal = _malformed(command)
    if refusal is not None:
        yield refusal
        return
    key = ledger_key(command.org, command.zone, command.instance_type)
    ledger = state.ledger(key)
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


def _malformed(command: SetQuota) -> CommandOutcome | None:
    """Why a limit cannot be set: nothing could ever count against it."""
    if command.org == FLEET:
        return refused(command, "org", f"{FLEET} is a reserved word, not an organisation")
    if reason := grammar.dns1123_label(command.org):
        return refused(command, "org", reason)
    if command.zone not in ZONES:
        return refused(command, "zone", f"{command.zone} is not known")
    if command.instance_type not in INSTANCE_TYPES:
        return refused(command, "instanceType", f"{command.instance_type} is not known")
    return None


def _unset(state: State, command: DeleteQuota) -> Iterator[Says | CommandOutcome]:
    key = ledger_key(command.org, command.zone, command.instance_type)
    ledger = state.ledger(key)
    if ledger.limit is None:
        text = f"no quota is set for {command.instance_type} in {command.zone}"
        yield refused(command, "instanceType", text, "NotFound")
        return
    yield accepted(command, "deleted")
    yield QuotaDeleted(
        org=command.org,
        zone=command.zone,
        instance_type=command.instance_type,
        granted=ledger.used,
    )


def _released(state: State, key: PoolKey) -> Iterator[Says]:
    """What a NodePool does not need any more; one that needs nothing and may have none is gone."""
    pool = state.pools.get(key)
    if pool is None or (pool.needed >= pool.reserved and (pool.needed or pool.eligible)):
        return
    _, zone, instance_type = ledger_parts(pool.ledger)
    yield QuotaReleased(
        **pool_fields(key),
        granted=pool.needed,
        zone=zone,
        instance_type=instance_type,
        used=state.ledger(pool.ledger).used - pool.reserved + pool.needed,
    )


def on_failure(state: State, failure: Failure) -> Iterable[Says]:
    """A NodePool whose quota could not be checked shows it, and is checked again later."""
    key = PoolKey(failure.key) if failure.key else failure.pool
    pool = state.pools.get(key) if key is not None else None
    is_check = failure.input == NodePoolValidated.__name__ or (failure.key and pool is not None)
    if key is not None and is_check and not (pool is not None and pool.deleting):
        yield from reported(key, pool, f"{failure.field} {failure.cause}".strip())


SERVICE: Service[State, Hears, Says] = Service(
    name="quota",
    hears=Hears,
    says=Says,
    initial=State(),
    evolve=evolve,
    decide=decide,
    reconciler=Reconciler(reconcile, concerns),
    on_failure=on_failure,
)
