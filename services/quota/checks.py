"""What is said of one NodePool: a verdict, a warning, or that its check failed."""

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


def checked(state: State, key: PoolKey) -> Iterator[Check]:
    """The verdict on a NodePool; a bug that its data brings up is raised."""
    pool = state.pools[key]
    new = verdict(pool, state.ledger(pool.ledger))
    yield new
    if new.reason is not Quota.UNDER and pool.warned != Warned(new.reason, pool.target, new.limit):
        yield on.CWOverQuota(**pool_fields(key), message=new.message)


def checked_safely(state: State, key: PoolKey) -> tuple[Check, ...]:
    """The same, or the report of a bug, so that one NodePool does not keep others waiting."""
    try:
        return tuple(checked(state, key))
    except NO_FAILURE:
        raise
    except Exception as error:
        return tuple(reported(state.pools[key], describe(error)))


def renewed(state: State, key: PoolKey) -> tuple[Check, ...]:
    """The same where it says something else than what was published last, else nothing."""
    pool = state.pools[key]
    events = checked_safely(state, key)
    match events[0]:
        case on.QuotaChecked(reason=Quota.UNDER) if pool.unvalidated:
            return ()  # It gets nothing more before its newest version is validated.
        case on.QuotaChecked(reason=reason, granted=granted, message=text):
            last = pool.reason, pool.granted, pool.message
            is_new = bool(pool.fault) or last != (reason, granted, text)
        case failure:
            is_new = failure.message != pool.fault
    return events if is_new else events[1:]


def reported(pool: Pool, cause: str) -> Iterator[Check]:
    """A check that failed; users are told of a new reason, where they may be granted anything."""
    text = f"internal error while checking quota: {cause}"
    yield on.QuotaCheckFailed(**pool_fields(pool.key), message=text)
    if text != pool.fault and pool.eligible:
        yield on.CWNodePoolQuotaCheckFailed(**pool_fields(pool.key), uid=pool.uid, message=text)
