"""Decides what the allocator publishes: which machines join NodePools, and which Nodes leave."""

from collections.abc import Generator, Iterable, Iterator, Mapping
from datetime import datetime
from typing import assert_never

from allocator import Decides, Hears, Says
from allocator.give_way import preempt_nodes
from allocator.grow import announce_growth, assign_machines
from allocator.pool import Pool, Stage
from allocator.reclaim import held_back, outcome
from allocator.shrink import shrunk
from allocator.state import State, evolve
from nodepool.contract import events as on
from nodepool.contract.catalog import is_offered
from nodepool.contract.commands_spot import ReclaimCapacity, ReturnCapacity
from nodepool.contract.keys import (
    OfferingKey,
    PoolKey,
    as_pool_key,
    offering_key,
    offering_parts,
)
from nodepool.contract.messages import pool_fields
from nodepool.contract.outcomes import CommandOutcome
from nodepool.service import Context, Failure, Reconciler, Service, decide_on


def decide(
    state: State, message: Decides, context: Context
) -> Generator[Says | CommandOutcome, State, None]:
    """Yield the outcome of a command, or the announcement before an assignment.

    `reconcile` yields all other events.
    """
    match message:
        case ReclaimCapacity() | ReturnCapacity():
            yield from outcome(state, message, context.time)
        case on.CapacityChecked(key=key, uid=uid):
            pool = state.pool(key, uid)
            if pool is not None:
                yield from announce_growth(pool)
        case _:
            assert_never(message)


def concerns(state: State, message: Hears) -> OfferingKey | PoolKey | None:
    """Return the offering to serve after a command or a check, else a NodePool that may shrink."""
    match message:
        case on.CapacityChecked(key=key):
            pool = state.pools.get(key)
            is_new = pool is not None and pool.check is not None and not pool.check.is_renewed
            return pool.offering if pool is not None and is_new and pool.shortfall else None
        case ReclaimCapacity() | ReturnCapacity():
            zone, kind = message.zone, message.instance_type
            return offering_key(zone, kind) if is_offered(kind, zone) else None
        case (
            on.NodePoolValidated(key=key)
            | on.NodePoolDeleting(key=key)
            | on.QuotaChecked(key=key)
            | on.CWNodeRegistered(key=key)
            | on.CWNodeRegistrationFailed(key=key)
            | on.NodeActivityChanged(key=key)
            | on.NodeReservationChanged(key=key)
            | on.NodeKept(key=key)
            | on.NodePreempted(key=key)
            | on.PreemptionPending(key=key)
            | on.CWNodeDeleted(key=key)
        ):
            return key if key in state.pools else None
        case on.NodeUpdated(key=key):
            pool = state.pools.get(key)
            return key if pool is not None and pool.surplus else None
        case _:
            return None


def reconcile(
    state: State, key: OfferingKey | PoolKey, context: Context
) -> Generator[Says, State, None]:
    """Yield the events that are due for an offering or for a NodePool.

    The events of an offering supply the NodePools that wait for its machines. The events of a
    NodePool report undelivered Nodes, acknowledge its grant and remove its surplus Nodes. If a
    NodePool failed, its offering is supplied too, since any of these steps may have failed.
    """
    pool = state.pools.get(PoolKey(key))
    if pool is None:
        yield from _shared_out(state, OfferingKey(key), context.time)
        return
    yield from _report_undelivered(pool)
    yield from _acknowledge_grant(pool)
    yield from shrunk(pool)
    if pool.failure:
        taken, failed = yield from _shared_out(state, pool.offering, context.time, pool.key)
        if pool.key in failed:
            return
        if not taken.get(pool.key):
            yield from announce_growth(pool)
        yield on.AllocationRecovered(**pool_fields(pool.key), uid=pool.uid)


def _shared_out(
    state: State, offering: OfferingKey, now: datetime, retried: PoolKey | None = None
) -> Generator[Says, State, tuple[Mapping[PoolKey, int], Mapping[PoolKey, str]]]:
    """Share out the machines of an offering: an operator comes first, and spot comes last.

    Return how many machines each NodePool takes, and why a NodePool failed.

    A NodePool that fails is passed over. The failure is reported the first time, and at each retry
    of `retried`.
    """
    line = state.inventory.line(offering)
    failed: dict[PoolKey, str] = {}
    yield from held_back(state, offering, line)
    taken = yield from assign_machines(state, offering, line, failed)
    yield from preempt_nodes(state, offering, taken, failed, now)
    for key, cause in failed.items():
        if key == retried or not state.pools[key].failure:
            yield from _report_failure(state.pools[key], cause)
    return taken, failed


def _report_undelivered(pool: Pool) -> Iterator[Says]:
    """Report each machine that did not register, and once each `Settings` fault of the spec.

    A deleted NodePool reports neither: its deletion drops what was not reported before.
    """
    for node, reason in pool.undelivered:
        text = f"not delivered: {reason}"
        yield on.CWNodeDeliverFail(**pool_fields(pool.key), node=node, message=text)
    if pool.has_settings_fault and pool.fault != pool.reported:
        text = f"Nodes cannot be delivered: {pool.fault}"
        yield on.CWNodeDeliverFail(**pool_fields(pool.key), message=text)


def _acknowledge_grant(pool: Pool) -> Iterator[Says]:
    granted = pool.unused_grant
    if granted is not None:
        yield on.GrantAcknowledged(
            **pool_fields(pool.key),
            uid=pool.uid,
            generation=pool.generation,
            granted=granted,
            number=pool.grant.number if pool.grant is not None else 0,
            final=pool.stage is not Stage.ACTIVE,
        )


def on_failure(state: State, failure: Failure) -> Iterable[Says]:
    """Report a NodePool whose Nodes could not be decided on; tell users once per cause.

    An unknown NodePool is not reported: it is gone or still to come, and would never be tried
    again. An offering without a waiting NodePool is tried again for the operator who reclaims
    machines.
    """
    key = _find_failed_pool(state, failure)
    pool = state.pools.get(key) if key is not None else None
    if pool is None:
        offering = OfferingKey(failure.key)
        if offering in state.supplies or state.stock(offering).to_reclaim:
            zone, kind = offering_parts(offering)
            text = f"internal error while reclaiming machines: {failure.cause}"
            yield on.CapacityReclaimFailed(zone=zone, instance_type=kind, message=text)
        return
    yield from _report_failure(pool, failure.cause)


def _report_failure(
    pool: Pool, cause: str
) -> Iterator[on.AllocationFailed | on.CWNodePoolNodesRequestFailed]:
    """Report that a decision about a NodePool failed, to people only if the cause is new."""
    text = f"internal error while allocating Nodes: {cause}"
    yield on.AllocationFailed(**pool_fields(pool.key), uid=pool.uid, message=text)
    if pool.failure != text:
        yield on.CWNodePoolNodesRequestFailed(**pool_fields(pool.key), message=text)


def _find_failed_pool(state: State, failure: Failure) -> PoolKey | None:
    """Return the NodePool that failed; for an offering, the first NodePool that waits for it."""
    if not failure.key:
        return failure.pool
    return as_pool_key(failure.key) or next(iter(state.ranking(OfferingKey(failure.key))), None)


SERVICE: Service[State, Hears, Says] = Service(
    name="allocator",
    hears=Hears,
    says=Says,
    initial=State(),
    evolve=evolve,
    decide=decide_on(Decides, decide),
    reconciler=Reconciler(reconcile, concerns),
    on_failure=on_failure,
)
