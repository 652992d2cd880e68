"""Tries what `explain` advises: each change is made in a copy of the world, and has to help there.

A change helps if what it is for is over some time later, without anything else being done, or, of
machines and Nodes that come one by one, if there are more of them than before.
"""

import json
import re
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING, Any, assert_never, cast, get_args

from immutables import Map

from lifecycle.commands import find_conflict
from nodepool.contract.commands import ReserveNode
from nodepool.contract.conditions import Capacity
from nodepool.contract.cordons import is_for_rack, is_for_reboot, split_causes
from nodepool.contract.documents import text
from nodepool.contract.events import (
    CommandRefused,
    CWNodeDeleted,
    NodePreemptionRequested,
)
from nodepool.contract.keys import PoolKey, PoolPath, machine_key
from nodepool.contract.messages import Envelope, Message
from nodepool.contract.phases import RESTARTING
from nodepool.engine import bounds
from nodepool.engine.world import World
from nodepool.explanation.cause import Cause, Kind
from nodepool.explanation.cordon_remedies import count_unavailable
from nodepool.explanation.documents import IN_SERVICE
from nodepool.explanation.facts import Check, Facts
from nodepool.explanation.leaving import surplus, without_lost
from nodepool.explanation.outlook import fits_target, stays_usable
from nodepool.explanation.promises import Promise
from nodepool.explanation.remedies import (
    Action,
    AddMachines,
    DrainNode,
    DropAffinity,
    EditSpec,
    EndWork,
    PreferIdle,
    RebootNode,
    Remedy,
    RepairMachines,
    ReturnMachines,
    ScalePeer,
    ScaleTo,
    SetLimit,
    StartService,
    UncordonNodes,
    Unreserve,
    Wait,
)
from nodepool.explanation.sentence import Explanation, explain
from nodepool.explanation.sharing import rack_of
from nodepool.placement.racks import NVLINK_DOMAIN
from support.audit.facts import Violation
from support.audit.words import WRONG_PLURAL
from support.constants import RACK
from support.explaining import Buckets, buckets_of, facts_of
from support.paths import machine_path, org_path, pool_path, zone_path
from support.reference.racks import DOMAIN
from support.simulation.forks import fork

if TYPE_CHECKING:
    from fleet.machine import Machine
    from fleet.state import State as FleetState
    from lifecycle.state import State as LifecycleState

COUNTED = re.compile(r"\d+ of \d+: |\d+ (?:is|are) to leave")
"""How many Nodes of a surplus are waited for, or leave by themselves."""
CLOSED = re.compile(r"no work begins on NVLink domain (\S+) while ")
MORE = "more are needed if a Node that does not answer is lost"
"""What is said of machines that may not be enough."""
OF_WORK = ("StopPod", "DeletePod", "UnlockNode")
"""The commands that end work, which may have ended, or be on a machine that does not answer."""
A_WHILE = timedelta(hours=4)
"""Longer than anything takes that ends by itself: boots, drains, grace periods, retries."""


@dataclass(frozen=True)
class Trial:
    """One piece of advice, and the NodePool that it is for."""

    pool: str
    facts: Facts
    cause: Cause
    remedy: Remedy


def trials(world: World) -> Iterator[Trial]:
    """Yield all advice for the NodePools of a world now; all its services work."""
    buckets = buckets_of(world)
    for key in buckets["nodepools"]:
        facts = facts_of(buckets, key, world.log.clock)
        explanation = explain(facts)
        wrong = _misspoken(explanation) or _miscounted(buckets, facts)
        wrong = wrong or _miscounted_racks(world, key, facts)
        wrong = wrong or _untold(facts, explanation)
        if wrong := wrong or _misjudged(world, key, facts, explanation):
            raise Violation(f"{wrong} ({key})")
        for cause in explanation.causes:
            for remedy in cause.remedies:
                if isinstance(remedy.action, StartService):
                    raise Violation(f"a service at work is blamed: {cause.clause} ({key})")
                said = f"explain advises {key}: {remedy.text}"
                if refused := _refused(world, facts, remedy):
                    raise Violation(f"{said}; {refused}")
                if overlooked := _overlooked(buckets, key, facts, remedy):
                    raise Violation(f"{said}; {overlooked} gives as many at once")
                if isinstance(remedy.action, ScalePeer) and _is_given_back(buckets, key, facts):
                    raise Violation(f"{said}; others give back enough already")
                yield Trial(key, facts, cause, remedy)


def _misspoken(explanation: Explanation) -> str:
    """Return what is wrong with the words of an explanation, if anything."""
    texts = [explanation.sentence]
    for cause in explanation.causes:
        texts += (cause.message, *cause.details, *cause.helps)
    wrong = [text for text in texts if WRONG_PLURAL.search(text)]
    return f"a plural for a single thing: {wrong[0]}" if wrong else ""


def _miscounted(buckets: Buckets, facts: Facts) -> str:
    """Return what is counted otherwise by the machines, or by the status of the NodePool, if any.

    Each Node is in the rack of its machine, from its assignment on.
    """
    stay, known = Counter(facts.staying), facts.machines.domains if facts.machines else {}
    held = Counter({name: domain.held for name, domain in known.items()})
    for node in facts.counted_nodes:
        machine = buckets["machines"][f"{facts.zone}/{node.name}"]
        domain = text(machine, "metadata", "labels", DOMAIN)
        stay[domain] -= not node.removal
        held[domain] -= bool(known)
    for counts in (stay, held):
        if wrong := {domain: count for domain, count in counts.items() if count}:
            return f"Nodes count for another NVLink domain than that of their machine: {wrong}"
    check = facts.checks.get("AtTarget")
    if check is not None and check.reason == "OverTarget":
        said, shown = (COUNTED.findall(each) for each in (surplus(facts), check.message))
        if said != shown:
            return f"AtTarget counts {shown}, and the explanation {said}"
    return ""


def _miscounted_racks(world: World, key: str, facts: Facts) -> str:
    """Return the rack of which the lifecycle service counts other Nodes as unavailable, if any."""
    racks = cast("LifecycleState", world.state("lifecycle")).racks.get(PoolKey(key), Map())
    for domain, rack in racks.items() if facts.machines is not None else ():
        empty = max(0, rack_of(facts) - len(rack.nodes))
        counted = len(rack.unavailable) + min(len(rack.lost), empty)
        if (said := count_unavailable(facts, domain)) != counted:
            return f"of {domain} {said} Nodes are said to be unavailable, not {counted}"
    return ""


def _untold(facts: Facts, explanation: Explanation) -> str:
    """Return the racks, or the idle Nodes, that take no work although nothing is told of them."""
    if facts.deleting:
        return ""
    details = [detail for cause in explanation.causes for detail in cause.details]
    told = {found[1] for found in map(CLOSED.match, details) if found is not None}
    staying = [node for node in facts.counted_nodes if not node.removal]
    # A Node that restarts shows why it was cordoned before; its rack may be open since.
    still = [node for node in staying if node.phase not in RESTARTING]
    closed = {node.domain for node in still if any(map(is_for_rack, split_causes(node.cordon)))}
    if untold := closed - told:
        return f"racks take no work, which is not told: {sorted(untold)}"
    idle = [node.name for node in staying if node.cordon and not node.active]
    if idle and not explanation.causes:
        return f"idle Nodes are cordoned, and nothing is told: {idle}"
    return ""


def _misjudged(world: World, key: str, facts: Facts, explanation: Explanation) -> str:
    """Return what the lifecycle service would not accept of the advice about reserved Nodes.

    Nor is advice missing about a Node that the service would reserve again. A reservation that is
    pending already waits for work.
    """
    causes = [cause for cause in explanation.causes if cause.kind == "Reservation"]
    if not causes or not stays_usable(facts):
        return ""
    nodes = cast("LifecycleState", world.state("lifecycle")).nodes
    accepted, (org, cluster, pool) = set[str](), pool_path(key)
    for each in facts.nodes:
        node = nodes[machine_key(facts.zone, each.name)]
        command = ReserveNode(
            org=org, cluster=cluster, pool=pool, node=each.name, reserved_desired=org
        )
        is_refused = node.health.is_pending or find_conflict(node, command) is not None
        # A silent Node would owe an answer, and be given up.
        if each.reserved and not (is_refused or each.is_silent):
            accepted.add(each.name)
    actions = [remedy.action for cause in causes for remedy in cause.remedies]
    taken_back = [each for each in actions if isinstance(each, Unreserve)]
    advised = {each.node for each in taken_back if not each.uncordons}
    if advised - accepted:
        return f"Nodes are to be reserved again, which is refused: {sorted(advised - accepted)}"
    fitting = {each.name for each in facts.nodes if fits_target(facts, each)}
    if accepted & fitting and not advised:
        return f"Nodes can be reserved again, which is not advised: {sorted(accepted & fitting)}"
    return ""


def _refused(world: World, facts: Facts, remedy: Remedy) -> str:
    """Return why a Node cannot do at once what is advised, if any.

    Either work is to be ended there though it is known not to answer, or it is to be uncordoned
    while it restarts.
    """
    match remedy.action:
        case UncordonNodes(nodes):
            late = [node.name for node in facts.nodes if node.phase in RESTARTING]
            return next((f"{name} restarts" for name in nodes if name in late), "")
        case EndWork(nodes):
            named = set(nodes)
        case DrainNode(name) | RebootNode(name) if "ends what runs there" in remedy.text:
            named = {name}
        case _:
            return ""
    machines = cast("Any", world.state("fleet")).machines
    for node in facts.nodes:
        is_known = "NotReady" in node.problems and node.phase not in RESTARTING
        if node.name in named and is_known and not machines[f"{facts.zone}/{node.name}"].answers:
            return f"{node.name} does not answer"
    return ""


def _overlooked(buckets: Buckets, pool: str, facts: Facts, remedy: Remedy) -> str:
    """Return a NodePool with enough idle Nodes, if the advised NodePool is at work, if any."""
    action = remedy.action
    if not (isinstance(action, ScalePeer) and action.waits) or rack_of(facts) > 1:
        return ""
    peers = {peer.name: peer for peer in facts.peers}
    advised = peers.pop(action.peer)
    demand = advised.reserved - action.target + advised.lacks + advised.may_grow
    # Work may keep the Nodes that others give back.
    demand += sum(peer.returning for peer in peers.values() if not peer.deleting)
    for name, peer in peers.items():
        nodes = facts_of(buckets, f"{pool.partition('/')[0]}/{name}").counted_nodes
        idle = sum(not node.active for node in nodes)
        # A Node that does not answer leaves first, and late.
        is_free = peer.yields and not any(node.removal or node.is_silent for node in nodes)
        short = demand - peer.lacks - peer.may_grow
        if is_free and 0 < short <= idle + peer.reserved - peer.held:
            return name
    return ""


def _is_given_back(buckets: Buckets, pool: str, facts: Facts) -> bool:
    """Whether all that wait or may grow are within the limit once the Nodes that leave are gone."""
    if facts.limit is None or facts.limit.limit is None:
        return False
    rest = max(facts.target, facts.reserved)
    for peer in facts.peers:
        other = facts_of(buckets, f"{pool.partition('/')[0]}/{peer.name}")
        stays = min(other.reserved, other.target) if other.is_valid else other.reserved
        rest += 0 if other.deleting else stays + peer.lacks + peer.may_grow
    return rest <= facts.limit.limit


ABOUT_NODES: Collection[Kind] = ("Booting", "Removal", "Preemption", "Health", "Reservation")
"""The causes that Nodes show; much of the others changes by itself while Nodes leave."""


def check_advice(
    world: World, random: Random, most: int, about: Collection[Kind] = get_args(Kind)
) -> None:
    """Raise `Violation` if one of the changes that are advised in a world does not help.

    most: how many changes are tried, of as many kinds as there are.
    about: the kinds of causes against which they are.
    """
    by_kind: dict[tuple[str, str], list[Trial]] = {}
    for trial in trials(world):
        kind = (str(trial.cause.kind), type(trial.remedy.action).__name__)
        if trial.cause.kind in about:
            by_kind.setdefault(kind, []).append(trial)
    kinds = sorted(by_kind)
    random.shuffle(kinds)
    for number in range(most):
        if not kinds:
            return
        kind = kinds[number % len(kinds)]
        check_trial(world, by_kind[kind].pop(random.randrange(len(by_kind[kind]))))
        if not by_kind[kind]:
            kinds.remove(kind)


def check_trial(world: World, trial: Trial) -> None:
    """Raise `Violation` if a change does not help, or does not do what it promises."""
    copy = fork(world)
    if trial.remedy.promise is Promise.NOTHING or not _changed(copy, trial):
        return
    copy.pass_time(A_WHILE)
    buckets = buckets_of(copy)
    if trial.pool not in buckets["nodepools"]:
        return
    said = f"explain advises {trial.pool}: {trial.remedy.text}"
    if _has_cost_nodes(copy, world, trial):
        raise Violation(f"{said}; that costs it Nodes")
    if _has_failed(copy, world, trial) or _is_excused_since(buckets, trial):
        return
    wrong = "" if _has_helped(buckets, trial) else "that does not help"
    if not wrong and not _is_kept(buckets, trial, facts_of(buckets, trial.pool)):
        wrong = f"that is not so: {trial.remedy.promise.name}"
    if wrong:
        after = explain(facts_of(buckets, trial.pool)).sentence
        raise Violation(f"{said}; {wrong}\nbefore: {explain(trial.facts).sentence}\nafter: {after}")


def _has_failed(copy: World, world: World, trial: Trial) -> bool:
    """Whether a machine broke meanwhile or is silent, with a fault that nobody knew of."""
    zone = trial.facts.zone
    before, after = (cast("FleetState", each.state("fleet")).machines for each in (world, copy))
    for node in trial.facts.nodes:
        # A machine that was silent before may be in triage since, where it answers again.
        answered, answers = (each[machine_key(zone, node.name)].answers for each in (before, after))
        was_known = node.is_silent and not node.is_excused
        if not was_known and not (answered and answers):
            return True
    if trial.remedy.promise is not Promise.COUNTED and _has_given_way(copy, world, trial.pool):
        return True
    if isinstance(trial.remedy.action, ScaleTo) and trial.cause.kind == "Capacity":
        # The Nodes that it has were lost meanwhile, such as to a preemption.
        left = copy.envelopes(CWNodeDeleted)
        if any(each.data.path == pool_path(trial.pool) and _is_new(each, world) for each in left):
            return True
    return any(_is_struck(each, after[key], trial) for key, each in before.items())


def _is_excused_since(buckets: Buckets, trial: Trial) -> bool:
    """Whether so many others fell silent too that the silence of a Node is no longer its own."""
    known = {node.name for node in trial.facts.nodes if node.is_silent and not node.is_excused}
    after = facts_of(buckets, trial.pool).nodes
    return any(node.name in known and node.is_excused for node in after)


def _has_cost_nodes(copy: World, world: World, trial: Trial) -> bool:
    """Whether a change of quota or targets led to preemptions that were not announced.

    Then the NodePool has fewer Nodes than before, and than where nothing was changed. Faults of
    machines that nobody knew of excuse that.
    """
    changes_quota = isinstance(trial.remedy.action, ScaleTo | ScalePeer | SetLimit)
    is_told = "may then preempt" in trial.remedy.text
    if not changes_quota or is_told or not _has_given_way(copy, world, trial.pool):
        return False
    before, after = (cast("FleetState", each.state("fleet")).machines for each in (world, copy))
    if any(_is_struck(each, after[key], trial) for key, each in before.items()):
        return False
    unchanged = fork(world)
    unchanged.pass_time(A_WHILE)
    held, without = (facts_of(buckets_of(each), trial.pool).held for each in (copy, unchanged))
    return held < min(trial.facts.held, without)


def _is_struck(before: "Machine", after: "Machine", trial: Trial) -> bool:
    """Whether a machine showed a fault meanwhile that it only had in store.

    A machine takes a fault out of store when the fault begins, most often with a boot, and shows
    the fault when the boot or the verification is over.
    """
    is_booting = before.restarting or (before.pool is not None and not before.joined)
    is_under_way = is_booting or before.verified_at is not None or before.wiped_at is not None
    # Who loses a Node that falls silent for good may need the machines that come, or a spot Node.
    may_need = trial.cause.kind in ("Capacity", "Reservation")
    falls_silent = before.unknown_at is not None and may_need
    took_fault = after.fault_times < before.fault_times
    return took_fault or falls_silent or (before.failing != "" and is_under_way)


def _has_given_way(copy: World, world: World, pool: str) -> bool:
    """Whether a Node of a NodePool was asked meanwhile to give way to somebody else."""
    asked = copy.envelopes(NodePreemptionRequested)
    return any(each.data.path == pool_path(pool) and _is_new(each, world) for each in asked)


def _is_new(envelope: Envelope[Message], world: World) -> bool:
    """Whether a message was stored after the copy of a world was made."""
    return envelope.time is not None and envelope.time > world.log.clock


def _has_helped(buckets: Buckets, trial: Trial) -> bool:
    """Whether a cause is over, or fewer Nodes are concerned than before."""
    before, after = trial.facts, facts_of(buckets, trial.pool)
    left = [cause for cause in explain(after).causes if cause.kind == trial.cause.kind]
    action = trial.remedy.action
    if _has_harmed(trial, after):
        return False
    if trial.cause.kind == "Reservation":
        return True  # A Node that has left is not reserved either; see `_is_kept`.
    if trial.cause.kind == "Cordon" and isinstance(action, Wait):
        return bool(_restarting(before) - _restarting(after))
    if trial.cause.kind == "Cordon":
        # A Node may be cordoned for the others of its rack afterwards, instead of for its drain.
        return bool(_cordoned(before) - _cordoned(after))
    if not left:
        return True
    match trial.cause.kind:
        case "Quota":
            return any(_still_leaves(buckets, peer, trial) for peer in _awaited(trial))
        case "Capacity":
            gets_part = isinstance(action, Wait | DropAffinity) or MORE in trial.remedy.text
            gets_part = gets_part or rack_of(before) > 1
            # Nodes that leave for triage leave all the same.
            kept = without_lost(before).held - _count_lost(trial, after)
            return gets_part and after.held > kept
        case "Removal":
            is_enough = isinstance(action, ScaleTo) and after.current <= after.wanted
            return is_enough or after.held < before.held
        case "Health":
            # A Node that is too many leaves first, if it does not answer.
            has_left = isinstance(action, Wait) and after.held < before.held
            return has_left or _unhealthy(after) < _unhealthy(before) | _reprieved(before, after)
        case _:
            return bool({node.name for node in after.nodes} ^ {node.name for node in before.nodes})


def _count_lost(trial: Trial, after: Facts) -> int:
    """Return how many silent Nodes are lost, after which more is needed as was said.

    All silent spot Nodes that give way count, of whichever NodePool and organisation they are.
    """
    if MORE not in trial.remedy.text:
        return 0
    machines = trial.facts.machines
    unsure = 0 if machines is None else machines.unsure
    stayed = {node.name for node in trial.facts.counted_nodes if node.is_silent}
    stayed -= {node.name for node in trial.facts.nodes if node.removal}
    return unsure + len(stayed - {node.name for node in after.nodes})


def _has_harmed(trial: Trial, after: Facts) -> bool:
    """Whether what was advised cost Nodes that it was not to cost."""
    before = trial.facts
    match trial.remedy.action:
        case ScaleTo(target) if trial.cause.kind == "Quota":
            # A Node that leaves is replaced, up to the Nodes held before.
            return target < before.held
        case ScaleTo(target) if trial.cause.kind == "Capacity":
            return after.current > target
        case DrainNode(node):
            return _leaves_useless(after, node)
        case _:
            return False


def _leaves_useless(after: Facts, name: str) -> bool:
    """Whether a Node is healthy and takes no work after a drain that its cure did not need."""
    return name in {node.name for node in after.nodes if node.cordon and not node.problems}


def _is_kept(  # noqa: C901  # It lists the promises.
    buckets: Buckets, trial: Trial, after: Facts
) -> bool:
    """Whether what was promised is so, of the Nodes that the advice is about."""
    before, promise, names = trial.facts, trial.remedy.promise, _named(trial.remedy.action)
    # The machine of a Node that has left may be repaired, and come back as another Node.
    known = {(node.name, node.created) for node in before.nodes}
    left = {node.name: node for node in after.nodes if (node.name, node.created) in known}
    has_left, is_lowered = not any(name in left for name in names), after.target < before.target
    # With a higher target of its autoscaler, a Node that was to leave may stay.
    is_gone = has_left or after.target > before.target
    # With a lower target of its autoscaler, a Node that became idle has left.
    is_cured = all(name in left and not left[name].problems for name in names)
    is_cured = is_cured or (has_left and is_lowered)
    match promise:
        case Promise.NOTHING | Promise.ENDS:  # `_has_helped` says whether the cause has ended.
            return True
        case Promise.CURED:
            return is_cured
        case Promise.CURED_OR_REPLACED | Promise.REPLACED:
            has_all = after.held >= min(before.held, after.allowed)
            return is_cured or (is_gone and (has_all or _was_taken(buckets, before)))
        case Promise.ENOUGH:
            return is_gone and after.held >= min(before.target, after.target)
        case Promise.NOT_GRANTED:
            return is_gone and after.held >= after.allowed
        case Promise.RACK_LACKS:
            domains = {node.domain for node in before.nodes if node.name in names}
            stay = [each for each in after.nodes if each.name not in names]
            counts = [sum(each.domain in domains for each in of) for of in (before.nodes, stay)]
            return is_gone and counts[1] < counts[0]
        case Promise.GONE | Promise.MAY_LACK | Promise.REPLACED_IF_FITTING:
            return is_gone
        case Promise.LACKS_OR_LOWERED | Promise.LACKS_OR_SPOT_OR_LOWERED:
            return is_gone and before.machines is not None and not before.machines.free
        case Promise.LACKS | Promise.LACKS_OR_SPOT:
            lacks = before.machines is not None and not before.machines.free
            return is_gone and lacks and not is_lowered
        case Promise.REFILLED | Promise.REFILLED_FOR_PODS:
            may_fall = promise is Promise.REFILLED_FOR_PODS
            has_all = after.held >= after.allowed or not _count_free(buckets, before)
            return has_all and (may_fall or not is_lowered)
        case Promise.REFILLED_IF_FITTING | Promise.REFILLED_FOR_PODS_IF_FITTING:
            may_fall = promise is Promise.REFILLED_FOR_PODS_IF_FITTING
            capacity = after.checks.get("Capacity")
            is_scarce = capacity is not None and _lacks_all(capacity)
            has_all = after.held >= after.allowed or is_scarce
            return has_all and (may_fall or not is_lowered)
        case Promise.COUNTED:
            counted = {node.name for node in after.counted_nodes}
            return counted.issuperset(names) or after.held >= after.target
        case _:
            assert_never(promise)


def _named(action: Action) -> tuple[str, ...]:
    """Return the Nodes that an advice is about."""
    match action:
        case DrainNode(node) | RebootNode(node) | Unreserve(node):
            return (node,)
        case EndWork(nodes, count):
            return nodes[:count]
        case Wait(nodes) | UncordonNodes(nodes):
            return nodes
        case _:
            return ()


def _lacks_all(capacity: Check) -> bool:
    """Return whether no machine is free that a NodePool may have."""
    return capacity.reason in (Capacity.NONE_AVAILABLE, Capacity.NONE_AVAILABLE_NODE_AFFINITY)


def _was_taken(buckets: Buckets, before: Facts) -> bool:
    """Whether somebody else took the last free machine."""
    return before.machines is not None and before.machines.free > 0 == _count_free(buckets, before)


def _count_free(buckets: Buckets, facts: Facts) -> object:
    """Return how many machines of a NodePool's type are free in its zone."""
    return buckets["capacity"].get(f"{facts.zone}/{facts.instance_type}", {}).get("free", 0)


def _unhealthy(facts: Facts) -> set[str]:
    return {node.name for node in facts.nodes if node.problems and not node.removal}


def _reprieved(before: Facts, after: Facts) -> set[str]:
    """Return the unhealthy Nodes that were to leave and stay, where another Node has left."""
    leaving = {node.name for node in before.nodes if node.problems and node.removal}
    return leaving & _unhealthy(after)


def _cordoned(facts: Facts) -> set[str]:
    return {node.name for node in facts.nodes if node.cordon and not node.removal}


def _restarting(facts: Facts) -> set[tuple[str, int]]:
    """Return the Nodes that restart or are to reboot, each with how often it was rebooted."""
    asked = {node for node in facts.nodes if is_for_reboot(split_causes(node.cordon))}
    nodes = asked | {node for node in facts.nodes if node.phase in RESTARTING}
    return {(node.name, node.reboots) for node in nodes}


def _awaited(trial: Trial) -> Iterator[str]:
    """Yield the NodePools whose quota comes once their Pods have ended, which may take forever."""
    action = trial.remedy.action
    waits = isinstance(action, Wait) and "back" in trial.remedy.text
    if isinstance(action, ScalePeer) and action.waits:
        waits = True
        yield action.peer
    if waits:
        yield from (peer.name for peer in trial.facts.peers if peer.returning and not peer.deleting)


def _still_leaves(buckets: Buckets, peer: str, trial: Trial) -> bool:
    """Whether a NodePool that was scaled down still waits for Pods."""
    facts = facts_of(buckets, f"{trial.pool.partition('/')[0]}/{peer}")
    return facts.current > facts.target


def _changed(world: World, trial: Trial) -> bool:  # noqa: C901  # It lists the actions.
    """Make the change that is advised; False for a change that only people can make."""
    own, facts = pool_path(trial.pool), trial.facts
    offering: dict[str, object] = {"instanceType": facts.instance_type}
    match trial.remedy.action:
        case Wait():
            pass
        case EditSpec() | StartService():
            return False
        case SetLimit(limit):
            content = {**offering, "zone": facts.zone, "limit": limit}
            _send(world, "SetQuota", org_path(own[0]), content)
        case ScaleTo(target):
            _send(world, "ScaleNodePool", own, {"targetNodes": target})
        case ScalePeer(peer, target):
            path = pool_path(f"{own[0]}/{peer}")
            _send(world, "ScaleNodePool", path, {"targetNodes": target})
        case AddMachines():
            _add(world, facts, trial.remedy.action)
        case RepairMachines(count, names):
            for name in names or _triage(world, facts)[:count]:
                _send(world, "RepairMachine", machine_path(f"{facts.zone}/{name}"), {})
        case ReturnMachines(count):
            content = {**offering, "count": count}
            _send(world, "ReturnCapacity", zone_path(facts.zone), content)
        case DropAffinity():
            _respecify(world, trial.pool, affinity=None)
        case PreferIdle():
            _respecify(world, trial.pool, lifecycle={"scaleDownStrategy": "PreferIdle"})
        case EndWork(nodes, count):
            # Otherwise a Pod that waits begins there at once, and the Node does not become idle.
            closed = {node.name for node in facts.nodes if node.cordon or node.reserved}
            closed |= {node.name for node in facts.nodes if node.removal}
            for node in nodes[:count]:
                if node not in closed:
                    _send(world, "CordonNode", own, {"node": node})
                _end_work(world, facts.zone, own, node)
        case DrainNode(node, force, after_work):
            if after_work:
                _end_work(world, facts.zone, own, node)
            _send(world, "DrainNode", own, {"node": node, "force": force})
        case RebootNode(node, force, after_work):
            if after_work:
                _end_work(world, facts.zone, own, node)
            _send(world, "RebootNode", own, {"node": node, "force": force})
        case UncordonNodes(nodes):
            for node in nodes:
                _send(world, "UncordonNode", own, {"node": node})
        case Unreserve(node, ends_work, uncordons):
            if uncordons:
                _send(world, "UncordonNode", own, {"node": node})
            if ends_work:
                _end_work(world, facts.zone, own, node)
            _send(world, "ReserveNode", own, {"node": node, "reservedDesired": own[0]})
        case _:
            assert_never(trial.remedy.action)
    return True


def _add(world: World, facts: Facts, action: AddMachines) -> None:
    """Add machines that satisfy the node affinity of the NodePool."""
    labels = {NVLINK_DOMAIN: action.domain} if action.domain else {}
    if facts.has_affinity:
        labels[RACK] = "r1"
    content: dict[str, object] = {
        "instanceType": facts.instance_type,
        "labels": labels,
        "inRacks": action.in_racks,
    }
    at_once = bounds.OUTPUTS_MAX - 2  # Each machine is an output, beside the outcome.
    for added in range(0, action.count, at_once):
        part = {**content, "count": min(at_once, action.count - added)}
        _send(world, "AddMachines", zone_path(facts.zone), part)


def _triage(world: World, facts: Facts) -> list[str]:
    """Return the machines in triage that the NodePool could have."""
    return [
        text(each, "metadata", "name")
        for each in buckets_of(world)["machines"].values()
        if text(each, "status", "state") not in IN_SERVICE
        and text(each, "spec", "zone") == facts.zone
        and text(each, "spec", "instanceType") == facts.instance_type
    ]


def _respecify(world: World, pool: str, **changes: object) -> None:
    """Apply the spec of a NodePool with these changes; None removes a field."""
    document = buckets_of(world)["nodepools"][pool]
    spec = {**dict(document["spec"]), **changes}  # type: ignore[call-overload]
    content = {"metadata": {"name": pool.rpartition("/")[2]}, "spec": spec}
    content["spec"] = {name: value for name, value in spec.items() if value is not None}
    _send(world, "ApplyNodePool", pool_path(pool), content)


def _end_work(world: World, zone: str, pool: PoolPath, node: str) -> None:
    """End every Pod and every job on a Node that answers."""
    fleet, lifecycle = cast("Any", world.state("fleet")), cast("Any", world.state("lifecycle"))
    machine = fleet.machines[f"{zone}/{node}"]
    for name in machine.pods:
        _send(world, "StopPod", machine_path(f"{zone}/{node}"), {"name": name})
        _send(world, "DeletePod", pool, {"name": name, "graceS": 0})
    lock = lifecycle.nodes[f"{zone}/{node}"].work.lock
    if lock is not None:
        _send(world, "UnlockNode", pool, {"node": node, "job": lock.job})


def _send(world: World, name: str, path: PoolPath, content: object) -> None:
    """Send a command; raise `Violation` if a command that is advised is refused."""
    subject, first = ".".join(("np.cmd", *path, name)), len(world.log.entries)
    world.publish(subject, json.dumps(content).encode(), f"advice-{first}")
    world.run_until_idle()
    for entry in world.log.entries[first:] if name not in OF_WORK else ():
        if entry.subject.endswith(f".{CommandRefused.__name__}"):
            raise Violation(f"what is advised is refused: {subject}: {entry.content!r}")
