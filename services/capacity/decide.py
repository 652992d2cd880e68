"""Decides what the capacity service publishes: how many of the lacking Nodes could be had now."""

from collections.abc import Generator, Iterable, Iterator
from typing import assert_never

from capacity import Decides, Hears, Says
from capacity.finder import answer
from capacity.pool import Pool, Share
from capacity.renewals import is_exact
from capacity.state import State, evolve
from capacity.supply import share_of, shares
from capacity.verdict import is_new, verdict, warning
from nodepool.contract import events as on
from nodepool.contract.commands import FindCapacity
from nodepool.contract.conditions import Capacity
from nodepool.contract.exceptions import passing_over
from nodepool.contract.keys import OfferingKey, PoolKey
from nodepool.contract.messages import pool_fields
from nodepool.contract.outcomes import CommandOutcome
from nodepool.service import Context, Failure, Reconciler, Service, decide_on


def decide(
    state: State, message: Decides, _context: Context
) -> Generator[Says | CommandOutcome, State, None]:
    """Yield the answer to a query, or the verdict on what a NodePool was granted.

    Verdicts on other NodePools follow in `reconcile`.
    """
    match message:
        case FindCapacity():
            yield from answer(state, message)
        case on.QuotaChecked(key=key, uid=uid):
            yield from _check_pool(state, state.pool(key, uid))
        case _:
            assert_never(message)


def reconcile(
    state: State, key: OfferingKey | PoolKey, _context: Context
) -> Generator[Says, State, None]:
    """Yield new verdicts on the NodePools of an offering; first on a NodePool whose check failed.

    That may have kept all others of its offering from theirs.
    """
    pool, failed = state.pools.get(PoolKey(key)), dict[PoolKey, str]()
    yield from _check_pool(state, pool)
    offering = pool.offering if pool is not None else OfferingKey(key)
    exact = is_exact(state.work, offering)
    for share in shares(state, offering, failed):
        if share.key != key and state.pools[share.key].goal is not None:
            events: tuple[Says, ...] = ()
            with passing_over(share.key, failed):
                events = tuple(_publish_verdict(state.pools[share.key], share, exact=exact))
            for event in events:
                yield event
    for each, cause in failed.items():
        if state.pools[each].said is not None:  # Otherwise the failure is already reported.
            yield _report_failure(state.pools[each], cause)


def _check_pool(state: State, pool: Pool | None) -> Iterator[Says]:
    """Yield the verdict on a NodePool once its quota was checked for its current target."""
    if pool is not None and pool.goal is not None:
        yield from _publish_verdict(pool, share_of(state, pool))


def _publish_verdict(pool: Pool, share: Share, *, exact: bool = False) -> Iterator[Says]:
    """Yield a verdict that says something new, and a new warning.

    exact: whether a small change of its position is new, too.
    """
    if pool.said is None or is_new(pool, share, pool.said, exact=exact):
        yield verdict(pool, share)
    if share.reason is not Capacity.SUFFICIENT and _is_new_warning(pool, share):
        yield warning(pool, share)


def _is_new_warning(pool: Pool, share: Share) -> bool:
    """Return whether the NodePool wants another number of Nodes, or lacks more for this reason.

    What was warned of stays known until the target changes or there are enough machines, so a
    machine that comes and goes while others are missing is warned of once.
    """
    if pool.warned is None or pool.warned[1] != (pool.goal or 0):
        return True
    known = pool.lacked.get(share.reason)
    if known is None:
        return pool.warned[0] is not share.reason
    return pool.claim - share.available > known


def on_failure(state: State, failure: Failure) -> Iterable[Says]:
    """Yield the failed check of a NodePool; for an offering, of the first NodePool there.

    An unknown NodePool is gone, or was never valid.
    """
    key = failure.pool
    if failure.key:
        offering = OfferingKey(failure.key)
        concerned = (*state.ranking(offering), *state.short.get(offering, ()))
        key = PoolKey(failure.key) if failure.key in state.pools else next(iter(concerned), None)
    pool = state.pools.get(key) if key is not None else None
    if pool is not None:
        yield _report_failure(pool, failure.cause)


def _report_failure(pool: Pool, cause: str) -> on.CapacityCheckFailed:
    """Report that the check of a NodePool failed."""
    text = f"internal error while checking capacity: {cause}"
    return on.CapacityCheckFailed(**pool_fields(pool.key), uid=pool.uid, message=text)


SERVICE: Service[State, Hears, Says] = Service(
    name="capacity",
    hears=Hears,
    says=Says,
    initial=State(),
    evolve=evolve,
    decide=decide_on(Decides, decide),
    reconciler=Reconciler(reconcile),
    on_failure=on_failure,
)
