"""The numbers behind a shortage of quota or machines, and the changes that would end it."""

from collections.abc import Iterator

from nodepool.contract.catalog import INSTANCE_TYPES
from nodepool.contract.timetable import GONE_AFTER
from nodepool.explanation.facts import Facts, Peer
from nodepool.explanation.leaving import counted

MINUTES = int(GONE_AFTER.total_seconds() // 60)
HOLDERS_MAX = 5
"""How many of the NodePools that hold a quota or machines are named: those with the most."""


def quota_details(facts: Facts) -> Iterator[str]:
    """By how much the target exceeds the quota, and which NodePools hold the rest of it."""
    limit = facts.limit
    if limit is None:
        return
    others = _others(facts)
    short = others + facts.target - (limit.limit or 0)
    if short > 0:
        yield f"the quota is {counted(short)} too small"
    yield f"{facts.name} reserves {facts.reserved}"
    holders = [(peer, peer.reserved) for peer in facts.peers]
    yield from _holders("other NodePools reserve", others, holders)
    yield from _rivals("quota", [peer for peer in facts.peers if peer.waits_for_quota])


def quota_helps(facts: Facts) -> Iterator[str]:
    """The limit, and the target, with which the NodePool would be within its quota."""
    limit = facts.limit
    if limit is None:
        yield "raise the quota, or lower the target"
        return
    others = _others(facts)
    verb = "set" if limit.limit is None else "raise"
    yield f"{verb} the quota of {facts.instance_type}{_in_zone(facts)} to {others + facts.target}"
    fitting = _in_racks(facts, (limit.limit or 0) - others)
    if facts.held < fitting < facts.target:
        yield f"scale {facts.name} to {fitting}, which fits"
    else:
        yield from _as_it_is(facts)
    holders = [peer for peer in facts.peers if peer.reserved]
    if holders:
        short = others + facts.target - (limit.limit or 0)
        most = min(holders, key=lambda peer: (-peer.reserved, peer.name))
        if limit.limit is not None and 0 < short <= most.reserved:
            yield f"scale {most.name} down by {short}"


def quota_proofs(facts: Facts) -> Iterator[tuple[int, str]]:
    """Where in the log the limit and those that hold it changed last."""
    if facts.limit is not None:
        yield facts.limit.position, f"quota {facts.zone}.{facts.instance_type}"
    for peer in _largest([(peer, peer.reserved) for peer in facts.peers]):
        yield peer.position, f"nodepool {peer.name}"


def capacity_details(facts: Facts) -> Iterator[str]:
    """How many machines there are in which state, and who holds those that are assigned."""
    machines = facts.machines
    if machines is None:
        return
    yield (
        f"of {facts.instance_type}{_in_zone(facts)} {machines.free} are free, "
        f"{machines.assigned} are assigned and {machines.triage} are in triage"
    )
    if machines.reclaimed:
        yield f"{machines.reclaimed} more {_are(machines.reclaimed)} reclaimed by an operator"
    own = sum(peer.held for peer in facts.peers)
    yield from _holders("other NodePools hold", own, [(peer, peer.held) for peer in facts.peers])
    foreign = machines.assigned - own - facts.held
    if foreign > 0:
        yield f"other organisations hold {foreign}"
    yield from _rivals("machines", [peer for peer in facts.peers if peer.waits_for_machines])
    for name, cause, _ in machines.broken:
        yield f"machine {name} is in triage{f': {cause}' if cause else ''}"


def capacity_helps(facts: Facts, reason: str) -> Iterator[str]:
    """What would make as many machines available as the NodePool may have."""
    machines = facts.machines
    missing = max(0, min(facts.granted or facts.target, facts.target) - facts.held)
    comes = facts.spot_awaited
    if comes:
        nodes = "spot Node is" if comes == 1 else "spot Nodes are"
        yield f"wait: {comes} {nodes} being preempted for it, which takes at most {MINUTES} minutes"
    if reason.endswith("NodeAffinity") and machines is not None and machines.free:
        yield f"relax the node affinity: {machines.free} machines are free without it"
    elif machines is not None:
        # What is free is on its way to NodePools that are served before this one, or to this one.
        lacking = missing - machines.free - comes
        lacking = _up_to_racks(facts, max(0 if comes else 1, lacking))
        if 0 < lacking <= machines.triage:
            yield f"repair {lacking} of the {machines.triage} machines in triage"
        if 0 < lacking <= machines.reclaimed:
            yield f"return {lacking} of the {machines.reclaimed} reclaimed machines"
        if lacking:
            yield f"add {lacking} machine{'' if lacking == 1 else 's'} of the type to the zone"
    yield from _as_it_is(facts)
    if not comes:
        yield "wait: it is served when machines become free"


def capacity_proofs(facts: Facts) -> Iterator[tuple[int, str]]:
    """Where in the log the counts of machines, and those in triage, changed last."""
    machines = facts.machines
    if machines is None:
        return
    yield machines.position, f"capacity {facts.zone}.{facts.instance_type}"
    for name, _, position in machines.broken:
        yield position, f"machine {name}"
    for peer in _largest([(peer, peer.held) for peer in facts.peers]):
        yield peer.position, f"nodepool {peer.name}"


def removal_helps(facts: Facts) -> Iterator[str]:
    """What would let the Nodes go that are to leave, or keep them."""
    if facts.current <= facts.target:
        yield "wait until they are gone"
        return
    validated = facts.checks.get("Validated")
    if validated is not None and validated.status != "True":
        yield "change the spec as the condition Validated says"
        return
    leaving = [node for node in facts.nodes if node.removal]
    active = [node for node in facts.nodes if node.active]
    if any(node.active for node in leaving):
        yield "end the Pods that block"
    elif active and facts.idle_only and len(leaving) < facts.held - facts.target:
        yield "end the work on one of its active Nodes"
        yield "set lifecycle.scaleDownStrategy to PreferIdle, which removes active Nodes too"
    else:
        yield "wait until they are gone"
    yield f"scale {facts.name} to {facts.current}, what it has"


def _as_it_is(facts: Facts) -> Iterator[str]:
    if 0 < facts.held < facts.target:
        yield f"scale {facts.name} to {facts.held}, what it has"


def _others(facts: Facts) -> int:
    """How many Nodes all other NodePools together take of the quota."""
    return max(0, facts.limit.used - facts.reserved) if facts.limit is not None else 0


def _holders(verb: str, total: int, holders: list[tuple[Peer, int]]) -> Iterator[str]:
    if total <= 0:
        return
    counts = {peer.name: count for peer, count in holders}
    named = [
        f"{peer.name}{' (spot)' if peer.spot else ''} {counts[peer.name]}"
        for peer in _largest(holders)
    ]
    rest = sum(count > 0 for count in counts.values()) - len(named)
    if rest > 0:
        named.append(f"{rest} more")
    yield f"{verb} {total}{': ' if named else ''}{', '.join(named)}"


def _rivals(what: str, waiting: list[Peer]) -> Iterator[str]:
    if not waiting:
        return
    names = sorted(peer.name for peer in waiting)
    more = f" and {len(names) - HOLDERS_MAX} more" if len(names) > HOLDERS_MAX else ""
    verb = "waits" if len(names) == 1 else "wait"
    yield f"{', '.join(names[:HOLDERS_MAX])}{more} {verb} for the same {what}"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _largest(holders: list[tuple[Peer, int]]) -> list[Peer]:
    """Those that hold the most, of those that hold any."""
    ranked = sorted(holders, key=lambda pair: (-pair[1], pair[0].name))
    return [peer for peer, count in ranked if count > 0][:HOLDERS_MAX]


def _in_zone(facts: Facts) -> str:
    return f" in {facts.zone}" if facts.zone else ""


def _rack(facts: Facts) -> int:
    entry = INSTANCE_TYPES.get(facts.instance_type)
    return (entry.rack_size if entry is not None else 0) or 1


def _in_racks(facts: Facts, count: int) -> int:
    """So many Nodes in whole racks, where the type comes by racks."""
    return count - count % _rack(facts)


def _up_to_racks(facts: Facts, count: int) -> int:
    return -(-count // _rack(facts)) * _rack(facts)
