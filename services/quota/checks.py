"""The events about one NodePool: a verdict, a warning, or a failed check."""

from collections.abc import Iterator

from nodepool.contract import events as on
from nodepool.contract.conditions import Quota
from nodepool.contract.exceptions import NO_FAILURE, describe
from nodepool.contract.keys import PoolKey
from nodepool.contract.messages import pool_fields
from quota.pool import Pool, Warned
from quota.state import State
from quota.verdict import verdict

Check = on.QuotaChecked | on.QuotaCheckFailed | on.CWOverQuota | on.CWNodePoolQuotaCheckFailed


def check_pool(state: State, key: PoolKey) -> Iterator[Check]:
    """Yield the verdict on a NodePool, and a warning if the verdict calls for a new warning.

    An error that the data of the NodePool causes is raised.
    """
    pool = state.pools[key]
    new = verdict(pool, state.ledger(pool.ledger))
    yield new
    if new.reason is not Quota.UNDER and pool.warned != Warned(new.reason, pool.target, new.limit):
        yield on.CWOverQuota(**pool_fields(key), message=new.message)


def checked_safely(state: State, key: PoolKey) -> tuple[Check, ...]:
    """Return the verdict on a NodePool; if the check fails, return a report of the failure.

    So a NodePool whose check fails does not delay other NodePools.
    """
    try:
        return tuple(check_pool(state, key))
    except NO_FAILURE:
        raise
    except Exception as error:
        return tuple(report_failure(state.pools[key], describe(error)))


def recheck_pool(state: State, key: PoolKey) -> tuple[Check, ...]:
    """Return the events of a new check, without a verdict or failure that is already published."""
    pool = state.pools[key]
    events = checked_safely(state, key)
    match events[0]:
        case on.QuotaChecked(reason=Quota.UNDER) if pool.unvalidated:
            return ()  # It gets no more Nodes until its newest version is validated.
        case on.QuotaChecked(reason=reason, granted=granted, message=text):
            last = pool.reason, pool.granted, pool.message
            is_new = bool(pool.fault) or last != (reason, granted, text)
        case failure:
            is_new = failure.message != pool.fault
    return events if is_new else events[1:]


def report_failure(pool: Pool, cause: str) -> Iterator[Check]:
    """Yield the failure of a check; tell users about a new cause if the NodePool may get Nodes."""
    text = f"internal error while checking quota: {cause}"
    yield on.QuotaCheckFailed(**pool_fields(pool.key), message=text)
    if text != pool.fault and pool.eligible:
        yield on.CWNodePoolQuotaCheckFailed(**pool_fields(pool.key), uid=pool.uid, message=text)
