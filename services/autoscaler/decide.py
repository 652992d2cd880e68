"""What the autoscaler says: the target that would be right for a NodePool, when it is another.

Nothing follows from a message alone: all of it follows from the whole state, in `reconcile`, at a
`Wake`. That is stored after all that the log holds by then, so a replica that catches up says
nothing about Pods that are gone.
"""

from collections.abc import Iterator

from autoscaler import Hears, Says
from autoscaler.state import State, evolve
from autoscaler.target import advice, next_change
from nodepool.contract.events import AutoscalingFailed, NodePoolAutoscaled
from nodepool.contract.keys import PoolKey
from nodepool.contract.messages import pool_fields
from nodepool.service import Context, Failure, Reconciler, Service


def reconcile(state: State, key: PoolKey, context: Context) -> Iterator[Says]:
    """Another target for a NodePool, where that is right now."""
    pool = state.pools.get(key)
    right = advice(pool, context.time) if pool is not None else None
    if pool is not None and right is not None:
        yield NodePoolAutoscaled(
            **pool_fields(key),
            uid=pool.uid,
            generation=pool.generation,
            target=right.target,
            message=right.message,
        )


def on_failure(state: State, failure: Failure) -> Iterator[Says]:
    """A NodePool for which another target is right, and could not be said; it is tried again."""
    key = PoolKey(failure.key) if failure.key else failure.pool
    pool = state.pools.get(key) if key is not None else None
    if pool is not None and next_change(pool) is not None:
        text = f"internal error while autoscaling: {failure.cause}"
        yield AutoscalingFailed(**pool_fields(pool.key), message=text)


SERVICE: Service[State, Hears, Says] = Service(
    name="autoscaler",
    hears=Hears,
    says=Says,
    initial=State(),
    evolve=evolve,
    reconciler=Reconciler(reconcile),
    on_failure=on_failure,
)
