"""Read the facts from documents of the read model, and accept any JSON.

A value of the wrong type counts as missing, for example a number in place of a text or a moment.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from nodepool.contract.catalog import RACK_SIZE, rack_size
from nodepool.contract.conditions import Capacity, Quota, Reason
from nodepool.contract.cordons import CORDON_REASON
from nodepool.contract.health import cordon_cause, is_problem
from nodepool.contract.keys import CONTROL_PLANE
from nodepool.contract.timetable import RELAPSE
from nodepool.explanation.facts import Check, Domain, Facts, Limit, Machines, Peer
from nodepool.explanation.leaving import PREEMPTED
from nodepool.explanation.node_facts import NodeFacts
from nodepool.explanation.peers import peer_of
from nodepool.explanation.unanswered import drop_unchecked
from nodepool.explanation.values import at, items, moment, number, number_in_text, position, text
from nodepool.placement.racks import NVLINK_DOMAIN

Document = Mapping[str, object]
BROKEN_MAX = 3
"""How many machines in triage are named."""
POOL_LABEL = "compute.coreweave.com/node-pool"
_SINCE = "lastTransitionTime"
_GRANTED = ("status", "grantedNodes")
IN_SERVICE = ("Free", "Assigned", "Reclaimed", "Zap", "")
"""The states of a machine that is not counted as in triage."""


class MachineFacts(NamedTuple):
    """What the document of a machine shows.

    position: the position of its last change.
    is_held_out: whether an operator holds it back while it is out of service.
    """

    name: str
    state: str
    cause: str
    domain: str
    position: int
    is_held_out: bool


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
    own = own_facts(pool, _read_nodes(pool, nodes))
    kind = own.instance_type
    near = (each for each in peers if text(each[1], "spec", "instanceType") == kind)
    held = map(machine_facts, machines)
    known = complete(own, zone=zone, quota=quota, capacity=capacity, machines=held)
    return replace(known, peers=tuple(read_peer(*each) for each in near))


def read_peer(name: str, pool: object, nodes: Iterable[object]) -> Peer:
    """Return a NodePool as other NodePools see it; `nodes` are the Nodes of its cluster."""
    return peer_of(name, own_facts(pool, _read_nodes(pool, nodes)))


def own_facts(pool: object, nodes: Iterable[NodeFacts]) -> Facts:
    """Return the facts that the document of a NodePool and its Nodes show."""
    known = tuple(nodes)
    stay = Counter(node.domain for node in known if not (node.reserved or node.removal))
    return replace(_own(pool), nodes=known, staying=stay)


def complete(
    own: Facts, *, zone: str, quota: object, capacity: object, machines: Iterable[MachineFacts]
) -> Facts:
    """Return the facts of a NodePool with those of its zone; `facts` says what they are."""
    known = replace(own, zone=zone)
    unset = Limit(None, 0) if _has_reason(known, Quota.NOT_SET) else None
    empty = Machines(0, 0, 0) if zone and _has_reason(known, Capacity.NONE_AVAILABLE) else None
    return replace(
        known,
        # A quota that was never set, and that nothing counts against, has no document.
        limit=_limit(quota) or unset,
        # If a zone never had a machine of the type, there is no document either.
        machines=_machines(capacity, machines, known) or empty,
    )


def _read_nodes(pool: object, nodes: Iterable[object]) -> Iterator[NodeFacts]:
    """Yield those of the Nodes of a cluster that are in a NodePool."""
    name = text(pool, "metadata", "name")
    for each in nodes:
        if at(each, "metadata", "labels", POOL_LABEL) == name:
            yield node_facts(each)


def target_of(pool: object) -> int:
    """Return how many Nodes the document of a NodePool wants, in Nodes or in racks."""
    racks = number(pool, "spec", "targetRacks")
    if not racks:
        return number(pool, "spec", "targetNodes")
    return racks * (rack_size(text(pool, "spec", "instanceType")) or RACK_SIZE)


def _own(pool: object) -> Facts:
    """Return the facts that the document of the NodePool shows."""
    is_autoscaled = at(pool, "spec", "autoscaling") is True
    return Facts(
        name=text(pool, "metadata", "name"),
        instance_type=text(pool, "spec", "instanceType"),
        target=target_of(pool),
        current=number(pool, "status", "currentNodes"),
        in_progress=number(pool, "status", "inProgress"),
        granted=number(pool, *_GRANTED) if at(pool, *_GRANTED) is not None else None,
        deleting=at(pool, "metadata", "deletionTimestamp") is not None,
        deleting_since=moment(pool, "metadata", "deletionTimestamp"),
        idle_only=text(pool, "spec", "lifecycle", "scaleDownStrategy") != "PreferIdle",
        cures=at(pool, "spec", "lifecycle", "disableUnhealthyNodeEviction") is False,
        checks=drop_unchecked(_checks(pool)),
        older=_older(pool),
        position=position(pool),
        min_nodes=number(pool, "spec", "minNodes") if is_autoscaled else 0,
        max_nodes=number(pool, "spec", "maxNodes") if is_autoscaled else 0,
        autoscaled=text(pool, "status", "autoscaled", "message"),
        autoscaled_position=number(pool, "status", "autoscaled", "logPosition"),
        spot_awaited=number(pool, "status", "awaitedSpotNodes"),
        autoscaling=is_autoscaled,
        spot=text(pool, "spec", "computeClass") == "spot",
        has_affinity=bool(at(pool, "spec", "affinity")),
        queue_position=number(pool, "status", "queuePosition"),
        machines_needed=number(pool, "status", "machinesNeeded"),
        missing=number(pool, "status", "missingNodes"),
        lost=Counter(text(each, "domain") for each in items(pool, "status", "lostMachines")),
        generation=number(pool, "metadata", "generation"),
        specified=moment(pool, "status", "specified"),
        targeted=moment(pool, "status", "targeted"),
        checked=moment(pool, "status", "checked"),
        progressed=moment(pool, "status", "progressed"),
    )


def _has_reason(facts: Facts, reason: Reason) -> bool:
    check = facts.checks.get(type(reason).__name__)
    return check is not None and check.reason == reason


def _checks(pool: object) -> Iterator[Check]:
    """Return the conditions on the newest generation; an older condition may no longer hold."""
    generation = at(pool, "metadata", "generation")
    for each in items(pool, "status", "conditions"):
        if at(each, "observedGeneration") == generation and text(each, "type"):
            yield Check(
                type=text(each, "type"),
                status=text(each, "status"),
                reason=text(each, "reason"),
                message=text(each, "message"),
                since=moment(each, "lastTransitionTime"),
                position=number(each, "logPosition"),
            )


def _older(pool: object) -> dict[str, str]:
    """Return the reasons of the conditions that are about an older generation, by type."""
    generation = at(pool, "metadata", "generation")
    return {
        text(each, "type"): text(each, "reason")
        for each in items(pool, "status", "conditions")
        if at(each, "observedGeneration") != generation and text(each, "type")
    }


def node_facts(node: object) -> NodeFacts:
    """Return the facts that the document of a Node shows."""
    conditions = {text(each, "type"): each for each in items(node, "status", "conditions")}
    active, removal = conditions.get("CWActive"), conditions.get("CWNodeRemoval")
    is_active, leaves = (text(each, "status") == "True" for each in (active, removal))
    pods, asked = items(node, "status", "blockingPods"), moment(node, "status", "askedSince")
    broken = [each for each in conditions.items() if is_problem(each[0], text(each[1], "status"))]
    problems = {cordon_cause(kind): moment(each, _SINCE) for kind, each in sorted(broken)}
    return NodeFacts(
        name=text(node, "metadata", "name"),
        position=position(node),
        created=moment(node, "metadata", "creationTimestamp"),
        registered=text(conditions.get("CWRegistered"), "status") == "True",
        phase=text(node, "status", "phase"),
        reboots=number(node, "status", "reboots"),
        active=is_active,
        active_since=moment(active, "lastTransitionTime") if is_active else None,
        idle_since=None if is_active else moment(active, "lastTransitionTime"),
        work=text(active, "message"),
        blocking=tuple((text(each, "name"), moment(each, "since")) for each in pods),
        blocking_count=max(len(pods), number(node, "status", "blockingPodCount")),
        removal=text(removal, "reason") or "Unknown" if leaves else PREEMPTED if asked else "",
        removal_since=moment(removal, "lastTransitionTime") if leaves else None,
        asked_since=None if leaves else asked,
        warned=at(node, "status", "warned") is True,
        preempted_since=moment(node, "status", "preemptedSince"),
        forced=text(node, "status", "drain") == "forced",
        progressed=moment(node, "status", "progressed"),
        answer_by=moment(node, "status", "answerBy"),
        silence_due=moment(node, "status", "silenceDue"),
        problems=tuple(problems),
        problems_since=min(filter(None, problems.values()), default=None),
        cordon=text(node, "metadata", "annotations", CORDON_REASON),
        cordoned_since=moment(node, "status", "cordonedSince"),
        relapsed=any(_has_relapsed(node, *each) for each in conditions.items()),
        reserved=text(node, "status", "reservedFor") == CONTROL_PLANE,
        domain=text(node, "metadata", "labels", NVLINK_DOMAIN),
    )


def _has_relapsed(node: object, kind: str, condition: object) -> bool:
    """Return whether a condition reports a problem that came back soon after a reboot for it."""
    if not is_problem(kind, text(condition, "status")):
        return False
    ended, began = moment(node, "status", "rebootedFor", kind), moment(condition, _SINCE)
    return ended is not None and began is not None and began - ended < RELAPSE


def _limit(quota: object) -> Limit | None:
    if not isinstance(quota, Mapping):
        return None
    limit = None if at(quota, "limit") is None else number(quota, "limit")
    version, given_up = number_in_text(quota, "resourceVersion"), moment(quota, "givenUp")
    return Limit(limit, number(quota, "used"), version, given_up)


def machine_facts(machine: object) -> MachineFacts:
    """Return the facts that the document of a machine shows."""
    return MachineFacts(
        text(machine, "metadata", "name"),
        text(machine, "status", "state"),
        text(machine, "status", "cause"),
        text(machine, "metadata", "labels", NVLINK_DOMAIN),
        position(machine),
        at(machine, "status", "outOfService") is True,
    )


def _machines(capacity: object, machines: Iterable[MachineFacts], pool: Facts) -> Machines | None:
    if not isinstance(capacity, Mapping):
        return None
    machines = list(machines)
    triage = [each for each in machines if each.state not in IN_SERVICE]
    return Machines(
        free=number(capacity, "free"),
        assigned=number(capacity, "assigned"),
        triage=number(capacity, "triage"),
        broken=tuple((each.name, each.cause, each.position) for each in triage[:BROKEN_MAX]),
        reclaimed=number(capacity, "reclaimed"),
        to_reclaim=number(capacity, "toReclaim"),
        domains=_domains(machines, pool) if rack_size(pool.instance_type) else {},
        position=number_in_text(capacity, "resourceVersion"),
        giving_way=number(capacity, "givingWay"),
        preempting_since=moment(capacity, "preemptingSince"),
        zap=number(capacity, "zap"),
        unwarned=number(capacity, "unwarned"),
        unmarked=number(capacity, "unmarked"),
        unsure=number(capacity, "unsure"),
        held_out=sum(each.is_held_out for each in machines),
    )


def _domains(machines: Iterable[MachineFacts], pool: Facts) -> dict[str, Domain]:
    """Return the NVLink domains of the machines, as far as the NodePool depends on them."""
    own = {node.name for node in pool.counted_nodes}
    domains: dict[str, Domain] = {}
    for each in machines:
        domain = domains.get(each.domain, Domain())
        is_own, is_node = each.name in own, each.state == "Assigned"
        domains[each.domain] = Domain(
            domain.held + (is_node and is_own),
            domain.free + (each.state == "Free"),
            domain.triage if each.state in IN_SERVICE else (*domain.triage, each.name),
            domain.others + (is_node and not is_own),
            domain.zap + (each.state == "Zap"),
            domain.held_out + each.is_held_out,
        )
    return domains
