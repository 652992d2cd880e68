"""What the capacity service says: how many of the Nodes that a NodePool wants could be had now."""

from collections.abc import Iterable, Iterator
from typing import assert_never

from capacity import Hears, Says
from capacity.state import Pool, State, evolve
from capacity.supply import Share, share_of, shares
from capacity.verdict import verdict, warning
from nodepool.contract.conditions import Capacity
from nodepool.contract.events import (
    CapacityCheckFailed,
    CWNodeAssigned,
    CWNodeDeleted,
    CWNodePoolDeleted,
    CWNodeRegistrationFailed,
    MachineAdded,
    MachineRepaired,
    NodePoolDeleting,
    NodePoolValidated,
    QuotaChecked,
)
from nodepool.contract.keys import OfferingKey
from nodepool.contract.messages import pool_fields
from nodepool.service import Context, Failure, Reconciler, Service


def decide(state: State, message: Hears, _context: Context) -> Iterator[Says]:
    """The verdict on what a NodePool was granted; verdicts on others follow in `reconcile`."""
    match message:
        case QuotaChecked(key=key, uid=uid, generation=generation):
            pool = state.pool(key, uid)
            if pool is not None and pool.generation == generation:
                yield from _checked(pool, share_of(state, pool), always=True)
        case (
            NodePoolValidated()
            | NodePoolDeleting()
            | CWNodePoolDeleted()
            | CWNodeAssigned()
            | CWNodeDeleted()
            | CWNodeRegistrationFailed()
            | MachineAdded()
            | MachineRepaired()
        ):
            return
        case _:
            assert_never(message)


def reconcile(state: State, key: OfferingKey, _context: Context) -> Iterator[Says]:
    """New verdicts on the NodePools of an offering that could have more, or less, than before."""
    for share in shares(state, key):
        yield from _checked(state.pools[share.key], share, always=False)


def _checked(pool: Pool, share: Share, *, always: bool) -> Iterator[Says]:
    """A verdict that differs from the last one, and a warning that was not given yet.

    Fewer machines for the same reason make no new verdict: what was promised is being handed out.
    """
    if always or share.reason is not pool.reason or share.available > pool.available:
        yield verdict(pool, share)
    if share.reason is not Capacity.SUFFICIENT and share.reason is not pool.warned:
        yield warning(pool, share)


def on_failure(_state: State, failure: Failure) -> Iterable[Says]:
    """A NodePool whose capacity could not be checked shows it."""
    if failure.pool is not None:
        text = f"internal error while checking capacity: {failure.cause}"
        yield CapacityCheckFailed(**pool_fields(failure.pool), message=text)


SERVICE: Service[State, Hears, Says] = Service(
    name="capacity",
    hears=Hears,
    says=Says,
    initial=State(),
    evolve=evolve,
    decide=decide,
    reconciler=Reconciler(reconcile),
    on_failure=on_failure,
)
