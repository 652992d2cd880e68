"""The events of the autoscaler: the right target for a NodePool whose current target is different.

No event follows from a message alone. Each event follows from the whole state, in `reconcile`, at a
`Wake`. A `Wake` is stored after everything that is in the log by then, so a replica that catches up
publishes nothing about Pods that are gone.
"""

from collections.abc import Generator, Iterator

from autoscaler import Hears, Says
from autoscaler.state import State, evolve
from autoscaler.target import advice, next_change
from nodepool.contract.events import AutoscalingFailed, NodePoolAutoscaled
from nodepool.contract.exceptions import passing_over
from nodepool.contract.keys import LedgerKey, PoolKey
from nodepool.contract.messages import pool_fields
from nodepool.service import Context, Failure, Reconciler, Service


def reconcile(
    state: State, key: LedgerKey | PoolKey, context: Context
) -> Generator[Says, State, None]:
    """Yield another target for a NodePool, where that is right now.

    For the key of a limit with more room, this is for each NodePool that needs more Nodes under it.
    A NodePool for which there is no room is passed over. So is a NodePool that fails, which is
    tried again later.
    """
    if PoolKey(key) in state.pools:
        yield from _target(state, PoolKey(key), context)
        return
    failed: dict[PoolKey, str] = {}
    for full in state.ledger(LedgerKey(key)).full:
        if not state.ledger(LedgerKey(key)).room_with(state.pools[full].own_room):
            continue
        events: tuple[NodePoolAutoscaled, ...] = ()
        with passing_over(full, failed):
            events = tuple(_target(state, full, context))
        for event in events:
            state = yield event
    for full, cause in failed.items():
        yield _report_failure(full, cause)


def _target(state: State, key: PoolKey, context: Context) -> Iterator[NodePoolAutoscaled]:
    pool = state.pools[key]
    right = advice(pool, state.ledger(pool.ledger), context.time)
    if right is not None:
        yield NodePoolAutoscaled(
            **pool_fields(key),
            uid=pool.uid,
            generation=pool.generation,
            target=right.target,
            message=right.message,
        )


def on_failure(state: State, failure: Failure) -> Iterator[Says]:
    """Yield that the target of a NodePool could not be decided, and is tried again.

    For a limit it is the first NodePool that needs more Nodes.
    """
    key = PoolKey(failure.key) if failure.key else failure.pool
    if key is not None and key not in state.pools:
        key = state.ledger(LedgerKey(key)).full.head
    pool = state.pools.get(key) if key is not None else None
    if pool is not None and next_change(pool) is not None:
        yield _report_failure(pool.key, failure.cause)


def _report_failure(key: PoolKey, cause: str) -> AutoscalingFailed:
    """Report that no target could be decided on for a NodePool."""
    return AutoscalingFailed(
        **pool_fields(key), message=f"internal error while autoscaling: {cause}"
    )


SERVICE: Service[State, Hears, Says] = Service(
    name="autoscaler",
    hears=Hears,
    says=Says,
    initial=State(),
    evolve=evolve,
    reconciler=Reconciler(reconcile),
    on_failure=on_failure,
    acts_alone=True,
)
