"""How many Nodes of a NodePool count against its limit, after an event about one of its Nodes."""

from typing import assert_never

from nodepool.contract import events as on
from nodepool.state.values import replace
from quota.pool import Pool

NodeCounted = (
    on.CWNodeAssigned | on.CWNodeDeleted | on.CWNodeRegistrationFailed | on.NodeReservationChanged
)
"""An event that may change how many Nodes of a NodePool count."""


def count_node(pool: Pool, event: NodeCounted) -> Pool:
    """Return the NodePool after an event; the same NodePool if nothing changed."""
    node, away = event.node, pool.away
    is_away = away.get(node) == event.assignment
    match event:
        case on.CWNodeAssigned():
            after = pool.with_held(pool.held + 1)
        case on.CWNodeDeleted() | on.CWNodeRegistrationFailed() if is_away:
            after = replace(pool, away=away.delete(node))
        case on.CWNodeDeleted() | on.CWNodeRegistrationFailed():
            after = pool.with_held(pool.held - 1)
        case on.NodeReservationChanged(usable=usable) if usable is not is_away:
            after = pool
        case on.NodeReservationChanged(usable=True):
            after = replace(pool, away=away.delete(node)).with_held(pool.held + 1)
        case on.NodeReservationChanged():
            lent = away.set(node, event.assignment)
            after = replace(pool, away=lent).with_held(pool.held - 1)
        case _:
            assert_never(event)
    assert after.held >= 0, f"{pool.key} holds fewer than no Nodes"
    return after
