"""The numbers behind a shortage of quota, and the changes that would end the shortage."""

from collections.abc import Iterator
from typing import Final

from nodepool.contract.counting import format_count
from nodepool.explanation.facts import Facts, Limit, Peer
from nodepool.explanation.leaving import keep_nodes
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
    in_racks,
    in_zone,
    largest,
    list_names,
    rivals,
)
from nodepool.explanation.unanswered import is_late

COUNTED: Final = "each of its Nodes counts until it is idle and has left"
"""Why a NodePool with a lower target does not give its quota back yet."""
SILENT: Final = "a Node that does not answer leaves first, and counts until it is treated as dead"
"""The same if its first Node to leave does not answer."""
_IF_IT_LASTS: Final = (
    "if that lasts, see that the allocator and the quota service run: "
    "'nodepool doctor' says what is wrong with them"
)
"""What helps if quota that is given up is not released, which takes milliseconds."""
COUNTS: Final = "a Node counts until it has left"
"""Why quota that is being given back is not there yet."""


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
    if limit.limit is not None:
        for peer in largest([(peer, peer.returning) for peer in facts.peers]):
            count = format_count(peer.returning)
            if peer.deleting:
                yield f"{peer.name} is being deleted and has {count}: {COUNTS}"
            else:
                yield f"{peer.name} has {count} more than it keeps: {_delay(peer)}"


def unreleased(facts: Facts) -> str:
    """Return a sentence on the Nodes that NodePools gave up and the quota still counts, if any."""
    used = facts.limit.used if facts.limit is not None else 0
    gone = used - facts.reserved - _others(facts)
    if gone <= 0:
        return ""
    return f"NodePools have given up {format_count(gone)} that the quota still counts"


def quota_remedies(facts: Facts) -> Iterator[Remedy]:
    """Yield the limits and targets with which the NodePool would be within its quota."""
    limit = facts.limit
    if limit is None:
        yield Remedy("raise the quota, or lower the target", EditSpec())
        return
    known = facts.reserved + _others(facts)
    if (given_up := unreleased(facts)) and not is_late(facts, limit.given_up):
        yield Remedy(f"wait a moment and ask again: {given_up}; {_IF_IT_LASTS}", Wait())
    yield from _raise(facts, limit, known + _lacks(facts))
    fitting = down_to_racks(facts, (limit.limit or 0) - _others(facts))
    least = facts.held if facts.wanted == facts.target else facts.allowed
    if least < fitting < facts.target and not facts.autoscaling:
        yield Remedy(
            f"scale {facts.name} to {in_racks(facts, fitting)}, which fits", ScaleTo(fitting)
        )
    elif limit.limit is not None and facts.wanted == facts.target:
        yield from keep_nodes(facts, facts.held)
    yield from _take_from_peer(facts, limit)


def quota_proofs(facts: Facts) -> Iterator[tuple[int, str]]:
    """Yield where in the log the limit and those that hold it changed last."""
    if facts.limit is not None:
        yield facts.limit.position, f"quota {facts.zone}.{facts.instance_type}"
    for peer in largest([(peer, peer.reserved) for peer in facts.peers]):
        yield peer.position, f"nodepool {peer.name}"


def _raise(facts: Facts, limit: Limit, own: int) -> Iterator[Remedy]:
    """Yield the limit that is enough, unless quota that is given up leaves enough of this one.

    own: the limit that is enough where no other NodePool waits for quota.
    """
    # Without a limit the autoscaler asks for no Node, whatever waits.
    more = int(limit.limit is None and facts.target < facts.max_nodes)
    served = _ahead(facts, more)
    ahead = sum(peer.lacks for peer in served)
    enough = own + ahead + more
    if limit.limit is not None and enough <= limit.limit:
        return
    verb = "set" if limit.limit is None else "raise"
    text = f"{verb} the quota of {facts.instance_type}{in_zone(facts)} to {enough}"
    if more:
        text += f", or more: its autoscaler may want up to {format_count(facts.max_nodes)}"
    if ahead:
        text += f", up to {ahead} of them for what may be served before {facts.name}"
    yield Remedy(text + _cost(facts, served), SetLimit(enough))


def _cost(facts: Facts, granted: list[Peer]) -> str:
    """Return that NodePools which are granted quota, too, may preempt Nodes of this NodePool."""
    takers = [peer for peer in granted if facts.spot and not peer.spot]
    return f"; {list_names(takers)} may then preempt Nodes of {facts.name}" if takers else ""


def _take_from_peer(facts: Facts, limit: Limit) -> Iterator[Remedy]:
    """Yield the lower target of one NodePool that gives back enough, at once if one can.

    That NodePool gives its Nodes back one by one. Each Node may go to any NodePool that fits, or
    whose autoscaler asks first. So the Nodes have to be enough for all that wait or may grow.
    Nodes that others give back already are waited for if they are enough. Otherwise the Nodes that
    work keeps only count if no NodePool gives back enough without them.
    """
    if limit.limit is None:
        return
    demand = facts.reserved + _others(facts) + _lacks(facts) - limit.limit
    demand += sum(peer.lacks + peer.may_grow for peer in facts.peers)
    leaving = [peer for peer in facts.peers if peer.returning]
    if 0 < demand <= sum(peer.returning for peer in leaving):
        yield Remedy(_wait_for(leaving), Wait())
        return
    givers: list[tuple[bool, str, int, str, int]] = []
    for peer in (peer for peer in facts.peers if peer.yields):
        others = [each for each in leaving if each is not peer]
        lacks = demand - peer.lacks - peer.may_grow
        at_once = lacks - sum(map(_count_unaided, others))
        later = lacks - sum(each.returning for each in others)
        for waits, short in ((False, at_once), (True, later)):
            left = down_to_racks(facts, peer.reserved - short)
            delay = _delay(peer) if left < peer.keeps else ""
            if short > 0 and 0 <= left < peer.target and (waits or not delay):
                givers.append((waits, delay, -peer.reserved, peer.name, left))
    for waits, delay, _, name, left in sorted(givers)[:1]:
        text = f"scale {name} down to {in_racks(facts, left)}{f': {delay}' if delay else ''}"
        others = [each for each in leaving if each.name != name]
        slow = [each for each in others if _count_unaided(each) < each.returning]
        if waits and slow:
            text = f"{text}; also {_wait_for(slow)}"
        waiting = [peer for peer in facts.peers if peer.lacks and peer.name != name]
        yield Remedy(text + _cost(facts, waiting), ScalePeer(name, left, waits))


def _wait_for(leaving: list[Peer]) -> str:
    """Return the advice to wait for the Nodes that NodePools give back already."""
    verb = "gives" if len(leaving) == 1 else "give"
    count = format_count(sum(peer.returning for peer in leaving))
    return f"wait: {list_names(leaving)} {verb} back {count}; {COUNTS}"


def _delay(peer: Peer) -> str:
    return SILENT if peer.has_silent else COUNTED


def _count_unaided(peer: Peer) -> int:
    """Return how many of the Nodes that a NodePool gives back leave before any work has ended.

    No work delays a deletion.
    """
    unaided = peer.returning if peer.deleting else peer.held - peer.keeps
    return max(0, min(peer.returning, unaided))


def _ahead(facts: Facts, more: int) -> list[Peer]:
    """Return the NodePools that may be served before this NodePool.

    more: how many Nodes more than the NodePool lacks the limit allows.

    With just enough for this NodePool and for all NodePools that lack less, those that lack more
    do not fit, and are passed over.
    """
    limit = facts.limit.limit if facts.limit is not None else None
    free = (limit or 0) - facts.reserved - _others(facts)
    served, enough = list[Peer](), _lacks(facts) + more
    for peer in sorted(facts.peers, key=lambda peer: peer.lacks):
        if 0 < peer.lacks <= max(enough, free):
            served.append(peer)
            enough += peer.lacks
    return served


def _lacks(facts: Facts) -> int:
    return max(0, facts.target - facts.reserved)


def _others(facts: Facts) -> int:
    """Return how many Nodes all other NodePools together take of the quota."""
    return sum(peer.reserved for peer in facts.peers)
