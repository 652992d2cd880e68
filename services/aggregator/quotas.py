"""A limit of the read model after an event about it."""

from typing import assert_never

from aggregator import QuotaCounted
from aggregator.objects import QuotaObject
from nodepool.contract import events as on
from nodepool.service import Context


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
    return QuotaObject(event.org, event.zone, event.instance_type, limit, used, context.position)
