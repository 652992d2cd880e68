"""What the allocator says: which machines join NodePools, and which Nodes leave them."""

from collections.abc import Iterable, Iterator
from typing import assert_never

from allocator import Hears, Says
from allocator.grow import requested, served
from allocator.pool import Pool
from allocator.shrink import shrunk
from allocator.state import State, evolve
from nodepool.contract.events import (
    AllocationFailed,
    CapacityChecked,
    CapacityCheckFailed,
    CWNodeDeleted,
    CWNodeDeliverFail,
    CWNodePoolDeleted,
    CWNodePoolNodesRequestFailed,
    CWNodeRegistered,
    CWNodeRegistrationFailed,
    GrantAcknowledged,
    MachineAdded,
    MachineRepaired,
    NodeActivityChanged,
    NodeKept,
    NodePoolDeleting,
    NodePoolValidated,
    NodePreempted,
    PreemptionPending,
    QuotaChecked,
)
from nodepool.contract.keys import OfferingKey, PoolKey, as_pool_key
from nodepool.contract.messages import pool_fields
from nodepool.service import Context, Failure, Reconciler, Service


def decide(state: State, message: Hears, _context: Context) -> Iterator[Says]:
    """What follows from one message alone: faults, acknowledged grants, announced requests."""
    match message:
        case NodePoolValidated(key=key):
            yield from _undeliverable(state.pools[key], message)
        case QuotaChecked(key=key, uid=uid):
            yield from _acknowledged(state.pool(key, uid))
        case CapacityChecked(key=key, uid=uid):
            pool = state.pool(key, uid)
            if pool is not None and pool.may_grow:
                yield from requested(pool)
        case CWNodeRegistrationFailed(key=key, node=node, message=text):
            if key in state.pools:
                text = f"not delivered: {text}"
                yield CWNodeDeliverFail(**pool_fields(key), node=node, message=text)
        case (
            NodePoolDeleting()
            | CWNodePoolDeleted()
            | CapacityCheckFailed()
            | CWNodeRegistered()
            | NodeActivityChanged()
            | NodeKept()
            | CWNodeDeleted()
            | NodePreempted()
            | PreemptionPending()
            | MachineAdded()
            | MachineRepaired()
        ):
            return
        case _:
            assert_never(message)


def concerns(state: State, message: Hears) -> OfferingKey | PoolKey | None:
    """The offering to serve after a capacity check, else the NodePool that may have to shrink."""
    match message:
        case CapacityChecked(key=key):
            pool = state.pools.get(key)
            return pool.offering if pool is not None and pool.shortfall else None
        case (
            NodePoolValidated(key=key)
            | NodePoolDeleting(key=key)
            | QuotaChecked(key=key)
            | CWNodeRegistered(key=key)
            | CWNodeRegistrationFailed(key=key)
            | NodeActivityChanged(key=key)
            | NodeKept(key=key)
            | NodePreempted(key=key)
            | PreemptionPending(key=key)
            | CWNodeDeleted(key=key)
        ):
            return key if key in state.pools else None
        case CWNodePoolDeleted() | CapacityCheckFailed() | MachineAdded() | MachineRepaired():
            return None
        case _:
            assert_never(message)


def reconcile(state: State, key: OfferingKey | PoolKey, _context: Context) -> Iterator[Says]:
    """The machines that NodePools of an offering wait for, or the Nodes a NodePool gives up."""
    pool = state.pools.get(PoolKey(key))
    if pool is not None:
        yield from shrunk(pool)
    else:
        yield from served(state, OfferingKey(key))


def _undeliverable(pool: Pool, event: NodePoolValidated) -> Iterator[Says]:
    text = f"Nodes cannot be delivered: {event.message}"
    if event.fault == "Settings" and text != pool.fault:
        yield CWNodeDeliverFail(**pool_fields(pool.key), message=text)


def _acknowledged(pool: Pool | None) -> Iterator[Says]:
    if pool is None or pool.unused_grant is None:
        return
    yield GrantAcknowledged(
        **pool_fields(pool.key),
        uid=pool.uid,
        generation=pool.generation,
        granted=pool.unused_grant,
    )


def on_failure(_state: State, failure: Failure) -> Iterable[Says]:
    """A NodePool whose Nodes could not be decided on shows it."""
    key = as_pool_key(failure.key) if failure.key else failure.pool
    if key is not None:
        text = f"internal error while allocating Nodes: {failure.cause}"
        yield AllocationFailed(**pool_fields(key), message=text)
        yield CWNodePoolNodesRequestFailed(**pool_fields(key), message=text)


SERVICE: Service[State, Hears, Says] = Service(
    name="allocator",
    hears=Hears,
    says=Says,
    initial=State(),
    evolve=evolve,
    decide=decide,
    reconciler=Reconciler(reconcile, concerns),
    on_failure=on_failure,
)
