"""Why a NodePool does not have what it wants: facts in, one sentence and ranked causes out."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from nodepool.contract.catalog import INSTANCE_TYPES, ZONES
from nodepool.contract.conditions import Validated
from nodepool.contract.model import ComputeClass, NodePoolSpec
from nodepool.explanation.cause import Cause, Proof
from nodepool.explanation.causes import causes
from nodepool.explanation.facts import Check, Domain, Facts, Limit, Machines, Peer
from nodepool.explanation.node_facts import NodeFacts
from nodepool.explanation.remedies import AddMachines, EndWork, RebootNode, Remedy, StartService
from nodepool.explanation.sentence import explain
from support.constants import H100, ZONE
from support.proposals import NOON
from validator.verdict import verdict

OVER = "targetNodes 12 exceeds quota 8 for gd-8xh100ib-i128 (6 used by 2 other pools)"
SCARCE = "none of 3 wanted Nodes of gd-8xh100ib-i128 can be had in US-EAST-04A now"
SINCE = "2026-01-01T12:00:00Z"
GB200 = "gb200-4x"
RACK_ZONE = min(INSTANCE_TYPES[GB200].zones)


def check(kind: str, reason: str = "", message: str = "", position: int = 0) -> Check:
    """A condition that is as it should be, unless there is a reason for another status."""
    status = {"": "True", "InternalError": "Unknown"}.get(reason, "False")
    return Check(kind, status, reason or "Fine", message, NOON, position)


def pool(target: int, *checks: Check, **fields: object) -> Facts:
    """A NodePool that wants so many Nodes, with all checks passed but for these."""
    passed: Mapping[str, Check] = {k: check(k) for k in ("Validated", "Quota", "Capacity")}
    own = {**passed, **{each.type: each for each in checks}}
    shown = {"name": "train", "instance_type": H100, "zone": ZONE, "checks": own, "position": 90}
    return Facts(target=target, **{**shown, **fields})  # type: ignore[arg-type]


def shown(cause: Cause) -> dict[str, object]:
    """What a cause says, with its remedies as texts."""
    return {
        "kind": cause.kind,
        "title": cause.title,
        "message": cause.message,
        "since": cause.since,
        "details": cause.details,
        "helps": cause.helps,
        "proofs": cause.proofs,
    }


def says(
    kind: str,
    title: str,
    message: str = "",
    *,
    since: datetime | None = None,
    details: tuple[str, ...] = (),
    helps: tuple[str, ...] = (),
    proofs: tuple[Proof, ...] = (),
) -> dict[str, object]:
    """The same as it is expected."""
    return {
        "kind": kind,
        "title": title,
        "message": message,
        "since": since,
        "details": details,
        "helps": helps,
        "proofs": proofs,
    }


def kinds(facts: Facts) -> list[str]:
    """What the causes are about, ranked."""
    return [cause.kind for cause in causes(facts)]


def first(facts: Facts) -> Cause:
    """The cause that is ranked first."""
    return causes(facts)[0]


def after(minutes: int) -> datetime:
    """So many minutes after noon."""
    return NOON + timedelta(minutes=minutes)


def test_a_nodepool_that_has_what_it_wants_has_no_causes() -> None:
    explanation = explain(pool(2, current=2))

    assert explanation.causes == ()
    assert explanation.sentence == (
        f"NodePool train wants 2 Nodes of {H100} in {ZONE} and has them; nothing blocks it."
    )


def test_the_sentence_says_what_is_wanted_what_blocks_since_when_and_what_helps() -> None:
    facts = pool(
        12,
        check("Quota", "Over", OVER, 40),
        current=2,
        granted=2,
        limit=Limit(8, 8, 41),
        peers=(Peer("serve", 6, 6),),
    )

    assert explain(facts).sentence == (
        f"NodePool train wants 12 Nodes of {H100} in {ZONE} and has 2; "
        f"Quota is Over, False since {SINCE}: {OVER}; raise the quota of {H100} in {ZONE} to 18."
    )


def test_a_target_over_the_quota_names_who_holds_it_and_every_change_that_would_help() -> None:
    facts = pool(
        12,
        check("Quota", "Over", OVER, 40),
        current=1,
        granted=1,
        limit=Limit(16, 13, 41),
        peers=(
            Peer("prod/small", held=2, reserved=3, position=30),
            Peer(
                "test/batch",
                held=9,
                reserved=9,
                spot=True,
                target=9,
                yields=True,
                waits_for_quota=True,
                position=31,
            ),
            Peer("prod/empty", held=0, reserved=0, position=32),
        ),
    )

    assert shown(first(facts)) == says(
        "Quota",
        "Quota is Over",
        OVER,
        since=NOON,
        details=(
            "the quota is 8 Nodes too small",
            "train reserves 1",
            "other NodePools reserve 12: test/batch (spot) 9, prod/small 3",
            "test/batch waits for the same quota",
        ),
        helps=(
            f"raise the quota of {H100} in {ZONE} to 24",
            "scale train to 4, which fits",
            "scale test/batch down to 1",
        ),
        proofs=(
            Proof(40, "condition Quota"),
            Proof(41, f"quota {ZONE}.{H100}"),
            Proof(31, "nodepool test/batch"),
            Proof(30, "nodepool prod/small"),
        ),
    )


def test_a_quota_that_was_never_set_is_to_be_set() -> None:
    facts = pool(3, check("Quota", "NotSet", "no quota is set"), limit=Limit(None, 0))

    assert first(facts).helps == (f"set the quota of {H100} in {ZONE} to 3",)


def test_a_limit_below_what_is_in_use_leaves_the_nodepool_what_it_has() -> None:
    own, other = {"current": 5, "granted": 5}, Peer("serve", 3, 3)
    facts = pool(9, check("Quota", "Over"), **own, limit=Limit(4, 8), peers=(other,))

    assert first(facts).helps == (
        f"raise the quota of {H100} in {ZONE} to 12",
        "scale train to 5, what it has",
    )


def test_without_the_quota_itself_there_is_still_a_change_that_helps() -> None:
    cause = first(pool(9, check("Quota", "Over")))

    assert cause.helps == ("raise the quota, or lower the target",)


def test_missing_machines_name_who_holds_them_and_those_in_triage() -> None:
    facts = pool(
        5,
        check("Capacity", "NoneAvailable", SCARCE, 50),
        current=2,
        granted=5,
        machines=Machines(0, 8, 3, broken=(("g1", "no boot", 20), ("g2", "", 21)), position=51),
        peers=(Peer("prod/batch", 4, 4, spot=True, waits_for_machines=True, position=30),),
    )

    assert shown(first(facts)) == says(
        "Capacity",
        "Capacity is NoneAvailable",
        SCARCE,
        since=NOON,
        details=(
            f"of {H100} in {ZONE} 0 are free, 8 are assigned and 3 are out of service",
            "other NodePools hold 4: prod/batch (spot) 4",
            "other organisations or the control plane hold 2",
            "prod/batch waits for machines of the same type",
            "machine g1 is out of service: no boot",
            "machine g2 is out of service",
        ),
        helps=(
            "repair 3 of 3 machines out of service",
            "add 3 machines of the type to the zone",
            "scale train to 2, what it has",
        ),
        proofs=(
            Proof(50, "condition Capacity"),
            Proof(51, f"capacity {ZONE}.{H100}"),
            Proof(20, "machine g1"),
            Proof(21, "machine g2"),
            Proof(30, "nodepool prod/batch"),
        ),
    )


def test_a_node_affinity_that_leaves_out_free_machines_is_to_be_relaxed() -> None:
    facts = pool(5, check("Capacity", "PartialNodeAffinity"), granted=5, machines=Machines(4, 0, 9))

    assert first(facts).helps == ("relax the node affinity: 4 machines are free without it",)


def test_machines_that_come_by_racks_are_added_by_racks() -> None:
    rack = next(each.id for each in INSTANCE_TYPES.values() if each.rack_size == 18)
    facts = pool(
        36,
        check("Capacity", "Partial"),
        instance_type=rack,
        granted=36,
        current=18,
        machines=Machines(0, 18, 2),
    )

    assert first(facts).helps[0] == "add 18 machines of the type to the zone, in whole racks"


@pytest.mark.parametrize(
    ("target", "domains", "helps", "room"),
    [
        (
            18,
            {"r1": Domain(5), "r2": Domain(5)},
            ("add 8 machines of NVLink domain r1 to the zone: no other completes its rack",),
            "8 Nodes",
        ),
        (
            36,
            {"r1": Domain(17, free=1), "r2": Domain(16), "r3": Domain(1)},
            ("add 1 machine of NVLink domain r2 to the zone: no other completes its rack",),
            "",
        ),
        (
            54,
            {"r1": Domain(17), "r2": Domain(16), "r3": Domain(12)},
            (
                "add 1 machine of NVLink domain r1 to the zone: no other completes its rack",
                "add 2 machines of NVLink domain r2 to the zone: no other completes its rack",
                "add 6 machines of NVLink domain r3 to the zone: no other completes its rack",
            ),
            "",
        ),
    ],
)
def test_racks_are_to_be_completed_as_far_as_the_target_has_room(
    target: int, domains: Mapping[str, Domain], helps: tuple[str, ...], room: str
) -> None:
    facts = pool(
        target,
        check("Capacity", "Partial"),
        instance_type="gb200-4x",
        granted=target,
        current=sum(domain.held for domain in domains.values()),
        machines=Machines(0, 50, 0, domains=domains),
    )

    (cause,) = (each for each in causes(facts) if each.kind == "Capacity")

    assert cause.helps == helps
    assert [each for each in cause.details if "leaves room" in each] == [
        f"its target leaves room for {each}, which completes none of its racks"
        for each in filter(None, [room])
    ]


@pytest.mark.parametrize(
    ("granted", "domains", "needed", "whole"),
    [
        (54, {"r1": Domain(5, free=13), "r2": Domain(5, free=13)}, 44, (18,)),
        (54, {"r1": Domain(18)}, 36, (36,)),
        (54, {"r1": Domain(18)}, 36 + 18 + 1, (54,)),
        (36 + 5, {"r1": Domain(18)}, 23, (18,)),
        (36, {"r1": Domain(17, free=1), "r2": Domain(16, free=2)}, 0, ()),
    ],
    ids=[
        "two racks are completed",
        "one rack is there",
        "a rack and a machine are for what is before",
        "quota leaves room for a part of a rack as well",
        "all racks have begun",
    ],
)
def test_as_many_whole_racks_are_asked_for_as_neither_are_there_nor_are_to_be_completed(
    granted: int, domains: Mapping[str, Domain], needed: int, whole: tuple[int, ...]
) -> None:
    facts = pool(
        54,
        check("Capacity", "Partial"),
        instance_type=GB200,
        granted=granted,
        current=sum(domain.held for domain in domains.values()),
        machines_needed=needed,
        machines=Machines(0, 50, 0, domains=domains),
    )

    (cause,) = (each for each in causes(facts) if each.kind == "Capacity")

    assert [each.action for each in cause.remedies if isinstance(each.action, AddMachines)] == [
        AddMachines(count, in_racks=True) for count in whole
    ]


def test_a_rack_whose_machines_are_being_wiped_is_waited_for() -> None:
    # given a part of a rack whose domain has a free machine, and one that is being wiped
    machines = Machines(1, 16, 0, domains={"r1": Domain(16, free=1, zap=1)}, zap=1)
    facts = pool(
        18,
        check("Capacity", "Partial"),
        machines=machines,
        instance_type="gb200-4x",
        granted=18,
        current=16,
    )

    (cause,) = (each for each in causes(facts) if each.kind == "Capacity")

    assert "1 more is being wiped, and free afterwards" in cause.details
    assert cause.helps[0] == "wait: 1 machine of NVLink domain r1 is being wiped"


def test_racks_of_a_nodepool_with_an_affinity_ask_for_machines_that_satisfy_it() -> None:
    # given a part of a rack whose domain has free machines, and a rack in triage
    broken = tuple(f"m{number}" for number in range(18))
    domains = {"r1": Domain(16, free=2), "r2": Domain(triage=broken)}
    shared = {"instance_type": "gb200-4x", "granted": 18, "current": 16, "has_affinity": True}
    machines = Machines(2, 16, 18, domains=domains)
    facts = pool(18, check("Capacity", "Partial"), machines=machines, **shared)

    (part,) = (each for each in causes(facts) if each.kind == "Capacity")
    whole = pool(
        18,
        check("Capacity", "Partial"),
        machines=Machines(0, 0, 18, domains={"r2": domains["r2"]}),
        **{**shared, "current": 0},
    )
    (rack,) = (each for each in causes(whole) if each.kind == "Capacity")

    # then no machine is to be repaired of which nobody knows whether it satisfies the affinity
    text = "add 2 machines of NVLink domain r1 that satisfy the node affinity to the zone"
    assert f"{text}: no other completes its rack" in part.helps
    assert rack.helps == (
        "add 18 machines that satisfy the node affinity to the zone, in whole racks",
    )


def test_a_nodepool_without_any_grant_needs_no_machines() -> None:
    facts = pool(
        5,
        check("Quota", "Over", OVER),
        check("Capacity", "NoneAvailable", SCARCE),
        granted=0,
        machines=Machines(0, 0, 0),
        now=NOON + timedelta(minutes=5),
        specified=NOON,
    )

    assert [cause.title for cause in causes(facts)] == [
        "the capacity service does not answer",
        "Quota is Over",
    ]


@pytest.mark.parametrize(
    ("nodes", "removed", "service"),
    [
        ((), "Pending", "allocator"),
        ((), "", "validator"),
        ((NodeFacts("g1", 80, removal="PoolDeleted", removal_since=NOON),), "Pending", "lifecycle"),
    ],
)
def test_the_service_is_named_that_does_not_go_on_with_a_deletion(
    nodes: tuple[NodeFacts, ...], removed: str, service: str
) -> None:
    facts = pool(
        1,
        check("NodesRemoved", removed),
        current=len(nodes),
        deleting=True,
        deleting_since=NOON,
        nodes=nodes,
        now=NOON + timedelta(minutes=61),
    )

    (cause,) = causes(facts)

    assert [remedy.action for remedy in cause.remedies] == [StartService(service)]


def test_lifecycle_is_named_where_a_node_leaves_on_which_nothing_runs() -> None:
    nodes = (NodeFacts("g1", 80, removal="ScaleDown", removal_since=NOON),)

    (cause,) = causes(pool(0, current=1, nodes=nodes, now=NOON + timedelta(minutes=61)))

    assert [remedy.action for remedy in cause.remedies] == [StartService("lifecycle")]


def test_no_service_is_named_before_its_part_of_a_removal_is_due() -> None:
    # given a Node whose Pod ended an hour after its removal began, and a deletion of an hour
    now = NOON + timedelta(minutes=61)
    idle = NodeFacts("g1", 80, removal="ScaleDown", removal_since=NOON, idle_since=now)
    deletion = {"deleting": True, "deleting_since": NOON, "progressed": now}

    (removal,) = causes(pool(0, current=1, nodes=(idle,), now=now))
    (end,) = causes(pool(1, check("NodesRemoved", "Pending"), now=now, **deletion))

    assert removal.helps[0] == "wait until they are gone"
    assert end.helps == ("wait until it is gone: no Pod blocks a deletion",)


def test_nodes_that_boot_are_counted_from_the_first() -> None:
    nodes = (
        NodeFacts("g2", 61, after(3), registered=False),
        NodeFacts("g1", 60, after(1), registered=False),
        NodeFacts("g0", 59, after(0)),
    )

    assert [shown(each) for each in causes(pool(3, current=1, in_progress=2, nodes=nodes))] == [
        says(
            "Booting",
            "2 are in progress",
            "g1, g2 have not joined yet",
            since=after(1),
            helps=("wait until they join the cluster",),
            proofs=(Proof(60, "node g1"), Proof(61, "node g2")),
        )
    ]


def test_surplus_nodes_name_the_pods_that_they_wait_for_and_since_when() -> None:
    pods = (("job", after(2)),)
    leaving = NodeFacts("g1", 70, NOON, active=True, removal="ScaleDown")
    node = replace(leaving, blocking=pods, blocking_count=2)
    facts = pool(0, check("AtTarget", "OverTarget"), current=1, nodes=(node,))

    assert [shown(each) for each in causes(facts)] == [
        says(
            "Removal",
            "it has 1 Node too many",
            "waits for g1, active with Pods job since 2026-01-01T12:02:00Z, 1 more",
            since=NOON,
            helps=("end the Pods that block on g1", "scale train to 1, what it has"),
            proofs=(Proof(70, "node g1"),),
        )
    ]


def test_a_higher_target_is_not_advised_while_an_unhealthy_node_leaves() -> None:
    nodes = (NodeFacts("g1", 70, NOON, active=True, blocking_count=1, removal="Unhealthy"),)

    cause = first(pool(0, check("AtTarget", "OverTarget"), current=1, nodes=nodes))

    assert cause.helps == ("end the Pods that block on g1",)


def test_nodes_that_stay_since_none_is_idle_may_go_with_another_strategy() -> None:
    nodes = tuple(NodeFacts(f"g{n}", n, NOON, active=True, work="2 Pods") for n in (1, 2))

    cause = first(pool(1, check("AtTarget", "OverTarget"), current=2, nodes=nodes))

    assert cause.message == (
        f"waits for 1 of 2: g1, active since {SINCE} (2 Pods); g2, active since {SINCE} (2 Pods)"
    )
    assert cause.helps == (
        "cordon one of its active Nodes and end the work there: it leaves once it is idle",
        "set lifecycle.scaleDownStrategy to PreferIdle, which removes active Nodes too",
        "scale train to 2, what it has",
    )


def test_no_node_leaves_an_invalid_nodepool_and_only_its_spec_is_to_be_changed() -> None:
    facts = pool(0, check("Validated", "Invalid", "no such type"), current=1)

    assert [(cause.kind, cause.message, cause.helps) for cause in causes(facts)] == [
        ("Validated", "no such type", ("change the spec as the message says",)),
        (
            "Removal",
            "none is removed while Validated is Invalid",
            ("change the spec as the condition Validated says",),
        ),
    ]


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("spot", [False, True])
def test_a_spec_is_to_be_changed_only_if_a_change_that_is_allowed_makes_it_valid(
    zone: str, spot: bool
) -> None:
    # given NodePools of each type, and of a type that does not exist, in a zone
    for name in (*INSTANCE_TYPES, "gd-8xh100"):
        kind = INSTANCE_TYPES.get(name)
        spec = NodePoolSpec(
            instance_type=name,
            target_nodes=(kind and kind.rack_size) or 1,
            compute_class=ComputeClass.SPOT if spot else ComputeClass.DEFAULT,
        )
        may_be_valid = verdict(spec, zone).reason is Validated.VALID

        # when the check has found a spec invalid
        facts = pool(0, check("Validated", "Invalid"), instance_type=name, zone=zone, spot=spot)
        (help,) = first(facts).helps

        # then its fields are to be changed if that can help, and a new NodePool is advised if not
        assert help.startswith("change the spec" if may_be_valid else "delete train and create")


@pytest.mark.parametrize(
    ("name", "zone", "spot", "other"),
    [
        ("gd-8xh100", ZONE, False, "another instanceType: instanceType cannot be changed"),
        (
            GB200,
            ZONE,
            False,
            "another instanceType, or in a cluster of another zone: instanceType cannot be changed",
        ),
        (GB200, RACK_ZONE, True, "another computeClass: computeClass cannot be changed"),
    ],
)
def test_a_nodepool_that_can_never_be_valid_is_to_be_created_again(
    name: str, zone: str, spot: bool, other: str
) -> None:
    invalid = check("Validated", "Invalid")

    cause = first(pool(0, invalid, instance_type=name, zone=zone, spot=spot))

    assert cause.helps == (f"delete train and create it again with {other}",)


def test_a_spec_that_could_not_be_validated_is_not_to_be_changed() -> None:
    facts = pool(0, check("Validated", "InternalError"), current=1)

    (removal,) = (each for each in causes(facts) if each.kind == "Removal")

    assert removal.helps == (
        "wait: no further Node leaves while Validated is InternalError",
        "scale train to 1, what it has",
    )


@pytest.mark.parametrize(
    "leaves",
    [
        {},
        {"removal": "ScaleDown", "removal_since": NOON},
        {"removal": "Preempted", "preempted_since": NOON},
    ],
)
def test_no_service_is_blamed_for_a_removal_that_failed(leaves: Mapping[str, object]) -> None:
    nodes = (NodeFacts("g1", 80, NOON, active=False, registered=True, **leaves),)  # type: ignore[arg-type]
    facts = pool(
        0, check("AtTarget", "InternalError"), current=1, nodes=nodes, now=NOON + timedelta(hours=2)
    )

    actions = [remedy.action for cause in causes(facts) for remedy in cause.remedies]

    assert first(facts).title == "AtTarget is InternalError"
    assert [action for action in actions if isinstance(action, StartService)] == []


def test_only_the_nodes_that_leave_are_being_removed_while_no_other_can_be_chosen() -> None:
    nodes = (NodeFacts("g1", 80, NOON, removal="ScaleDown"), NodeFacts("g2", 81, NOON))
    facts = pool(0, check("AtTarget", "InternalError"), current=2, nodes=nodes)

    (removal,) = (cause for cause in causes(facts) if cause.kind == "Removal")

    assert removal.message == (
        "1 is being removed; no other is removed while AtTarget is InternalError"
    )


@pytest.mark.parametrize(
    ("sizes", "help_"),
    [
        ({"r1": 18, "r2": 18}, "cordon the active Node of NVLink domain r2 and end the work there"),
        (
            {"r1": 17, "r2": 18},
            "cordon all 2 active Nodes of NVLink domain r1 and end the work there",
        ),
    ],
)
def test_the_work_is_to_end_in_the_rack_that_leaves_first(
    sizes: Mapping[str, int], help_: str
) -> None:
    active = {"r1": 2, "r2": 1}
    nodes = tuple(
        NodeFacts(f"{rack}-{number}", active=number < active[rack], registered=True, domain=rack)
        for rack, size in sizes.items()
        for number in range(size)
    )
    facts = pool(
        18,
        instance_type="gb200-4x",
        idle_only=True,
        current=len(nodes),
        nodes=nodes,
        staying=sizes,
        now=NOON,
    )

    (removal,) = (each for each in causes(facts) if each.kind == "Removal")

    assert removal.helps[0] == help_


def test_preempted_nodes_are_no_removal_of_the_nodepool() -> None:
    nodes = (NodeFacts("g1", 80, NOON, removal="Preempted", preempted_since=after(1)),)

    assert [shown(each) for each in causes(pool(1, current=1, nodes=nodes))] == [
        says(
            "Preemption",
            "1 Node is being preempted",
            "g1",
            since=after(1),
            details=("a preempted Node leaves 7 minutes after its warning at the latest",),
            helps=("wait: the NodePool refills by itself when machines are free",),
            proofs=(Proof(80, "node g1"),),
        )
    ]


def test_the_services_are_named_that_end_a_preemption_which_is_late() -> None:
    nodes = (NodeFacts("g1", 80, NOON, removal="Preempted", preempted_since=NOON),)

    (cause,) = causes(pool(1, current=1, nodes=nodes, now=NOON + timedelta(minutes=8)))

    assert [remedy.action for remedy in cause.remedies] == [
        StartService("preemption"),
        StartService("lifecycle"),
    ]


def test_unhealthy_nodes_are_named_with_their_problems_and_what_cures_them() -> None:
    nodes = (
        NodeFacts("g1", 80, problems=("NotReady",), problems_since=after(2)),
        NodeFacts("g2", 81, problems=("GPUMissing", "XIDErrors"), problems_since=after(1)),
        NodeFacts("g3", 82, removal="Unhealthy", problems=("NotReady",), problems_since=NOON),
        NodeFacts("g4", 83),
    )

    facts = pool(4, current=4, nodes=nodes, machines=Machines(9, 4, 0))
    (cause,) = (each for each in causes(facts) if each.kind == "Health")
    cured = causes(pool(1, current=1, nodes=nodes[1:2], cures=True))

    assert shown(cause) == says(
        "Health",
        "2 Nodes are unhealthy",
        "g1: NotReady; g2: GPUMissing, XIDErrors",
        since=after(1),
        helps=("'nodepool drain g2' ends what runs there; it is then cured or replaced",),
        proofs=(Proof(80, "node g1"), Proof(81, "node g2")),
    )
    assert [each.helps for each in cured] == [("wait: g2 is drained once nothing blocks that",)]


@pytest.mark.parametrize(
    ("problems", "fields", "help_"),
    [
        (("XIDErrors",), {}, "'nodepool reboot g1' ends what runs there; it is then cured"),
        (
            ("NVLinkStatusInactive", "XIDErrors"),
            {"blocking": (("job", NOON),), "blocking_count": 1},
            "'nodepool reboot g1 --force' ends what runs there; it is then cured",
        ),
        (
            ("XIDErrors",),
            {"blocking": (("Slurm job 7", NOON),), "blocking_count": 1},
            "end the Slurm job on g1, then 'nodepool reboot g1 --force'",
        ),
        (
            ("XIDErrors",),
            {"relapsed": True},
            "'nodepool drain g1' ends what runs there; it is then cured or replaced",
        ),
        (
            ("GPUMissing", "XIDErrors"),
            {},
            "'nodepool drain g1' ends what runs there; it is then cured or replaced",
        ),
        (
            ("XIDErrors",),
            {"phase": "verifying"},
            "wait until it has rebooted: a Node is verified after its reboot",
        ),
    ],
)
def test_a_node_is_rebooted_if_that_cures_it_and_drained_if_it_has_to_be_replaced(
    problems: tuple[str, ...], fields: Mapping[str, object], help_: str
) -> None:
    node = NodeFacts("g1", 80, phase="cordoned", problems=problems, problems_since=NOON)

    nodes = (replace(node, **fields),)  # type: ignore[arg-type]

    cause = first(pool(1, current=1, nodes=nodes, machines=Machines(1, 1, 0)))

    assert cause.helps == (help_,)


def test_a_node_that_waits_for_its_cure_comes_before_nodes_that_reboot() -> None:
    nodes = (
        NodeFacts("g1", 80, phase="rebooting", problems=("XIDErrors",)),
        NodeFacts("g2", 81, phase="cordoned", problems=("GPUMissing",)),
    )

    (help_,) = first(pool(2, current=2, nodes=nodes)).helps

    assert help_.startswith("'nodepool drain g2' ")


@pytest.mark.parametrize("cordon", ["AdminDrain", "AdminCordon", "maintenance"])
@pytest.mark.parametrize(
    "fields",
    [{"active": True}, {"reserved": True}, {"removal": "ScaleDown"}],
)
def test_a_node_is_only_named_for_its_cordon_if_a_command_keeps_it_idle(
    cordon: str, fields: Mapping[str, object]
) -> None:
    node = NodeFacts("g1", 80, phase="cordoned", cordon=cordon)
    other = replace(node, **fields)  # type: ignore[arg-type]

    assert shown(first(pool(1, current=1, nodes=(node,)))) == says(
        "Cordon",
        "1 Node is cordoned by command",
        "g1",
        helps=("'nodepool uncordon g1' opens it to work again",),
        proofs=(Proof(80, "node g1"),),
    )
    assert "Cordon" not in kinds(pool(1, current=1, nodes=(other,)))


@pytest.mark.parametrize("cordon", ["AdminDrain", "AdminReboot"])
def test_a_node_that_has_not_answered_a_command_yet_is_named_with_its_deadline(cordon: str) -> None:
    node = NodeFacts("g1", 80, phase="cordoned", cordon=cordon, answer_by=NOON)

    (cause,) = explain(pool(1, current=1, nodes=(node,))).causes

    assert shown(cause) == says(
        "Cordon",
        "1 Node has not answered a cordon yet",
        "g1",
        helps=(
            "wait: g1 does not answer; a machine that does not answer is treated as dead at "
            f"{SINCE}, and its Node is deleted unless it may stay by then",
        ),
        proofs=(Proof(80, "node g1"),),
    )


def test_nothing_but_its_nodes_keeps_a_nodepool_from_its_deletion() -> None:
    node = NodeFacts("g1", 70, NOON, active=True, work="job", removal="PoolDeleted")
    facts = pool(
        9,
        check("Quota", "Over"),
        check("NodesRemoved", "Pending", position=66),
        current=1,
        deleting=True,
        deleting_since=NOON,
        nodes=(node,),
    )

    assert [shown(each) for each in causes(facts)] == [
        says(
            "Deletion",
            "it is being deleted",
            f"1 Node is still to be removed; waits for g1, active since {SINCE} (job)",
            since=NOON,
            helps=("wait until it is gone: no Pod blocks a deletion",),
            proofs=(Proof(66, "condition NodesRemoved"), Proof(70, "node g1")),
        )
    ]
    assert explain(facts).sentence.startswith(
        f"NodePool train wants no Nodes any more and has 1; it is being deleted since {SINCE}: 1 "
    )


def test_a_node_that_is_to_give_way_before_it_joins_is_none_of_those_that_are_too_many() -> None:
    # given two Nodes, of which one is wanted, and one that has not joined and is to give way
    coming = NodeFacts("g1", registered=False, removal="Preempted", asked_since=NOON)

    facts = pool(1, current=2, in_progress=1, nodes=(coming, NodeFacts("g2"), NodeFacts("g3")))

    (removal,) = causes(facts)
    assert (removal.title, removal.message) == ("it has 1 Node too many", "1 is to leave")


def test_causes_are_ranked_by_what_has_to_be_changed_first() -> None:
    nodes = (
        NodeFacts("g1", registered=False),
        NodeFacts("g2", removal="Unhealthy"),
        NodeFacts("g3", removal="Preempted"),
    )
    facts = pool(
        9,
        check("AtTarget", "InternalError"),
        check("Capacity", "Partial"),
        check("Quota", "InternalError"),
        current=2,
        in_progress=1,
        nodes=nodes,
    )

    assert [(cause.kind, cause.title) for cause in causes(facts) if "Error" in cause.title] == [
        ("InternalError", "AtTarget is InternalError"),
        ("InternalError", "Quota is InternalError"),
    ]
    assert kinds(facts) == [
        "InternalError",
        "Capacity",
        "Booting",
        "Removal",
        "Preemption",
        "InternalError",
    ]


@pytest.mark.parametrize(
    ("checks", "title"),
    [
        ({}, "Validated is not determined yet"),
        ({"Validated": check("Validated")}, "Quota is not determined yet"),
        (pool(1).checks, "2 Nodes are about to be assigned"),
    ],
)
def test_what_is_under_way_is_said_where_nothing_blocks(
    checks: Mapping[str, Check], title: str
) -> None:
    assert [cause.title for cause in causes(pool(2, checks=checks))] == [title]


def test_the_sentence_says_that_the_autoscaler_set_the_target_and_why() -> None:
    why = "targetNodes from 2 to 3: 1 Pod waits for 1 Node more"

    explanation = explain(pool(3, current=3, autoscaled=why, autoscaled_position=70))

    assert explanation.sentence == (
        f"NodePool train wants 3 Nodes of {H100} in {ZONE} since the autoscaler changed {why}, and"
        " has them; nothing blocks it."
    )
    wanted = explanation.document()["wanted"]
    assert isinstance(wanted, dict)
    assert wanted["autoscaled"] == {"message": why, "logPosition": 70}


def test_an_explanation_is_a_json_object_with_the_positions_that_prove_it() -> None:
    facts = pool(2, in_progress=2, nodes=(NodeFacts("g1", 60, NOON, registered=False),))

    assert explain(facts).document() == {
        "kind": "Explanation",
        "metadata": {"name": "train", "resourceVersion": "90"},
        "sentence": explain(facts).sentence,
        "wanted": {
            "instanceType": H100,
            "zone": ZONE,
            "targetNodes": 2,
            "currentNodes": 0,
            "inProgress": 2,
            "grantedNodes": 0,
        },
        "causes": [
            {
                "rank": 1,
                "cause": "Booting",
                "title": "2 are in progress",
                "message": "g1 has not joined yet",
                "since": SINCE,
                "details": [],
                "helps": ["wait until they join the cluster"],
                "actions": [{"kind": "Wait", "nodes": []}],
                "proofs": [{"logPosition": 60, "about": "node g1"}],
            }
        ],
    }


def test_the_document_of_an_action_names_its_kind_and_lists_the_nodes_of_a_rack_at_most() -> None:
    reboot = Remedy("reboot it", RebootNode("a", force=True, after_work=True))
    names = tuple(f"g{number}" for number in range(10_000))
    end = Remedy("end the work there", EndWork(names, 7))

    assert reboot.document == {"kind": "RebootNode", "node": "a", "force": True, "afterWork": True}
    assert end.document == {"kind": "EndWork", "nodes": [*names[:18]], "count": 7}
