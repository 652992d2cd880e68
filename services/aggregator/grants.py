"""The grants of a NodePool that the allocator may still use.

It may use an older and larger one until it has acknowledged a newer one: only then may what was
given back be granted to others.
"""

from typing import Final, NamedTuple

from nodepool.contract.events import GrantAcknowledged, QuotaChecked

GRANTS_MAX: Final = 16
"""How many are kept; the largest of older ones stands for them."""


class Grants(NamedTuple):
    """The grants that may still be used.

    grants: by number, how many Nodes each allows.
    most: the most that any of them does.
    is_final: whether none is used any more, whatever is granted after that.
    """

    grants: tuple[tuple[int, int], ...] = ()
    most: int = 0
    is_final: bool = False


NO_GRANTS: Final = Grants()
FINAL: Final = Grants(is_final=True)


def granted(known: Grants, event: QuotaChecked) -> Grants:
    """Return the grants with a new grant; the same object if it is the newest grant already."""
    grant = event.number, event.granted
    if known.is_final or known.grants[-1:] == (grant,):
        return known
    older = list(known.grants)
    if len(older) >= GRANTS_MAX:
        first, second, *rest = older
        older = [(second[0], max(first[1], second[1])), *rest]
    return _grants((*older, grant))


def acknowledged(known: Grants, event: GrantAcknowledged) -> Grants:
    """Return the grants from the acknowledged grant on.

    That grant allows no more than the allocator has acknowledged: an invalid NodePool gets nothing.
    The grant itself may be unknown here, because the NodePool was invalid when it was published.
    """
    if event.final:
        return FINAL
    later = tuple(grant for grant in known.grants if grant[0] > event.number)
    if later == known.grants:
        return known
    nodes = dict(known.grants).get(event.number, event.granted)
    return _grants(((event.number, min(nodes, event.granted)), *later))


def _grants(grants: tuple[tuple[int, int], ...]) -> Grants:
    return Grants(grants, max(count for _, count in grants))
