"""The simulation finds advice of `explain` that does not help, put into it on purpose."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from random import Random
from typing import Any

import pytest

from aggregator import nodes
from aggregator.objects import NodeObject, NodePoolObject
from aggregator.status import _staying as count_staying
from capacity.needed import find_losers
from capacity.pool import Pool
from capacity.state import State as CapacityState
from flow.test_advice_on_nodes import BLOCKED, given_a_rack_with_repaired_machines
from flow.test_advice_on_quota import given_waiting
from flow.test_explanations import given_slow_spot_nodes, given_two_racks_of_one_domain
from flow.test_racks import (
    given_a_surplus_while_a_node_boots,
    given_racks,
    run_pod,
    want,
)
from flow.test_reservations import (
    given_a_reserved_node_of_a_closed_rack,
    given_a_reserved_node_of_a_rack_that_left,
)
from lifecycle.health import Health
from nodepool.contract.events import NodeSilent
from nodepool.contract.keys import OfferingKey, PoolKey
from nodepool.contract.reboots import RebootedFor
from nodepool.contract.timetable import GONE_AFTER
from nodepool.explanation import (
    cordon_remedies,
    node_causes,
    rack_remedies,
    reservation_remedies,
)
from nodepool.explanation.documents import node_facts
from nodepool.explanation.facts import Facts, Peer, Step
from nodepool.explanation.leaving import Rack, keep_nodes
from nodepool.explanation.node_facts import NodeFacts
from nodepool.explanation.promises import Promise
from nodepool.explanation.remedies import Remedy
from nodepool.explanation.sharing import rack_of
from nodepool.explanation.unanswered import ANSWERS_WITHIN, assigned_since, is_late
from nodepool.placement.ranking import Ranking
from nodepool.service import Context
from support.audit.facts import Violation
from support.constants import PREFER_IDLE
from support.simulation.advice import check_advice
from support.simulation.faults import Plant, violation_of
from support.simulation.planted import CALM
from support.simulation.profile import CROWDED, NVLINK, SETTINGS, UNHEALTHY
from support.world_harness import WorldHarness

ALL = 100
"""More changes than are ever advised for one NodePool."""

BUSY = replace(CROWDED, steps=2_000, faults=("boot",))
SHORT = replace(
    BUSY, machines=3, limits=(9, 12), actions={**BUSY.actions, "break_one": 30, "repair_one": 4}
)
BROKEN = replace(
    UNHEALTHY,
    steps=2_000,
    machines=3,
    limits=(12,),
    faults=("boot",),
    actions={"fail": 60, "scale": 20, "repair_one": 1},
)
"""Machines are short, and Nodes have problems that nobody mends."""
SILENT_AT_WORK = replace(
    SETTINGS,
    steps=1_000,
    faults=("hang",),
    actions={"break_one": 20, "run_pod": 60, "stop_pod": 2, "repair_one": 1, "delete": 1},
)
"""Nodes at work often do not answer any more."""
WORKING = replace(SETTINGS, steps=2_000, actions={"run_pod": 60, "stop_pod": 2, "scale": 40})
SCANT = replace(
    CROWDED,
    steps=2_000,
    machines=12,
    limits=(5, 6),
    targets=(1, 2, 3, 4),
    faults=("boot",),
    actions={**CALM, "run_pod": 60, "stop_pod": 4, "scale": 40},
)
"""Quota is short, and many Nodes are at work."""


def alone(_ranking: Ranking, claims: Mapping[PoolKey, Any], *_: object) -> None:
    """Each NodePool waits for the machines that it lacks itself, whoever is served before it."""
    for claim in claims.values():
        claim.position = 1
        claim.needed = claim.lacks - claim.taken


def none_lost(_state: CapacityState, _key: OfferingKey) -> Mapping[PoolKey, Pool]:
    """No NodePool loses a Node."""
    return {}


def none_lost_before(state: CapacityState, key: OfferingKey) -> Mapping[PoolKey, Pool]:
    """Only NodePools that wait already lose Nodes."""
    waiting = state.ranking(key).waiting
    return {each: pool for each, pool in find_losers(state, key).items() if each in waiting}


def nobody_ahead(_facts: Facts, _more: int) -> list[Peer]:
    """No NodePool of the organisation is served before another one."""
    return []


def without_domain(node: object) -> NodeFacts:
    """No Node that boots is in an NVLink domain."""
    facts = node_facts(node)
    return facts if facts.registered else replace(facts, domain="")


def without_those_that_boot(pool: NodePoolObject) -> Mapping[str, int]:
    """No Node that boots counts for its rack."""
    return count_staying(replace(pool, busy=tuple(n for n in pool.busy if n.is_registered)))


def nothing_to_empty(_facts: Facts, _leaving: int) -> list[Rack]:
    """Nodes leave by themselves, whatever runs on them."""
    return []


def never_curable(_node: NodeFacts) -> bool:
    """Each unhealthy Node is to be drained, also if a reboot cures it."""
    return False


def problems_come_back(health: Health) -> tuple[RebootedFor, ...]:
    """Each problem that a Node has is said to be one that it was rebooted for."""
    return tuple(RebootedFor(type=each.type, ended=each.since) for each in health.problems)


def always_replaced(_facts: Facts, _node: NodeFacts, *, is_cured: bool) -> Promise:
    """Each Node that is drained is replaced, whether or not a machine is free."""
    return Promise.CURED if is_cured else Promise.CURED_OR_REPLACED


def answers_anyway(_node: NodeFacts) -> bool:
    """Each Node answers."""
    return False


def taken_by_nobody(facts: Facts) -> bool:
    """No NodePool waits for machines before another one."""
    return facts.name != ""


def nothing_kept(_facts: Facts) -> int:
    """Each Node leaves at once if its NodePool is scaled down, whatever runs there."""
    return 0


def nothing_returning(_facts: Facts) -> int:
    """No NodePool gives quota back before another one is scaled down."""
    return 0


def returned_at_once(peer: Peer) -> int:
    """Each Node that a NodePool gives back already leaves at once, whatever runs there."""
    return peer.returning


def all_kept(facts: Facts) -> int:
    """Each Node stays for long if its NodePool is scaled down, though nothing runs there."""
    return facts.held


def blocked_by_nothing(_node: NodeFacts) -> bool:
    """Each Node that is to leave does so soon."""
    return False


def keep_what_stays(facts: Facts, count: int) -> Iterator[Remedy]:
    """A NodePool has only the Nodes that are not to leave, also if they are replaced."""
    return keep_nodes(facts, count - sum(node.removal != "" for node in facts.counted_nodes))


def awaited_since_verdict(facts: Facts) -> datetime | None:
    """Each spot Node has given way seven minutes after its machine was first waited for."""
    since = assigned_since(facts)
    is_over = is_late(facts, since, GONE_AFTER + ANSWERS_WITHIN)
    return since if facts.spot_awaited and is_over else None


def by_another_rack(facts: Facts) -> Iterator[Remedy]:
    """Each NodePool that lacks machines is helped by a whole rack."""
    return rack_remedies._whole_racks(facts, rack_of(facts))


PLANTS: Mapping[str, Plant] = {
    "machines are counted as if nobody was served first": Plant(
        "that does not help",
        SHORT,
        (),
        {"capacity.supply.place": alone},
    ),
    "quota is counted as if no other NodePool waited for it": Plant(
        "that does not help",
        BUSY,
        (),
        {"nodepool.explanation.quota_remedies._ahead": nobody_ahead},
    ),
    "a rack that lost machines is to be completed by other racks": Plant(
        "whole racks; that does not help",
        replace(NVLINK, steps=2_000),
        (),
        {"nodepool.explanation.machine_remedies.rack_remedies": by_another_rack},
    ),
    "a surplus is waited for that no idle Node ends": Plant(
        "wait until they are gone; that does not help",
        WORKING,
        (),
        {"nodepool.explanation.node_remedies._to_empty": nothing_to_empty},
    ),
    "a Node is to be drained that only needs a reboot": Plant(
        "cured or replaced; that does not help",
        replace(UNHEALTHY, steps=2_000),
        (),
        {"nodepool.explanation.node_remedies._is_curable": never_curable},
    ),
    "a Node is to be drained for a problem that has not come back": Plant(
        "cured or replaced; that does not help",
        replace(UNHEALTHY, steps=2_000),
        (),
        {"lifecycle.health.Health.rebooted_for": property(problems_come_back)},
    ),
    "a Node is to be drained that no free machine replaces": Plant(
        "that is not so: CURED_OR_REPLACED",
        BROKEN,
        (),
        {"nodepool.explanation.node_remedies.foretell": always_replaced},
    ),
    "work is to be ended on a Node that does not answer": Plant(
        "does not answer",
        SILENT_AT_WORK,
        (),
        {"nodepool.explanation.facts.NodeFacts.is_silent": property(answers_anyway)},
    ),
    "quota is to be given back by Nodes at work": Plant(
        "that does not help",
        SCANT,
        (),
        {"nodepool.explanation.peers._count_kept": nothing_kept},
    ),
    "quota is to be given back by Nodes at work, though others are idle": Plant(
        "gives as many at once",
        SCANT,
        (),
        {"nodepool.explanation.peers._count_kept": all_kept},
        seed=51,
    ),
}
"""What is wrong, and how it is put into the advice."""


@pytest.mark.parametrize("name", PLANTS)
def test_advice_that_does_not_help_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant = PLANTS[name]

    violation = violation_of(plant, monkeypatch)

    assert plant.text in violation


@pytest.mark.parametrize(
    ("machines", "quota", "function", "instead"),
    [
        (4, 9, "machine_remedies.is_blocked", blocked_by_nothing),
        (9, 4, "quota_remedies.keep_nodes", keep_what_stays),
    ],
)
def test_a_target_below_the_nodes_that_a_nodepool_has_is_found(
    machines: int,
    quota: int,
    function: str,
    instead: Callable[..., object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # given a NodePool that can get no further Node, and an unhealthy Node that waits for its Pod
    harness = WorldHarness()
    harness.given_data_center(machines, quota=quota)
    harness.apply("train", 4, lifecycle={"disableUnhealthyNodeEviction": False})
    harness.run_pod("n1")
    harness.break_machines("n1", fault="gpu-lost")
    harness.pass_time(minutes=3)
    harness.scale("train", 6)
    check_advice(harness.world, Random(0), most=ALL)

    # when a lower target is advised that the Nodes without that Node meet
    monkeypatch.setattr(f"nodepool.explanation.{function}", instead)

    # then following it takes what the NodePool has
    with pytest.raises(Violation, match="scale train to 3, what it keeps; that does not help"):
        check_advice(harness.world, Random(0), most=ALL)


@pytest.mark.parametrize("is_preempted", [False, True])
def test_a_node_that_leaves_and_is_not_counted_as_lost_is_found(
    is_preempted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a NodePool that lacks a Node, and loses another one to triage
    harness = WorldHarness()
    harness.given_data_center(machines=3, quota=9)
    harness.apply(
        "train", 4, computeClass="spot", lifecycle={"disableUnhealthyNodeEviction": False}
    )
    harness.run_pod("n1", interruption="graceful", graceS=600)
    if is_preempted:
        harness.apply("before", 1)
        harness.pass_time(seconds=5)
    harness.break_machines("n1", fault="gpu-lost")
    harness.pass_time(minutes=1)
    check_advice(harness.world, Random(0), most=ALL)

    # when capacity counts no loss, and evaluates it again
    monkeypatch.setattr("capacity.supply.find_losers", none_lost)
    harness.scale("train", 5)

    # then too few machines are asked for
    with pytest.raises(Violation, match="that does not help"):
        check_advice(harness.world, Random(0), most=ALL)


def test_a_loss_of_a_higher_priority_that_is_not_counted_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # given a spot NodePool that lacks two Nodes, and one with a higher priority that loses a Node
    harness = WorldHarness()
    harness.given_data_center(machines=3, quota=9)
    harness.apply("first", 2, computeClass="spot", schedulingPriority={"value": 5})
    harness.apply("second", 3, computeClass="spot")
    harness.pass_time(minutes=1)
    harness.reclaim(2)
    harness.pass_time(seconds=1)
    check_advice(harness.world, Random(0), most=ALL)

    # when capacity counts only the losses of what waits already, and evaluates it again
    monkeypatch.setattr("capacity.supply.find_losers", none_lost_before)
    harness.scale("second", 4)

    # then too few machines are asked for
    with pytest.raises(Violation, match="that does not help"):
        check_advice(harness.world, Random(0), most=ALL)


@pytest.mark.parametrize("deleted", [False, True])
def test_quota_that_is_taken_though_others_give_back_enough_is_found(
    deleted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a NodePool that waits for quota, which a NodePool at work gives back
    harness = WorldHarness()
    harness.given_data_center(machines=6, quota=4)
    harness.apply("train", 2)
    harness.apply("dev", 2)
    for node in harness.nodes("train"):
        harness.run_pod(node, interruption="graceful", graceS=600)
    if deleted:
        harness.delete("train")
    else:
        harness.scale("train", 1)
    harness.pass_time(seconds=5)
    harness.apply("new", 1)
    check_advice(harness.world, Random(0), most=ALL)

    # when that is overlooked
    monkeypatch.setattr("nodepool.explanation.peers._count_returning", nothing_returning)

    # then another NodePool is to give quota back for nothing
    with pytest.raises(Violation, match="down to 1; others give back enough already"):
        check_advice(harness.world, Random(0), most=ALL)


def test_quota_that_work_keeps_is_found_where_it_is_counted_as_if_it_came_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # given a NodePool that lacks 3 Nodes, idle Nodes, and a Node that is given back after its Pod
    harness = WorldHarness()
    harness.given_data_center(machines=12, quota=8)
    harness.apply("idle", 5)
    harness.apply("busy", 2)
    for node in harness.nodes("busy"):
        harness.run_pod(node)
    harness.scale("busy", 1)
    harness.apply("new", 4)
    harness.pass_time(minutes=1)
    check_advice(harness.world, Random(0), most=ALL)

    # when it is overlooked that the Pod keeps the Node
    monkeypatch.setattr("nodepool.explanation.quota_remedies._count_unaided", returned_at_once)

    # then the idle Nodes that are to be given back are not enough
    with pytest.raises(Violation, match="idle down to 3; that does not help"):
        check_advice(harness.world, Random(0), most=ALL)


@pytest.mark.parametrize(
    ("function", "instead", "text"),
    [
        ("nodepool.explanation.documents.node_facts", without_domain, "another NVLink domain"),
        ("aggregator.status._staying", without_those_that_boot, "AtTarget counts"),
    ],
)
def test_a_node_that_boots_and_is_not_counted_for_its_rack_is_found(
    function: str, instead: Callable[..., object], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = WorldHarness()
    monkeypatch.setattr(function, instead)

    given_a_surplus_while_a_node_boots(harness)

    with pytest.raises(Violation, match=text):
        check_advice(harness.world, Random(0), most=ALL)


def test_a_reserved_node_that_would_be_a_rack_too_many_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    harness = WorldHarness()
    given_a_reserved_node_of_a_rack_that_left(harness)
    check_advice(harness.world, Random(0), most=ALL)

    # when each Node is said to be of a rack that stays
    monkeypatch.setattr(reservation_remedies, "fits_target", lambda *_: True)

    with pytest.raises(Violation, match=r"for the organisation again; that is not so: COUNTED"):
        check_advice(harness.world, Random(0), most=ALL)


def test_a_reserved_spot_node_that_would_go_to_another_nodepool_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # given a spot NodePool with a reserved Node, and a NodePool that waits for its machine
    harness = WorldHarness()
    harness.given_data_center(machines=2, quota=9)
    harness.apply("cheap", 2, computeClass="spot")
    harness.command_node("ReserveNode", "cheap", "n1", reservedDesired="control-plane")
    harness.apply("train", 2)
    harness.pass_time(minutes=12)
    check_advice(harness.world, Random(0), most=ALL)

    # when that NodePool is overlooked
    monkeypatch.setattr(reservation_remedies, "stays_usable", taken_by_nobody)

    with pytest.raises(Violation, match=r"for the organisation again; that is not so: COUNTED"):
        check_advice(harness.world, Random(0), most=ALL)


@pytest.mark.parametrize(
    ("cordoned", "is_accepted", "text"),
    [((), False, "which is not advised"), (("n1",), True, "which is refused")],
)
def test_advice_that_knows_other_refusals_than_the_service_is_found(
    cordoned: tuple[str, ...], is_accepted: bool, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = WorldHarness()
    given_a_reserved_node_of_a_closed_rack(harness, "n2", "n3", "n4", *cordoned)
    check_advice(harness.world, Random(0), most=ALL)

    monkeypatch.setattr(reservation_remedies, "can_be_reserved", lambda *_: is_accepted)

    with pytest.raises(Violation, match=text):
        check_advice(harness.world, Random(0), most=ALL)


def test_a_repaired_machine_that_is_not_counted_as_lost_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # given a rack that lost two machines, which cannot return, and two Nodes that were drained
    harness = WorldHarness()
    given_a_rack_with_repaired_machines(harness, 2, BLOCKED["invalid"])
    for node in ("n3", "n4"):
        harness.command_node("DrainNode", "train", node)
    harness.pass_time(minutes=30)
    check_advice(harness.world, Random(0), most=ALL)

    # when only machines in triage count
    monkeypatch.setattr(cordon_remedies, "_count_lost", lambda *_: 0)

    with pytest.raises(Violation, match="2 Nodes are said to be unavailable, not 4"):
        check_advice(harness.world, Random(0), most=ALL)


@pytest.mark.parametrize("is_reserved", [False, True])
def test_a_rack_that_takes_no_work_and_is_not_told_is_found(
    monkeypatch: pytest.MonkeyPatch, *, is_reserved: bool
) -> None:
    # given a rack that three Nodes close, which are cordoned or wait for their reservation
    harness = WorldHarness()
    given_racks(harness, 1)
    want(harness, 1)
    for node in ("n1", "n2", "n3"):
        run_pod(harness, node)
        if is_reserved:
            harness.command_node("ReserveNode", "train", node, reservedDesired="control-plane")
        else:
            harness.command_node("CordonNode", "train", node)
    check_advice(harness.world, Random(0), most=ALL)

    monkeypatch.setattr(node_causes, "find_closed", lambda _: [])

    with pytest.raises(Violation, match="racks take no work, which is not told"):
        check_advice(harness.world, Random(0), most=ALL)


def test_an_idle_node_that_is_cordoned_and_not_told_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    harness = WorldHarness()
    harness.given_data_center(machines=1)
    harness.apply("train", 1)
    harness.command_node("CordonNode", "train", "n1")
    check_advice(harness.world, Random(0), most=ALL)

    monkeypatch.setattr(node_causes, "is_by_command", lambda _: False)

    with pytest.raises(Violation, match="idle Nodes are cordoned, and nothing is told"):
        check_advice(harness.world, Random(0), most=ALL)


def test_a_rack_that_is_completed_without_those_served_before_it_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    harness = WorldHarness()
    given_two_racks_of_one_domain(harness, {})
    check_advice(harness.world, Random(0), most=ALL)

    # when each rack is to get only the machines that it lacks
    monkeypatch.setattr(rack_remedies, "_ahead", lambda _: 0)

    with pytest.raises(Violation, match=r"of no NVLink domain; that does not help"):
        check_advice(harness.world, Random(0), most=ALL)


def test_a_preemption_that_is_timed_by_an_earlier_one_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # given a NodePool that awaits a second spot Node, since an operator got the first one
    harness = WorldHarness()
    given_slow_spot_nodes(harness, 3)
    harness.apply("train", 1)
    harness.pass_time(minutes=5)
    harness.reclaim(1)
    harness.pass_time(minutes=2, seconds=30)
    check_advice(harness.world, Random(0), most=ALL)

    # when the time counts from when the NodePool began to wait
    monkeypatch.setattr("nodepool.explanation.causes.spot_awaited_since", awaited_since_verdict)

    with pytest.raises(Violation, match="a service at work is blamed: the preemption"):
        check_advice(harness.world, Random(0), most=ALL)


@pytest.mark.parametrize("lacks", [1, 3])
def test_advice_by_which_another_nodepool_preempts_nodes_is_found(
    monkeypatch: pytest.MonkeyPatch, lacks: int
) -> None:
    # given a spot NodePool that lacks Nodes, and a NodePool that waits for the quota of these
    harness = WorldHarness()
    given_waiting(harness, lacks, quota=5)
    if lacks == 1:
        harness.apply("cheap", 6, computeClass="spot")
    check_advice(harness.world, Random(0), most=ALL)

    # when preemptions by that NodePool are overlooked
    monkeypatch.setattr("nodepool.explanation.leaving.preempting", lambda *_: [])
    monkeypatch.setattr("nodepool.explanation.quota_remedies._cost", lambda *_: "")

    with pytest.raises(Violation, match="that costs it Nodes"):
        check_advice(harness.world, Random(0), most=ALL)


def test_a_service_that_is_blamed_while_pods_keep_the_nodes_of_a_peer_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # given a NodePool that waits for quota of another one, whose surplus Nodes Pods keep
    harness = WorldHarness()
    harness.given_data_center(machines=6, quota=2)
    harness.apply("old", 2, lifecycle=PREFER_IDLE)
    for node in ("n1", "n2"):
        harness.run_pod(node)
    harness.apply("train", 2)
    harness.scale("old", 0)
    harness.pass_time(minutes=30)
    check_advice(harness.world, Random(0), most=ALL)

    # when each Node that leaves is to be gone at once
    monkeypatch.setattr("nodepool.explanation.peers.steps_due", removals)

    with pytest.raises(Violation, match="a service at work is blamed: the lifecycle"):
        check_advice(harness.world, Random(0), most=ALL)


def removals(facts: Facts) -> Iterator[Step]:
    """The removals of Nodes, each due at its beginning."""
    for node in facts.nodes:
        if node.removal_since is not None:
            yield Step("remove", node.removal_since)


def test_a_service_that_is_blamed_for_a_widespread_silence_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # given a read model that takes a widespread silence for one that counts
    follow = nodes._follow_silence
    monkeypatch.setattr(nodes, "_follow_silence", lambda *seen: follow(*counted(*seen)))
    harness = WorldHarness()
    harness.given_data_center(machines=4)
    harness.apply("train", 4)

    # when most Nodes are silent
    harness.break_machines("n1", "n2", "n3", fault="hang")
    harness.pass_time(minutes=30)

    with pytest.raises(Violation, match="a service at work is blamed: 3 Nodes are unhealthy"):
        check_advice(harness.world, Random(0), most=ALL)


def counted(node: NodeObject, event: NodeSilent, context: Context) -> tuple[Any, ...]:
    """The same, with a silence that is not widespread."""
    return node, event.model_copy(update={"is_widespread": False}), context
