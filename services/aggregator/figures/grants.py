"""The grants of a NodePool that the allocator may still use.

The allocator may use an older and larger grant until it has acknowledged a newer grant. Only then
may the Nodes that were given back be granted to other NodePools.
"""

from typing import Final, NamedTuple

from nodepool.contract.events import GrantAcknowledged, QuotaChecked

GRANTS_MAX: Final = 16
"""How many grants are kept; the largest of the older grants stands for all older grants."""


class Grants(NamedTuple):
    """The grants that may still be used.

    grants: the number of each grant, and how many Nodes it allows.
    most: how many Nodes the largest of these grants allows.
    is_final: whether no grant will be used any more, not even a later grant.
    """

    grants: tuple[tuple[int, int], ...] = ()
    most: int = 0
    is_final: bool = False


NO_GRANTS: Final = Grants()
FINAL: Final = Grants(is_final=True)


def add_grant(known: Grants, event: QuotaChecked) -> Grants:
    """Return the grants with a new grant; the same object if it is the newest grant already.

    A verdict repeats its grant with the same number, also after the grant was given back.
    """
    grant = event.number, event.granted
    newest = known.grants[-1][0] if known.grants else None
    if known.is_final or event.number == newest:
        return known
    older = list(known.grants)
    if len(older) >= GRANTS_MAX:
        first, second, *rest = older
        older = [(second[0], max(first[1], second[1])), *rest]
    return _grants((*older, grant))


def acknowledge_grant(known: Grants, event: GrantAcknowledged) -> Grants:
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
