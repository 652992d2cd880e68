"""The numbers behind a shortage of quota, and the changes that would end it."""

from collections.abc import Iterator, Sequence

from nodepool.contract.counting import counted
from nodepool.explanation.facts import Facts, Limit, Peer
from nodepool.explanation.remedies import EditSpec, Remedy, ScalePeer, ScaleTo, SetLimit
from nodepool.explanation.sharing import (
    down_to_racks,
    holders,
    in_zone,
    keep_nodes,
    largest,
    rivals,
    up_to_racks,
)


def quota_details(facts: Facts) -> Iterator[str]:
    """Yield by how much the target exceeds the quota, and which NodePools hold the rest of it."""
    limit = facts.limit
    if limit is None:
        return
    others = _others(facts, limit)
    short = others + facts.target - (limit.limit or 0)
    if short > 0:
        yield f"the quota is {counted(short)} too small"
    yield f"{facts.name} reserves {facts.reserved}"
    counts = [(peer, peer.reserved) for peer in facts.peers]
    yield from holders("other NodePools reserve", others, counts)
    yield from rivals("quota", [peer for peer in facts.peers if peer.waits_for_quota])
    if facts.quota_place:
        yield f"{facts.name} has place {facts.quota_place} on the wait list of the quota"


def quota_remedies(facts: Facts) -> Iterator[Remedy]:
    """Yield the limits and targets with which the NodePool would be within its quota."""
    limit = facts.limit
    if limit is None:
        yield Remedy("raise the quota, or lower the target", EditSpec())
        return
    ahead = [peer.lacks for peer in _ahead(facts)]
    # Whoever is skipped in the order of the wait list is known with places only.
    room = needed_room(_lacks(facts), ahead) if facts.quota_place else _lacks(facts) + sum(ahead)
    yield _raise(facts, limit, limit.used + room, served_before=room - _lacks(facts))
    fitting = down_to_racks(facts, (limit.limit or 0) - _others(facts, limit))
    if facts.held < fitting < facts.target and not facts.autoscaling:
        yield Remedy(f"scale {facts.name} to {fitting}, which fits", ScaleTo(fitting))
    elif limit.limit is not None:
        yield from keep_nodes(facts)
    yield from _take_from_peer(facts, limit)


def quota_proofs(facts: Facts) -> Iterator[tuple[int, str]]:
    """Yield where in the log the limit and those that hold it changed last."""
    if facts.limit is not None:
        yield facts.limit.position, f"quota {facts.zone}.{facts.instance_type}"
    for peer in largest([(peer, peer.reserved) for peer in facts.peers]):
        yield peer.position, f"nodepool {peer.name}"


def needed_room(lacks: int, ahead: Sequence[int]) -> int:
    """Return how much room makes a NodePool fit that lacks so many Nodes.

    ahead: what the NodePools lack that are served before it, in their order. A NodePool that does
    not fit is skipped, so that less room than for all of them may do.
    """
    room = lacks
    while True:
        left = room
        for each in ahead:
            left -= each if each <= left else 0
        if left >= lacks:
            return room
        room += lacks - left


def _raise(facts: Facts, limit: Limit, enough: int, *, served_before: int) -> Remedy:
    verb = "set" if limit.limit is None else "raise"
    text = f"{verb} the quota of {facts.instance_type}{in_zone(facts)} to {enough}"
    if served_before > 0:
        text += f", {served_before} of them for what is served before {facts.name}"
    return Remedy(text, SetLimit(enough))


def _take_from_peer(facts: Facts, limit: Limit) -> Iterator[Remedy]:
    """Yield the lower target of one NodePool that gives back enough.

    It gives its Nodes back one by one, and each may go to whichever NodePool fits first: so there
    has to be enough for all that wait.
    """
    if limit.limit is None:
        return
    givers = [peer for peer in facts.peers if peer.yields and peer.reserved]
    if not givers:
        return
    most = min(givers, key=lambda peer: (-peer.reserved, peer.name))
    lacks = _lacks(facts) + sum(peer.lacks for peer in facts.peers if peer is not most)
    short = limit.used + lacks - limit.limit
    left = most.reserved - up_to_racks(facts, short)
    if short > 0 and 0 <= left < most.target:
        text = f"scale {most.name} down to {left}"
        yield Remedy(text, ScalePeer(most.name, left))


def _ahead(facts: Facts) -> list[Peer]:
    """Return the NodePools that are served before this one, in their order; without places, all."""
    waiting = [peer for peer in facts.peers if peer.lacks]
    if facts.quota_place:
        waiting = [peer for peer in waiting if peer.quota_place < facts.quota_place]
    return sorted(waiting, key=lambda peer: (peer.quota_place, peer.name))


def _lacks(facts: Facts) -> int:
    return max(0, facts.target - facts.reserved)


def _others(facts: Facts, limit: Limit) -> int:
    """Return how many Nodes all other NodePools together take of the quota."""
    return max(0, limit.used - facts.reserved)
