"""Decides what the quota service publishes: limits, releases, and the verdicts of a ledger."""

from collections.abc import Generator, Iterable, Iterator
from typing import assert_never

from nodepool.contract import events as on
from nodepool.contract import grammar
from nodepool.contract.catalog import type_fault, zone_fault
from nodepool.contract.commands import DeleteQuota, SetQuota
from nodepool.contract.keys import LedgerKey, PoolKey, ledger_key, ledger_parts
from nodepool.contract.messages import pool_fields
from nodepool.contract.outcomes import CommandOutcome, build_acceptance, build_refusal
from nodepool.service import Context, Failure, Reconciler, Service, decide_on
from quota import Decides, Hears, Says
from quota.checks import check_pool, checked_safely, recheck_pool, report_failure
from quota.pool import Pool
from quota.state import State, evolve


def decide(
    state: State, message: Decides, _context: Context
) -> Generator[Says | CommandOutcome, State, None]:
    """Yield the outcome of a command and the change of the limit; `reconcile` yields the rest."""
    match message:
        case SetQuota():
            yield from _set(state, message)
        case DeleteQuota():
            yield from _unset(state, message)
        case _:
            assert_never(message)


def concerns(state: State, message: Hears) -> LedgerKey | PoolKey | None:
    """Return the ledger of a command, or the NodePool that is due for a check or a release.

    A limit is applied before the service processes the next input. So the batching of inputs does
    not decide which inputs the limit applies to.
    """
    match message:
        case SetQuota() | DeleteQuota():
            return ledger_key(message.org, message.zone, message.instance_type)
        case on.NodePoolValidated(key=key):
            return key if key in state.pools else None
        case (
            on.NodePoolDeleting(key=key)
            | on.CWNodePoolDeleted(key=key)
            | on.GrantAcknowledged(key=key)
            | on.CWNodeAssigned(key=key)
            | on.CWNodeDeleted(key=key)
            | on.CWNodeRegistrationFailed(key=key)
            | on.NodeReservationChanged(key=key)
        ):
            pool = state.pools.get(key)
            is_due = pool is not None and (pool.is_releasable or pool.is_uncovered)
            return key if is_due else None
        case _:
            assert_never(message)


def reconcile(
    state: State, key: LedgerKey | PoolKey, _context: Context
) -> Generator[Says, State, None]:
    """Yield the release of a NodePool, then the verdicts due in a ledger, in the order of waiting.

    The key of a ledger also renews each verdict that names outdated numbers. The key of a NodePool
    whose check failed does the same after it retries that check. An error of the retry is a failure
    of that NodePool; an error in the check of another NodePool is reported among the verdicts.
    """
    pool = state.pools.get(PoolKey(key))
    ledger = LedgerKey(key) if pool is None else pool.ledger
    own = None if pool is None else pool.key
    if pool is not None and pool.is_releasable:
        # A failed check must not undo the release, so no error of a check is raised.
        own = None
        state = yield release_nodes(state, pool)
    retried = pool.key if pool is not None and pool.fault else None
    while (due := state.ledger(ledger).next()) is not None:
        state = yield from _publish_verdict(state, due, own)
        retried = None if due == retried else retried
    if retried is not None:
        state = yield from _publish_verdict(state, retried, own)
    elif pool is not None:
        return
    for waiting in state.ledger(ledger).waiting:
        for event in recheck_pool(state, waiting):
            state = yield event


def _publish_verdict(
    state: State, key: PoolKey, own: PoolKey | None
) -> Generator[Says, State, State]:
    """Yield the verdict on a NodePool; return the state then.

    An error of the check is reported, except for the NodePool `own`: its error is raised.
    """
    for event in tuple(check_pool(state, key) if key == own else checked_safely(state, key)):
        state = yield event
    return state


def _set(state: State, command: SetQuota) -> Iterator[Says | CommandOutcome]:
    refusal = _refuse_malformed(command)
    if refusal is not None:
        yield refusal
        return
    key = ledger_key(command.org, command.zone, command.instance_type)
    ledger = state.ledger(key)
    if ledger.limit == command.limit:
        yield build_acceptance(command, "unchanged")
        return
    yield build_acceptance(command, "configured")
    yield on.QuotaSet(
        org=command.org,
        zone=command.zone,
        instance_type=command.instance_type,
        limit=command.limit,
        granted=ledger.used,
    )


def _refuse_malformed(command: SetQuota) -> CommandOutcome | None:
    """Return a refusal if a limit cannot be set because no Node could ever count against it."""
    if reason := grammar.organisation(command.org):
        return build_refusal(command, "org", reason)
    if reason := zone_fault(command.zone):
        return build_refusal(command, "zone", reason)
    if reason := type_fault(command.instance_type):
        return build_refusal(command, "instanceType", reason)
    return None


def _unset(state: State, command: DeleteQuota) -> Iterator[Says | CommandOutcome]:
    key = ledger_key(command.org, command.zone, command.instance_type)
    ledger = state.ledger(key)
    if ledger.limit is None:
        text = f"no quota is set for {command.instance_type} in {command.zone}"
        yield build_refusal(command, "instanceType", text, "NotFound")
        return
    yield build_acceptance(command, "deleted")
    yield on.QuotaDeleted(
        org=command.org,
        zone=command.zone,
        instance_type=command.instance_type,
        granted=ledger.used,
    )


def release_nodes(state: State, pool: Pool) -> on.QuotaReleased:
    """Return the release of the Nodes that a NodePool has reserved and no longer needs.

    If an earlier NodePool of the same name counted against another limit, the release for that
    limit comes first.
    """
    if pool.former is not None:
        _, zone, instance_type = ledger_parts(pool.former)
        return on.QuotaReleased(
            **pool_fields(pool.key),
            granted=0,
            zone=zone,
            instance_type=instance_type,
            used=state.ledger(pool.former).used,
        )
    _, zone, instance_type = ledger_parts(pool.ledger)
    return on.QuotaReleased(
        **pool_fields(pool.key),
        granted=pool.needed,
        zone=zone,
        instance_type=instance_type,
        used=state.ledger(pool.ledger).used - pool.reserved + pool.needed,
    )


def on_failure(state: State, failure: Failure) -> Iterable[Says]:
    """Report a NodePool whose part of a limit could not be updated, and is retried later.

    A NodePool that may be granted Nodes shows the failure. If a ledger as a whole could not be
    checked, the first NodePool to check shows the failure, or else the first NodePool that waits.
    """
    key = failure.pool
    if failure.key:
        ledger = state.ledger(LedgerKey(failure.key))
        first = ledger.next() or next(iter(ledger.waiting), None)
        key = PoolKey(failure.key) if PoolKey(failure.key) in state.pools else first
    if key is not None and key in state.pools:
        cause = f"{failure.field} {failure.cause}".strip()
        yield from report_failure(state.pools[key], cause)


SERVICE: Service[State, Hears, Says] = Service(
    name="quota",
    hears=Hears,
    says=Says,
    initial=State(),
    evolve=evolve,
    decide=decide_on(Decides, decide),
    reconciler=Reconciler(reconcile, concerns),
    on_failure=on_failure,
)
