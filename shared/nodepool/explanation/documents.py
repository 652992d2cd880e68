"""Read the facts from documents of the read model, and accept any JSON.

A value of the wrong type counts as missing, for example a number in place of a text or a moment.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from nodepool.contract.catalog import RACK_SIZE, rack_size
from nodepool.contract.conditions import Capacity, Quota, Reason
from nodepool.contract.health import cordon_cause, is_problem
from nodepool.contract.timetable import RELAPSE
from nodepool.explanation.facts import Check, Domain, Facts, Limit, Machines, NodeFacts, Peer
from nodepool.explanation.leaving import PREEMPTED
from nodepool.explanation.peers import peer_of
from nodepool.explanation.unanswered import drop_unchecked
from nodepool.placement.racks import NVLINK_DOMAIN

Document = Mapping[str, object]
NUMBER_MAX = 10**15
"""The largest count or position; a larger number counts as missing."""
TEXT_MAX = 10_000
"""How many characters of a text are kept."""
BROKEN_MAX = 3
"""How many machines in triage are named."""
POOL_LABEL = "compute.coreweave.com/node-pool"
_SINCE = "lastTransitionTime"
_GRANTED = ("status", "grantedNodes")
CORDON_REASON = "node.coreweave.cloud/cordonReason"
CONTROL_PLANE = "control-plane"
"""The value of `status.reservedFor` for a Node that its NodePool cannot use."""
IN_SERVICE = ("Free", "Assigned", "Reclaimed", "")
"""The states of a machine that is not counted as in triage."""


def facts(
    pool: object,
    *,
    zone: str = "",
    nodes: Iterable[object] = (),
    quota: object = None,
    capacity: object = None,
    machines: Iterable[object] = (),
    peers: Iterable[tuple[str, object, Iterable[object]]] = (),
) -> Facts:
    """Return the facts of a NodePool.

    pool: its document.
    zone: the zone of its cluster.
    nodes: the Nodes of its cluster.
    quota, capacity: the documents for its type, organisation and zone; None where there is none.
    machines: the machines of its type and zone; only those in triage count, and of a type that
        comes in racks also those that are free or Nodes.
    peers: other NodePools of its organisation in its zone, each with its name and with the Nodes
        of its cluster.
    """
    own = replace(_with_nodes(pool, nodes), zone=zone)
    unset = Limit(None, 0) if _has_reason(own, Quota.NOT_SET) else None
    empty = Machines(0, 0, 0) if zone and _has_reason(own, Capacity.NONE_AVAILABLE) else None
    others = ((of, _with_nodes(each, joined)) for of, each, joined in peers)
    return replace(
        own,
        # A quota that was never set, and that nothing counts against, has no document.
        limit=_limit(quota) or unset,
        # If a zone never had a machine of the type, there is no document either.
        machines=_machines(capacity, machines, own) or empty,
        peers=tuple(
            peer_of(*each) for each in others if each[1].instance_type == own.instance_type
        ),
    )


def read_peer(name: str, pool: object, nodes: Iterable[object]) -> Peer:
    """Return a NodePool as other NodePools see it; `nodes` are the Nodes of its cluster."""
    return peer_of(name, _with_nodes(pool, nodes))


def target_of(pool: object) -> int:
    """Return how many Nodes the document of a NodePool wants, in Nodes or in racks."""
    racks = _number(pool, "spec", "targetRacks")
    if not racks:
        return _number(pool, "spec", "targetNodes")
    return racks * (rack_size(_text(pool, "spec", "instanceType")) or RACK_SIZE)


def _with_nodes(pool: object, nodes: Iterable[object]) -> Facts:
    """Return the facts that the document of a NodePool and the Nodes of its cluster show."""
    own = _own(pool)
    joined = (node for node in nodes if _at(node, "metadata", "labels", POOL_LABEL) == own.name)
    known = tuple(node_facts(node) for node in joined)
    stay = Counter(node.domain for node in known if not (node.reserved or node.removal))
    return replace(own, nodes=known, staying=stay)


def _own(pool: object) -> Facts:
    """Return the facts that the document of the NodePool shows."""
    is_autoscaled = _at(pool, "spec", "autoscaling") is True
    return Facts(
        name=_text(pool, "metadata", "name"),
        instance_type=_text(pool, "spec", "instanceType"),
        target=target_of(pool),
        current=_number(pool, "status", "currentNodes"),
        in_progress=_number(pool, "status", "inProgress"),
        granted=_number(pool, *_GRANTED) if _at(pool, *_GRANTED) is not None else None,
        deleting=_at(pool, "metadata", "deletionTimestamp") is not None,
        deleting_since=_moment(pool, "metadata", "deletionTimestamp"),
        idle_only=_text(pool, "spec", "lifecycle", "scaleDownStrategy") != "PreferIdle",
        cures=_at(pool, "spec", "lifecycle", "disableUnhealthyNodeEviction") is False,
        checks=drop_unchecked(_checks(pool)),
        older=_older(pool),
        position=_position(pool),
        min_nodes=_number(pool, "spec", "minNodes") if is_autoscaled else 0,
        max_nodes=_number(pool, "spec", "maxNodes") if is_autoscaled else 0,
        autoscaled=_text(pool, "status", "autoscaled", "message"),
        autoscaled_position=_number(pool, "status", "autoscaled", "logPosition"),
        spot_awaited=_number(pool, "status", "awaitedSpotNodes"),
        autoscaling=is_autoscaled,
        spot=_text(pool, "spec", "computeClass") == "spot",
        has_affinity=bool(_at(pool, "spec", "affinity")),
        queue_position=_number(pool, "status", "queuePosition"),
        machines_needed=_number(pool, "status", "machinesNeeded"),
        missing=_number(pool, "status", "missingNodes"),
        lost=Counter(_text(each, "domain") for each in _items(pool, "status", "lostMachines")),
        generation=_number(pool, "metadata", "generation"),
        specified=_moment(pool, "status", "specified"),
        targeted=_moment(pool, "status", "targeted"),
        checked=_moment(pool, "status", "checked"),
        progressed=_moment(pool, "status", "progressed"),
    )


def _has_reason(facts: Facts, reason: Reason) -> bool:
    check = facts.checks.get(type(reason).__name__)
    return check is not None and check.reason == reason


def _checks(pool: object) -> Iterator[Check]:
    """Return the conditions on the newest generation; an older condition may no longer hold."""
    generation = _at(pool, "metadata", "generation")
    for each in _items(pool, "status", "conditions"):
        if _at(each, "observedGeneration") == generation and _text(each, "type"):
            yield Check(
                type=_text(each, "type"),
                status=_text(each, "status"),
                reason=_text(each, "reason"),
                message=_text(each, "message"),
                since=_moment(each, "lastTransitionTime"),
                position=_number(each, "logPosition"),
            )


def _older(pool: object) -> dict[str, str]:
    """Return the reasons of the conditions that are about an older generation, by type."""
    generation = _at(pool, "metadata", "generation")
    return {
        _text(each, "type"): _text(each, "reason")
        for each in _items(pool, "status", "conditions")
        if _at(each, "observedGeneration") != generation and _text(each, "type")
    }


def node_facts(node: object) -> NodeFacts:
    """Return the facts that the document of a Node shows."""
    conditions = {_text(each, "type"): each for each in _items(node, "status", "conditions")}
    active, removal = conditions.get("CWActive"), conditions.get("CWNodeRemoval")
    is_active, leaves = (_text(each, "status") == "True" for each in (active, removal))
    pods, asked = _items(node, "status", "blockingPods"), _moment(node, "status", "askedSince")
    blocking = tuple((_text(each, "name"), _moment(each, "since")) for each in pods)
    problems = {
        cordon_cause(kind): _moment(each, "lastTransitionTime")
        for kind, each in sorted(conditions.items())
        if is_problem(kind, _text(each, "status"))
    }
    return NodeFacts(
        name=_text(node, "metadata", "name"),
        position=_position(node),
        created=_moment(node, "metadata", "creationTimestamp"),
        registered=_text(conditions.get("CWRegistered"), "status") == "True",
        phase=_text(node, "status", "phase"),
        reboots=_number(node, "status", "reboots"),
        active=is_active,
        active_since=_moment(active, "lastTransitionTime") if is_active else None,
        idle_since=None if is_active else _moment(active, "lastTransitionTime"),
        work=_text(active, "message"),
        blocking=blocking,
        blocking_count=max(len(blocking), _number(node, "status", "blockingPodCount")),
        removal=_text(removal, "reason") or "Unknown" if leaves else PREEMPTED if asked else "",
        removal_since=_moment(removal, "lastTransitionTime") if leaves else None,
        asked_since=None if leaves else asked,
        warned=_at(node, "status", "warned") is True,
        preempted_since=_moment(node, "status", "preemptedSince"),
        progressed=_moment(node, "status", "progressed"),
        answer_by=_moment(node, "status", "answerBy"),
        problems=tuple(problems),
        problems_since=min(filter(None, problems.values()), default=None),
        cordon=_text(node, "metadata", "annotations", CORDON_REASON),
        relapsed=any(_has_relapsed(node, kind, each) for kind, each in conditions.items()),
        reserved=_text(node, "status", "reservedFor") == CONTROL_PLANE,
        domain=_text(node, "metadata", "labels", NVLINK_DOMAIN),
    )


def _has_relapsed(node: object, kind: str, condition: object) -> bool:
    """Return whether a condition reports a problem that came back soon after a reboot for it."""
    ended, began = _moment(node, "status", "rebootedFor", kind), _moment(condition, _SINCE)
    if ended is None or began is None or not is_problem(kind, _text(condition, "status")):
        return False
    return began - ended < RELAPSE


def _limit(quota: object) -> Limit | None:
    if not isinstance(quota, Mapping):
        return None
    limit = None if _at(quota, "limit") is None else _number(quota, "limit")
    return Limit(limit, _number(quota, "used"), _number_in_text(quota, "resourceVersion"))


def _machines(capacity: object, machines: Iterable[object], pool: Facts) -> Machines | None:
    if not isinstance(capacity, Mapping):
        return None
    machines = list(machines)
    triage = [each for each in machines if _text(each, "status", "state") not in IN_SERVICE]
    broken = [
        (_text(each, "metadata", "name"), _text(each, "status", "cause"), _position(each))
        for each in triage[:BROKEN_MAX]
    ]
    return Machines(
        free=_number(capacity, "free"),
        assigned=_number(capacity, "assigned"),
        triage=_number(capacity, "triage"),
        broken=tuple(broken),
        reclaimed=_number(capacity, "reclaimed"),
        to_reclaim=_number(capacity, "toReclaim"),
        domains=_domains(machines, pool) if rack_size(pool.instance_type) else {},
        position=_number_in_text(capacity, "resourceVersion"),
        giving_way=_number(capacity, "givingWay"),
        preempting_since=_moment(capacity, "preemptingSince"),
    )


def _domains(machines: Iterable[object], pool: Facts) -> dict[str, Domain]:
    """Return the NVLink domains of the machines, as far as the NodePool depends on them."""
    own = {node.name for node in pool.counted_nodes}
    domains: dict[str, Domain] = {}
    for each in machines:
        name = _text(each, "metadata", "labels", NVLINK_DOMAIN)
        state, machine = _text(each, "status", "state"), _text(each, "metadata", "name")
        domain = domains.get(name, Domain())
        is_own, is_node = machine in own, state == "Assigned"
        domains[name] = Domain(
            domain.held + (is_node and is_own),
            domain.free + (state == "Free"),
            (*domain.triage, machine) if state not in IN_SERVICE else domain.triage,
            domain.others + (is_node and not is_own),
        )
    return domains


def _at(document: object, *path: str) -> object:
    for name in path:
        if not isinstance(document, Mapping):
            return None
        document = document.get(name)
    return document


def _text(document: object, *path: str) -> str:
    value = _at(document, *path)
    return value[:TEXT_MAX] if isinstance(value, str) else ""


def _number(document: object, *path: str) -> int:
    value = _at(document, *path)
    if not isinstance(value, int) or isinstance(value, bool):
        return 0
    return value if 0 <= value <= NUMBER_MAX else 0


def _items(document: object, *path: str) -> Sequence[object]:
    value = _at(document, *path)
    return value if isinstance(value, list | tuple) else ()


def _moment(document: object, *path: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(_text(document, *path))
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _position(document: object) -> int:
    return _number_in_text(document, "metadata", "resourceVersion")


def _number_in_text(document: object, *path: str) -> int:
    text = _text(document, *path)
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 15 else 0
