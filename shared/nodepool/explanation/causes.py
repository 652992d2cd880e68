"""The ranked causes that keep a NodePool from its target, with log proofs and remedies."""

from collections.abc import Iterator
from dataclasses import replace

from nodepool.contract.catalog import ZONES, is_offered, is_spot_offered
from nodepool.contract.counting import format_count
from nodepool.explanation.cause import Cause, blame, proofs
from nodepool.explanation.facts import Check, Facts
from nodepool.explanation.machine_remedies import (
    capacity_details,
    capacity_proofs,
    capacity_remedies,
)
from nodepool.explanation.node_causes import deletion, of_nodes
from nodepool.explanation.quota_remedies import (
    quota_details,
    quota_proofs,
    quota_remedies,
    unreleased,
)
from nodepool.explanation.remedies import EditSpec, Remedy, Wait
from nodepool.explanation.sharing import HOLDERS_MAX, largest, list_names
from nodepool.explanation.unanswered import (
    ACTS_NEXT,
    CHECKED_BY,
    GONE_MINUTES,
    INTERNAL_ERROR,
    assigned_since,
    count_unassigned,
    due_since,
    is_late,
    is_outdated,
    lacks_spot_nodes,
    late_spot_nodes,
    outdated_since,
    spot_awaited_since,
    stopped_at,
    undetermined_check,
)

CHECKS = ("Validated", "Quota", "Capacity")
"""The conditions that keep a NodePool from growing, in the order in which they are checked."""


def blocking(facts: Facts) -> list[Cause]:
    """Return the checks that keep the NodePool from growing, ranked."""
    failing = [check for kind in CHECKS if (check := facts.checks.get(kind)) is not None]
    failing = [check for check in failing if check.status != "True"]
    failing = [check for check in failing if not is_outdated(facts, check)]
    failing = [check for check in failing if check.type != "Quota" or _needs_quota(facts, check)]
    return [
        *(_of_check(facts, check) for check in failing if check.reason != INTERNAL_ERROR),
        *(_internal(check) for check in failing if check.reason == INTERNAL_ERROR),
    ]


def causes(facts: Facts) -> list[Cause]:
    """All that keeps the NodePool from its target, or from its end, ranked; empty for nothing."""
    # Nothing is checked during a deletion, so old verdicts do not delay it.
    blocked = [] if facts.deleting else blocking(facts)
    # Until its spec is known to be valid, a NodePool gets no Node, and nothing else is checked.
    unvalidated, blocked = ([], blocked) if facts.is_valid else (blocked, [])
    ranked = [
        *unvalidated,
        *_silent_checks(facts),
        *_outdated_check(facts),
        *_find_stopped_peers(facts, blocked),
        *(_find_unreleased(facts) if any(each.kind == "Quota" for each in blocked) else ()),
        *_find_unassigned(facts),
        *_find_unpreempted(facts),
        *_find_undetermined(facts),
        *(deletion(facts) if facts.deleting else ()),
        *(cause for cause in blocked if cause.kind != INTERNAL_ERROR),
        *of_nodes(facts),
        *(cause for cause in blocked if cause.kind == INTERNAL_ERROR),
    ]
    return ranked or list(_progress(facts))


def _needs_quota(facts: Facts, check: Check) -> bool:
    """Return whether more quota would change anything for the NodePool.

    A NodePool is refilled up to its grant, whatever its limit is; its autoscaler asks for no Node.
    """
    is_granted = facts.granted is not None and facts.target <= facts.granted
    is_grown = is_granted and not facts.held == facts.target < facts.max_nodes
    return check.reason == INTERNAL_ERROR or not is_grown


def _of_check(facts: Facts, check: Check) -> Cause:
    own = [(check.position, f"condition {check.type}")]
    cause = Cause("Validated", _title(check), _message(check), check.since, proofs=proofs(own))
    match check.type:
        case "Quota":
            return replace(
                cause,
                kind="Quota",
                status=check.status,
                details=tuple(quota_details(facts)),
                remedies=tuple(quota_remedies(facts)),
                proofs=proofs([*own, *quota_proofs(facts)]),
            )
        case "Capacity":
            return replace(
                cause,
                kind="Capacity",
                status=check.status,
                details=tuple(capacity_details(facts)),
                remedies=tuple(capacity_remedies(facts, check.reason)),
                proofs=proofs([*own, *capacity_proofs(facts)]),
            )
        case _:
            return replace(cause, remedies=(Remedy(_spec_remedy(facts), EditSpec()),))


def _spec_remedy(facts: Facts) -> str:
    """Return what makes the spec valid; the type, the class and the zone cannot be changed."""
    name, zone = facts.instance_type, facts.zone
    offers = is_spot_offered if facts.spot else is_offered
    if not zone or offers(name, zone):
        return "change the spec as the message says"
    fixed = "computeClass" if is_offered(name, zone) else "instanceType"
    elsewhere = any(offers(name, each) for each in ZONES)
    other = f"another {fixed}, or in a cluster of another zone" if elsewhere else f"another {fixed}"
    return f"delete {facts.name} and create it again with {other}: {fixed} cannot be changed"


def _internal(check: Check) -> Cause:
    return Cause(
        INTERNAL_ERROR,
        _title(check),
        _message(check),
        since=check.since,
        remedies=(
            Remedy("wait: it is tried again after 1, 5 and 15 minutes, then every 15", Wait()),
        ),
        proofs=proofs([(check.position, f"condition {check.type}")]),
    )


def _find_undetermined(facts: Facts) -> Iterator[Cause]:
    """Yield the conditions on Nodes that a service could not decide about: it moves no Node now."""
    for kind in ("AtTarget", "NodesRemoved"):
        check = facts.checks.get(kind)
        if check is not None and check.reason == INTERNAL_ERROR:
            yield _internal(check)


def _silent_checks(facts: Facts) -> Iterator[Cause]:
    """Yield the service that has not judged the newest version of the spec in time."""
    kind = undetermined_check(facts)
    if kind and not facts.deleting and is_late(facts, due_since(facts)):
        stale = facts.older.get(kind)
        shown = f"; {kind} still shows {stale}, of an older version" if stale else ""
        yield blame(
            (CHECKED_BY[kind],),
            f"it has not checked version {facts.generation} of the spec{shown}",
            due_since(facts),
            proofs([(facts.position, f"nodepool {facts.name}")]),
        )


def _outdated_check(facts: Facts) -> Iterator[Cause]:
    """Yield the capacity service if its verdict that machines are missing is outdated."""
    check = facts.checks.get("Capacity")
    if check is None or facts.deleting or not is_outdated(facts, check):
        return
    if is_late(facts, since := outdated_since(facts)):
        text = f"Capacity still says that machines are missing for {format_count(facts.missing)}"
        if facts.held >= facts.allowed:
            text = (
                f"Capacity still shows {check.reason}, though each Node that quota allows is there"
            )
        yield blame(
            ACTS_NEXT["count machines"],
            text,
            since,
            proofs([(check.position, "condition Capacity")]),
        )


def _find_unreleased(facts: Facts) -> Iterator[Cause]:
    """Yield who does not check lower targets, and who does not release quota that is given up."""
    limit = facts.limit
    lower = [peer for peer in facts.peers if peer.target < peer.reserved]
    if unchecked := [peer for peer in lower if is_late(facts, peer.unchecked_since)]:
        first = largest([(peer, peer.reserved) for peer in unchecked])
        yield blame(
            (CHECKED_BY["Quota"],),
            f"it has not checked the lower target of {list_names(unchecked)}",
            min(filter(None, (peer.unchecked_since for peer in unchecked))),
            proofs((peer.position, f"nodepool {peer.name}") for peer in first),
        )
    if limit is not None and (text := unreleased(facts)) and is_late(facts, limit.given_up):
        about = proofs(quota_proofs(facts))
        yield blame(ACTS_NEXT["release"], text, limit.given_up, about)


def _find_stopped_peers(facts: Facts, blocked: list[Cause]) -> Iterator[Cause]:
    """Yield the services that keep Nodes of other NodePools whose quota or machines are needed."""
    if not any(cause.kind in ("Quota", "Capacity") for cause in blocked):
        return
    peers = [peer for peer in facts.peers if peer.returning]
    stopped = [(peer, step) for peer in peers if (step := stopped_at(facts, peer.steps))]
    for name in dict.fromkeys(step.name for _, step in stopped):
        found = [(peer, step.due) for peer, step in stopped if step.name == name]
        names = list_names([peer for peer, _ in found])
        yield blame(
            ACTS_NEXT[name],
            f"{names} {'has' if len(found) == 1 else 'have'} Nodes that should be gone",
            min(due for _, due in found),
            proofs((peer.position, f"nodepool {peer.name}") for peer, _ in found[:HOLDERS_MAX]),
        )


def _find_unassigned(facts: Facts) -> Iterator[Cause]:
    """Yield the services of which one does not assign Nodes that Capacity says can be had."""
    missing, since = count_unassigned(facts), assigned_since(facts)
    if not missing or not is_late(facts, since):
        return
    capacity = facts.checks["Capacity"]
    which = "Nodes that can be had are"
    if capacity.status == "True":
        which = f"{format_count(missing)} {'is' if missing == 1 else 'are'}"
    yield blame(
        ACTS_NEXT["assign"],
        f"{which} not assigned, though quota allows more and Capacity is {capacity.reason}",
        since,
        proofs([(facts.position, f"nodepool {facts.name}")]),
    )


def _find_unpreempted(facts: Facts) -> Iterator[Cause]:
    """Yield the services of which one does not choose, or does not end, the spot Nodes to lose."""
    own = proofs([(facts.position, f"nodepool {facts.name}")])
    if lacks_spot_nodes(facts) and is_late(facts, began := assigned_since(facts)):
        yield blame(ACTS_NEXT["ask spot Nodes"], "no spot Node is asked to give way", began, own)
    capacity, machines = facts.checks.get("Capacity"), facts.machines
    late = late_spot_nodes(facts)
    for step, count in late.items():
        text = f"{'is' if count == 1 else 'are'} to give way for it, which has not begun"
        began = machines.preempting_since if machines is not None else None
        yield blame(ACTS_NEXT[step], f"{format_count(count, 'spot Node')} {text}", began, own)
    if late:
        return
    since = spot_awaited_since(facts)
    if since is None or machines is None or facts.held >= facts.allowed or facts.deleting:
        return
    if capacity is not None and is_outdated(facts, capacity):
        return  # Its spot Nodes may be gone, and nothing is known of others.
    awaited = format_count(facts.spot_awaited, "spot Node")
    verb, gave = ("is", "has") if facts.spot_awaited == 1 else ("are", "have")
    if machines.giving_way:
        text = f"{verb} to give way, which takes at most {GONE_MINUTES} minutes"
        yield blame(ACTS_NEXT["preempt"], f"{awaited} {text}, and {verb} still there", since, own)
    else:
        text = f"{awaited} {gave} given way for it, and nothing has come of that"
        yield blame(ACTS_NEXT["assign"], text, since, own)


def _progress(facts: Facts) -> Iterator[Cause]:
    """Yield what is under way where nothing blocks and the NodePool is not at its target."""
    missing = facts.target - facts.held
    if missing <= 0 or facts.deleting:
        return
    since, kind = assigned_since(facts), undetermined_check(facts)
    own = proofs([(facts.position, f"nodepool {facts.name}")])
    wait = Remedy("wait a moment and ask again", Wait())
    if kind:
        yield Cause(
            "Progress", f"{kind} is not determined yet", since=since, remedies=(wait,), proofs=own
        )
        return
    title = f"{format_count(missing)} {'is' if missing == 1 else 'are'} about to be assigned"
    yield Cause("Progress", title, since=since, remedies=(wait,), proofs=own)


def _title(check: Check) -> str:
    return f"{check.type} is {check.reason or 'not determined'}"


def _message(check: Check) -> str:
    return check.message.removesuffix(".")
