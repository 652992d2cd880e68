"""A limit of the read model after an event about it, or about a NodePool that uses it."""

from typing import assert_never

from aggregator import QuotaCounted
from aggregator.objects import QuotaObject
from aggregator.read_model import ReadModel
from nodepool.contract import events as on
from nodepool.contract.keys import PoolKey
from nodepool.service import Context
from nodepool.state.values import replace


def update_quota(
    before: QuotaObject | None, event: QuotaCounted, context: Context
) -> QuotaObject | None:
    """Return the limit and the Nodes that count against it; `before` if neither changes.

    Return None if there is no limit and no Node counts: such a limit is not shown.
    """
    limit: int | None
    match event:
        case on.QuotaSet(limit=limit, granted=used):
            pass
        case on.QuotaDeleted(granted=used):
            limit = None
        case on.QuotaChecked(limit=limit, used=used):
            pass
        case on.QuotaReleased(used=used):
            limit = before.limit if before is not None else None
        case _:
            assert_never(event)
    if before is not None and (before.limit, before.used) == (limit, used):
        return before
    if limit is None and not used:
        return None
    return QuotaObject(
        org=event.org,
        zone=event.zone,
        instance_type=event.instance_type,
        limit=limit,
        used=used,
        version=context.position,
        given_up=before.given_up if before is not None else None,
    )


def note_given_up_quota(
    before: ReadModel, after: ReadModel, key: PoolKey, context: Context
) -> ReadModel:
    """Return the read model in which a quota shows that a NodePool gives up a part of it now.

    A NodePool gives up quota when it counts fewer Nodes after an event than before.

    before, after: the read model before and after the event.
    """
    pool, known = after.pools.get(key), before.pools.get(key)
    if pool is None or known is None or pool.grant >= known.grant:
        return after
    quota = after.quotas.get(pool.ledger)
    if quota is None:
        return after
    quota = replace(quota, given_up=context.time, version=context.position)
    return replace(after, quotas=after.quotas.set(pool.ledger, quota))
