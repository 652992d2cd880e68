"""Which spot Nodes give way, as far as that is more than the stories in tests/flow show."""

from hypothesis import given
from hypothesis import strategies as st
from immutables import Map

from allocator.decide import concerns
from allocator.members import Member
from contracts.samples import KIND, ZONE
from nodepool.contract.affinity import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
)
from nodepool.contract.commands_spot import ReclaimCapacity
from nodepool.contract.events import CapacityReclaimed, MachineReclaimed, NodePreemptionRequested
from nodepool.contract.keys import machine_key, offering_key
from nodepool.contract.model import ComputeClass, NodePoolSpec, RemovalReason
from nodepool.engine.bounds import OUTPUTS_MAX
from nodepool.placement.machines import Inventory, Machine
from unit.allocator_service import (
    POOL,
    AllocatorService,
    active,
    capacity_checked,
    granted,
    machine_added,
    of_node,
    pool_deleting,
    queued,
    registered,
    specified,
)

HOUR = 3_600
LEAF = "ib.coreweave.cloud/leafgroup"


def on_leaf(leaf: str) -> Affinity:
    """An affinity to the machines of one leaf group."""
    wanted = NodeSelectorRequirement(key=LEAF, operator="In", values=(leaf,))
    selector = NodeSelector(node_selector_terms=(NodeSelectorTerm(match_expressions=(wanted,)),))
    return Affinity(
        node_affinity=NodeAffinity(required_during_scheduling_ignored_during_execution=selector)
    )


@given(
    st.lists(st.sampled_from("ab"), max_size=12),
    st.lists(st.tuples(st.sampled_from(["", "a", "b"]), st.integers(0, 5)), max_size=8),
)
def test_each_machine_is_taken_once_and_the_first_that_fit_come_first(
    leaves: list[str], takes: list[tuple[str, int]]
) -> None:
    keys = [machine_key(ZONE, f"g{n}") for n in range(len(leaves))]
    machines = [Machine(ZONE, f"g{n}", KIND, {LEAF: leaf}) for n, leaf in enumerate(leaves)]
    line = Inventory(Map(zip(keys, machines, strict=True))).line_of(keys)
    affinities = {"a": on_leaf("a"), "b": on_leaf("b")}
    left = list(range(len(leaves)))

    for leaf, count in takes:
        expected = [place for place in left if leaf in ("", leaves[place])][:count]
        left = [place for place in left if place not in expected]

        assert line.take(affinities.get(leaf), count) == [keys[place] for place in expected]
        assert line.left == len(left)


def test_machines_are_shared_out_after_a_check_that_is_new_and_not_after_one_that_is_renewed() -> (
    None
):
    allocator = AllocatorService()
    allocator.hears(allocator.specify(2), granted(1, 2))
    check = capacity_checked(1, 2)

    allocator.hears(check)
    first = concerns(allocator.state, check)
    allocator.hears(check)
    renewed = concerns(allocator.state, check)

    assert (first, renewed) == (offering_key(ZONE, KIND), None)


def test_a_node_gives_way_if_that_brings_its_machine_back_sooner() -> None:
    scale_down, deleted = RemovalReason.SCALE_DOWN, RemovalReason.POOL_DELETED
    members = [
        Member(1),
        Member(1, triage=True),
        Member(1, removal=scale_down),
        Member(1, removal=scale_down, blocked=True),
        Member(1, removal=scale_down, grace_s=HOUR),
        Member(1, removal=scale_down, grace_s=HOUR, triage=True),
        Member(1, removal=deleted),
        Member(1, removal=deleted, grace_s=HOUR),
        Member(1, removal=deleted, grace_s=HOUR, triage=True),
        Member(1, removal=deleted, grace_s=HOUR, is_preempted=True),
        Member(1, removal=deleted, is_preempted=True, triage=True),
        Member(1, removal=RemovalReason.PREEMPTED, grace_s=HOUR),
        Member(1, removal=RemovalReason.PREEMPTED, triage=True),
    ]

    assert [(member.returns, member.may_give_way) for member in members] == [
        (False, True),
        (False, False),
        (True, False),
        (False, True),
        (False, True),
        (False, False),
        (True, False),
        (False, True),
        (False, False),
        (True, False),
        (False, False),
        (True, False),
        (False, False),
    ]


def test_a_node_of_a_deleted_pool_is_new_supply_once_it_is_asked_to_leave() -> None:
    before = Member(1, grace_s=HOUR)
    asked = Member(1, grace_s=HOUR, removal=RemovalReason.POOL_DELETED)

    assert asked.is_new_supply(before)
    assert not asked.is_new_supply(asked)


def test_a_preemption_names_who_needs_the_machine() -> None:
    # given two spot Nodes, and no free machine
    allocator = AllocatorService()
    allocator.given_machines(2)
    spot = NodePoolSpec(instance_type=KIND, target_nodes=2, compute_class=ComputeClass.SPOT)
    cheap = {"pool": "cheap"}
    checks = specified(1, 2, spec=spot), granted(1, 2), capacity_checked(1, 2)
    allocator.hears(*(check.model_copy(update=cheap) for check in checks))

    # when an operator needs a machine, and then a NodePool of class `default`
    operator = allocator.hears(ReclaimCapacity(zone=ZONE, instance_type=KIND, count=1))
    pool = allocator.scale(1)

    asked = NodePreemptionRequested(**of_node(1), cause="Reclaimed").model_copy(update=cheap)
    short = {"node": "g2", "assignment": 2, "cause": "DefaultPoolShort", "beneficiary": POOL}
    assert operator[2:] == [asked]
    assert pool == [queued(1, granted=1), asked.model_copy(update=short)]


def test_a_node_that_has_not_registered_gives_way_before_a_newer_one_that_leaves() -> None:
    # given a spot Node that has not registered, and a newer one whose Pod may take an hour to end
    allocator = AllocatorService()
    spot = NodePoolSpec(instance_type=KIND, target_nodes=1, compute_class=ComputeClass.SPOT)
    checks = specified(1, 1, spec=spot), granted(1, 1), capacity_checked(1, 1)
    dear = {"pool": "dear"}
    allocator.given_machines(1)
    allocator.hears(*checks)
    allocator.hears(machine_added(2), *(check.model_copy(update=dear) for check in checks))
    work = active(2).model_copy(update={**dear, "grace_s": HOUR})
    allocator.hears(registered(2).model_copy(update=dear), work)
    allocator.hears(pool_deleting().model_copy(update=dear))

    outputs = allocator.hears(ReclaimCapacity(zone=ZONE, instance_type=KIND, count=1))

    assert outputs[2:] == [NodePreemptionRequested(**of_node(1), cause="Reclaimed")]


def test_machines_of_nodes_that_are_still_to_be_asked_to_leave_spare_spot_nodes() -> None:
    # given two spot Nodes, and a NodePool that gives up more Nodes than one step holds
    allocator = AllocatorService()
    count = OUTPUTS_MAX + 10
    allocator.given_nodes(count)
    allocator.hears(machine_added(count + 1), machine_added(count + 2))
    spot = NodePoolSpec(instance_type=KIND, target_nodes=2, compute_class=ComputeClass.SPOT)
    checks = specified(1, 2, spec=spot), granted(1, 2), capacity_checked(1, 2)
    allocator.hears(*(check.model_copy(update={"pool": "cheap"}) for check in checks))
    first = allocator.process(allocator.specify(0))

    # when another NodePool needs all these Nodes before the rest of them is asked to leave
    checks = specified(1, count), granted(1, count), capacity_checked(1, count)
    outputs = [
        output
        for check in checks
        for output in allocator.process(check.model_copy(update={"pool": "next"}))
    ]

    assert len(first) == OUTPUTS_MAX
    assert outputs == [queued(count, granted=count).model_copy(update={"pool": "next"})]


def test_a_free_machine_is_held_back_in_the_step_of_the_command_that_reclaims_it() -> None:
    allocator = AllocatorService()
    allocator.given_machines(2)

    outputs = allocator.process(ReclaimCapacity(zone=ZONE, instance_type=KIND, count=1))

    assert outputs[1:] == [
        CapacityReclaimed(zone=ZONE, instance_type=KIND, count=1),
        MachineReclaimed(zone=ZONE, machine="g1", instance_type=KIND),
    ]
