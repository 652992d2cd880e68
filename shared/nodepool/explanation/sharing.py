"""Name the NodePools that share a quota or machines, and count Nodes in whole racks."""

from collections.abc import Iterator

from nodepool.contract.catalog import INSTANCE_TYPES
from nodepool.contract.counting import format_count
from nodepool.explanation.facts import Facts, Peer

HOLDERS_MAX = 5
"""The most holders of a quota or of machines that are named: the largest NodePools."""


def holders(verb: str, total: int, counts: list[tuple[Peer, int]]) -> Iterator[str]:
    """Yield how many Nodes the other NodePools have together, with the NodePools that have most."""
    if total <= 0:
        return
    by_name = {peer.name: count for peer, count in counts}
    named = [
        f"{peer.name}{' (spot)' if peer.spot else ''} {by_name[peer.name]}"
        for peer in largest(counts)
    ]
    rest = sum(count > 0 for count in by_name.values()) - len(named)
    if rest > 0:
        named.append(f"{rest} more")
    yield f"{verb} {total}{': ' if named else ''}{', '.join(named)}"


def rivals(what: str, waiting: list[Peer]) -> Iterator[str]:
    """Yield which NodePools wait for the same too."""
    if not waiting:
        return
    verb = "waits" if len(waiting) == 1 else "wait"
    yield f"{list_names(waiting)} {verb} for {what}"


def preempting(facts: Facts, more: int) -> list[Peer]:
    """Return the NodePools that may preempt Nodes of this one once they are granted quota.

    These are NodePools of class `default` that wait for quota, where this NodePool is of class
    `spot`, and those whose autoscaler may want more than the quota that is left now. A NodePool
    that waits and does not fit is passed over; an autoscaler asks for as many Nodes as fit.

    more: by how many Nodes the quota that is left grows.
    """
    if not facts.spot or facts.limit is None or facts.limit.limit is None:
        return []
    left = facts.limit.limit - facts.limit.used
    free = left + more
    others = [peer for peer in facts.peers if not peer.spot and free > 0]
    # Whether Pods wait for which an autoscaler needs more quota is not known here.
    return [peer for peer in others if 0 < peer.lacks <= free or peer.may_grow > max(0, left)]


def list_names(peers: list[Peer]) -> str:
    """Return the names of some NodePools, and how many more there are."""
    names = sorted(peer.name for peer in peers)
    more = f" and {len(names) - HOLDERS_MAX} more" if len(names) > HOLDERS_MAX else ""
    return f"{', '.join(names[:HOLDERS_MAX])}{more}"


def largest(counts: list[tuple[Peer, int]]) -> list[Peer]:
    """Return the NodePools with the highest counts above 0."""
    ranked = sorted(counts, key=lambda pair: (-pair[1], pair[0].name))
    return [peer for peer, count in ranked if count > 0][:HOLDERS_MAX]


def in_zone(facts: Facts) -> str:
    """Return the words ` in <zone>`; empty where the zone is not known."""
    return f" in {facts.zone}" if facts.zone else ""


def rack_of(facts: Facts) -> int:
    """Return how many Nodes are a rack; 1 for a type that does not come in racks."""
    entry = INSTANCE_TYPES.get(facts.instance_type)
    return (entry.rack_size if entry is not None else 0) or 1


def of_domain(domain: str) -> str:
    """Return the name of an NVLink domain; machines without the label have none."""
    return f"NVLink domain {domain}" if domain else "no NVLink domain"


def down_to_racks(facts: Facts, count: int) -> int:
    """Return the count without the Nodes that are no whole rack."""
    return count - count % rack_of(facts)


def up_to_racks(facts: Facts, count: int) -> int:
    """Return the smallest number of Nodes in whole racks that is at least the count."""
    return -(-count // rack_of(facts)) * rack_of(facts)


def in_racks(facts: Facts, count: int) -> str:
    """Return a target of whole racks in words, such as `2 racks (36 Nodes)`, or the count alone."""
    size = rack_of(facts)
    if size == 1 or not count:
        return str(count)
    return f"{format_count(count // size, 'rack')} ({format_count(count)})"


def nodes_wait(count: int) -> str:
    """Return a number of Nodes with the verb `wait`."""
    return f"{format_count(count)} {'waits' if count == 1 else 'wait'}"
