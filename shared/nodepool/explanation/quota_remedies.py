"""The numbers behind a shortage of quota, and the changes that would end the shortage."""

from collections.abc import Iterator

from nodepool.contract.counting import format_count
from nodepool.explanation.facts import Facts, Limit, Peer
from nodepool.explanation.remedies import (
    EditSpec,
    Remedy,
    ScalePeer,
    ScaleTo,
    SetLimit,
    Wait,
)
from nodepool.explanation.sharing import (
    down_to_racks,
    holders,
    in_zone,
    keep_nodes,
    largest,
    rivals,
)


def quota_details(facts: Facts) -> Iterator[str]:
    """Yield by how much the target exceeds the quota, and which NodePools hold the rest of it."""
    limit = facts.limit
    if limit is None:
        return
    others = _others(facts)
    short = others + facts.target - (limit.limit or 0)
    if short > 0:
        yield f"the quota is {format_count(short)} too small"
    yield f"{facts.name} reserves {facts.reserved}"
    counts = [(peer, peer.reserved) for peer in facts.peers]
    yield from holders("other NodePools reserve", others, counts)
    yield from rivals("the same quota", [peer for peer in facts.peers if peer.waits_for_quota])


def quota_remedies(facts: Facts) -> Iterator[Remedy]:
    """Yield the limits and targets with which the NodePool would be within its quota."""
    limit = facts.limit
    if limit is None:
        yield Remedy("raise the quota, or lower the target", EditSpec())
        return
    known = facts.reserved + _others(facts)
    if (gone := limit.used - known) > 0:
        text = f"wait: NodePools have given up {format_count(gone)} that the quota still counts"
        yield Remedy(f"{text}; the allocator and the quota service release quota", Wait())
    ahead = sum(peer.lacks for peer in _ahead(facts))
    yield from _raise(facts, limit, known + _lacks(facts) + ahead, ahead)
    fitting = down_to_racks(facts, (limit.limit or 0) - _others(facts))
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


def _raise(facts: Facts, limit: Limit, enough: int, ahead: int) -> Iterator[Remedy]:
    """Yield the limit that is enough, unless quota that is given up leaves enough of this one."""
    if limit.limit is not None and enough <= limit.limit:
        return
    verb = "set" if limit.limit is None else "raise"
    # Without a limit the autoscaler asks for no Node, whatever waits.
    more = int(limit.limit is None and facts.target < facts.max_nodes)
    text = f"{verb} the quota of {facts.instance_type}{in_zone(facts)} to {enough + more}"
    if more:
        text += f", or more: its autoscaler may want up to {facts.max_nodes} Nodes"
    if ahead:
        text += f", up to {ahead} of them for what may be served before {facts.name}"
    yield Remedy(text, SetLimit(enough + more))


def _take_from_peer(facts: Facts, limit: Limit) -> Iterator[Remedy]:
    """Yield the lower target of one NodePool that gives back enough.

    That NodePool gives its Nodes back one by one. Each Node may go to any NodePool that fits, or
    whose autoscaler asks first. So the Nodes have to be enough for all that wait or may grow.
    """
    if limit.limit is None:
        return
    givers = [peer for peer in facts.peers if peer.yields and peer.reserved]
    if not givers:
        return
    most = min(givers, key=lambda peer: (-peer.reserved, peer.name))
    others = [peer for peer in facts.peers if peer is not most]
    lacks = _lacks(facts) + sum(peer.lacks + peer.may_grow for peer in others)
    short = facts.reserved + _others(facts) + lacks - limit.limit
    left = down_to_racks(facts, most.reserved - short)
    if short > 0 and 0 <= left < most.target:
        text = f"scale {most.name} down to {left}"
        yield Remedy(text, ScalePeer(most.name, left))


def _ahead(facts: Facts) -> list[Peer]:
    """Return the NodePools that may be served before this NodePool: all that wait for quota."""
    return [peer for peer in facts.peers if peer.lacks]


def _lacks(facts: Facts) -> int:
    return max(0, facts.target - facts.reserved)


def _others(facts: Facts) -> int:
    """Return how many Nodes all other NodePools together take of the quota."""
    return sum(peer.reserved for peer in facts.peers)
