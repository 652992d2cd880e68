"""How a NodePool gets Nodes: grants, what is announced, assignments, and faults of its settings."""

from dataclasses import replace
from datetime import timedelta

import pytest

from allocator.decide import SERVICE
from contracts.samples import KIND, ZONE, sample
from nodepool.contract.conditions import Validated
from nodepool.contract.events import (
    AllocationFailed,
    AllocationRecovered,
    CWNodeAssigned,
    CWNodePoolNodesRequestFailed,
    CWNodeRegistrationFailed,
    CWNodeRequestQueued,
)
from nodepool.contract.keys import offering_key
from nodepool.contract.model import NodePoolSpec
from nodepool.contract.subjects import Address
from nodepool.service import Context, Failure
from unit.allocator_service import (
    OF,
    POOL,
    RACK_KIND,
    RACK_ZONE,
    UID,
    AllocatorService,
    acknowledged,
    assigned,
    capacity_checked,
    deliver_fail,
    granted,
    machine_added,
    node_deleted,
    of_node,
    over_quota,
    queued,
    rack_machine,
    registration_failed,
    scaled_down,
    scaled_up,
    specified,
    with_faulty_settings,
)

GPU_TAINT = "spec.nodeTaints: nvidia.com/gpu is reserved"


# Grants: what quota allows, and what it gets back.


def test_a_smaller_grant_is_acknowledged_once() -> None:
    allocator = AllocatorService()
    allocator.hears(specified(1, 5), granted(1, 5), specified(2, 2))

    first = allocator.hears(granted(2, 2))
    second = allocator.hears(granted(2, 2))

    assert first == [acknowledged(2, 2)]
    assert second == []


def test_a_larger_grant_needs_no_acknowledgement() -> None:
    allocator = AllocatorService()
    allocator.hears(specified(1, 2), granted(1, 2), specified(2, 5))

    outputs = allocator.hears(granted(2, 5))

    assert outputs == []
    assert allocator.pool.outstanding == 5


def test_a_grant_that_grew_again_is_given_back_from_its_new_size() -> None:
    allocator = AllocatorService()
    allocator.hears(specified(1, 5), granted(1, 5), specified(2, 2), granted(2, 2))
    allocator.hears(specified(3, 4), granted(3, 4), specified(4, 3))

    outputs = allocator.hears(granted(4, 3))

    assert outputs == [acknowledged(4, 3)]
    assert allocator.pool.outstanding == 3


def test_a_grant_for_an_older_generation_is_given_back_with_the_next() -> None:
    allocator = AllocatorService()
    allocator.hears(specified(1, 5), specified(2, 2))

    older = allocator.hears(granted(1, 5))
    current = allocator.hears(granted(2, 2))

    assert older == []
    assert current == [acknowledged(2, 2)]


def test_a_smaller_grant_is_given_back_whether_or_not_the_pool_is_still_of_that_generation() -> (
    None
):
    # given a NodePool with a grant of 5 that asked for 2, and could not be validated since
    allocator = AllocatorService()
    allocator.hears(specified(1, 5), granted(1, 5), specified(2, 2))
    allocator.hears(specified(3, 2, reason=Validated.INTERNAL_ERROR))

    outputs = allocator.hears(granted(2, 2))

    assert outputs == [acknowledged(3, 2, number=2)]


def test_an_invalid_pool_gives_back_each_grant_whenever_it_comes() -> None:
    allocator = AllocatorService()
    allocator.hears(specified(1, 5), granted(1, 5))

    invalid = allocator.hears(specified(2, 6, reason=Validated.INVALID))
    late = allocator.hears(granted(1, 6, number=2))
    again = allocator.hears(specified(3, 6, reason=Validated.INVALID))

    assert invalid == [acknowledged(2, 0, number=1)]
    assert late == [acknowledged(2, 0, number=2)]
    assert again == []


def test_a_grant_for_an_older_generation_is_not_used() -> None:
    allocator = AllocatorService()
    allocator.hears(machine_added(1), specified(1, 1), specified(2, 0))

    outputs = [
        *allocator.hears(granted(1, 1), capacity_checked(1, 1)),
        *allocator.wake(),
    ]

    assert outputs == []


def test_a_grant_of_an_earlier_pool_of_the_same_name_changes_nothing() -> None:
    allocator = AllocatorService()
    allocator.hears(specified(1, 2, uid="train.0"), specified(1, 2))

    outputs = allocator.hears(granted(1, 2, uid="train.0"))

    assert outputs == []
    assert allocator.pool.grant is None
    assert allocator.pool.outstanding == 0


# Growth: what is announced, and which machines join.


def test_nodes_are_assigned_once_quota_and_capacity_are_checked() -> None:
    allocator = AllocatorService()
    allocator.given_machines(2)

    before = allocator.hears(specified(1, 1), granted(1, 1))
    outputs = allocator.hears(capacity_checked(1, 1))

    assert before == []
    assert outputs == [queued(1, granted=1), assigned(1)]


def test_a_pool_that_waits_gets_a_machine_as_soon_as_there_is_one() -> None:
    allocator = AllocatorService()
    allocator.scale(1)

    outputs = allocator.hears(machine_added(1))

    assert outputs == [assigned(1)]


def test_the_first_target_is_requested_and_a_larger_one_is_a_scale_up_from_it() -> None:
    allocator = AllocatorService()

    first = allocator.scale(2)
    second = allocator.scale(5)

    assert first == [queued(2, granted=2)]
    assert second == [scaled_up(2, 5), queued(5, granted=5)]
    assert allocator.pool.scaled == 5


def test_a_scale_up_requests_only_the_nodes_that_are_missing() -> None:
    allocator = AllocatorService()
    allocator.given_nodes(2)

    outputs = allocator.scale(5)

    assert outputs == [scaled_up(2, 5), queued(3, granted=5)]


def test_a_pool_that_began_with_no_nodes_is_scaled_up_from_0() -> None:
    allocator = AllocatorService()

    first = allocator.scale(0)
    second = allocator.scale(2)

    assert first == []
    assert second == [scaled_up(0, 2), queued(2, granted=2)]


def test_the_same_target_again_announces_nothing() -> None:
    allocator = AllocatorService()
    allocator.scale(2)

    outputs = allocator.scale(2)

    assert outputs == []
    assert allocator.pool.scaled == 2


def test_a_target_that_is_lowered_before_any_node_came_is_a_scale_down_without_removals() -> None:
    allocator = AllocatorService()
    allocator.scale(3)

    outputs = allocator.scale(1)

    assert outputs == [scaled_down(3, 1), acknowledged(2, 1)]
    assert allocator.pool.scaled == 1
    assert allocator.pool.removed is None


def test_a_node_that_left_for_no_scale_down_is_replaced_and_not_counted_as_removed() -> None:
    # given that a machine is free
    allocator = AllocatorService()
    allocator.given_nodes(2)
    allocator.hears(machine_added(3))

    # when a Node leaves that nothing asked to leave
    outputs = allocator.hears(node_deleted(2))

    # then the machine takes its place
    assert outputs == [assigned(3)]
    assert allocator.pool.removed is None


def test_a_pool_over_its_quota_is_given_what_it_lost_up_to_its_grant() -> None:
    # given a NodePool of three Nodes that asks for nine and is granted no more than the three
    allocator = AllocatorService()
    allocator.given_nodes(3)
    allocator.hears(allocator.specify(9), over_quota(2, 3), capacity_checked(2, 3))

    # when it loses one
    outputs = allocator.hears(node_deleted(3))

    # then the machine, which is free again, takes its place; nothing is announced
    assert outputs == [assigned(3, assignment=4)]
    assert allocator.pool.scaled == 3


def test_a_pool_whose_grant_exceeds_its_target_is_given_no_more_than_its_target() -> None:
    allocator = AllocatorService()
    allocator.given_machines(5)

    outputs = allocator.hears(specified(1, 2), over_quota(1, 4), capacity_checked(1, 4))

    assert outputs == [queued(2, granted=2), assigned(1), assigned(2)]


def test_a_request_that_could_not_be_announced_is_announced_before_its_nodes_are_assigned() -> None:
    # given a NodePool that waits, and whose request was folded and not decided on
    allocator = AllocatorService()
    for message in (specified(1, 1), granted(1, 1), capacity_checked(1, 1)):
        context = Context(allocator.position, allocator.now)
        state = SERVICE.evolve(allocator.state, message, context)
        allocator.folded = replace(allocator.folded, state=state)

    outputs = allocator.hears(machine_added(1))

    assert outputs == [queued(1, granted=1), assigned(1)]


def test_nodes_of_a_type_that_comes_in_racks_are_given_in_whole_racks() -> None:
    # given a NodePool that wants two racks, and one machine less than a rack
    allocator = AllocatorService()
    spec = NodePoolSpec(instance_type=RACK_KIND, target_nodes=36)
    allocator.hears(*(rack_machine(number) for number in range(1, 18)))
    allocator.hears(specified(1, 36, spec=spec, zone=RACK_ZONE), granted(1, 36))

    # when machines are added, one after another
    none = allocator.hears(capacity_checked(1, 36))
    rack = allocator.hears(rack_machine(18))
    part = allocator.hears(*(rack_machine(number) for number in range(19, 30)))

    # then it is given the whole rack at once, and nothing of the other
    assert [type(event) for event in none] == [CWNodeRequestQueued]
    assert [type(event) for event in rack] == [CWNodeAssigned] * 18
    assert part == []


def test_a_machine_of_a_rack_that_failed_is_replaced_alone() -> None:
    allocator = AllocatorService()
    spec = NodePoolSpec(instance_type=RACK_KIND, target_nodes=18)
    allocator.hears(*(rack_machine(number) for number in range(1, 20)))
    allocator.hears(specified(1, 18, spec=spec, zone=RACK_ZONE), granted(1, 18))
    allocator.hears(capacity_checked(1, 18))
    (lost,) = (
        event
        for event in allocator.hears(
            sample(CWNodeRegistrationFailed, **{**of_node(3), "zone": RACK_ZONE}, uid=UID)
        )
        if isinstance(event, CWNodeAssigned)
    )

    assert lost.node == "g19"


# Faults: once for each.


def test_faulty_settings_are_reported_once_until_they_change() -> None:
    allocator = AllocatorService()

    first = allocator.hears(with_faulty_settings(1, 2, GPU_TAINT))
    same = allocator.hears(with_faulty_settings(2, 3, GPU_TAINT))
    other = allocator.hears(with_faulty_settings(3, 3, "spec.image: is unknown"))

    assert first == [deliver_fail(f"Nodes cannot be delivered: {GPU_TAINT}")]
    assert same == []
    assert other == [deliver_fail("Nodes cannot be delivered: spec.image: is unknown")]


def test_faulty_settings_are_reported_again_after_they_were_valid_in_between() -> None:
    allocator = AllocatorService()
    first = allocator.hears(with_faulty_settings(1, 2, GPU_TAINT))

    valid = allocator.hears(specified(2, 2))
    second = allocator.hears(with_faulty_settings(3, 2, GPU_TAINT))

    assert first == second == [deliver_fail(f"Nodes cannot be delivered: {GPU_TAINT}")]
    assert valid == []


def test_faulty_settings_that_come_back_after_another_fault_are_reported_again() -> None:
    allocator = AllocatorService()

    first = allocator.hears(with_faulty_settings(1, 2, GPU_TAINT))
    other = allocator.hears(specified(2, 2, reason="Invalid", fault="Zone"))
    second = allocator.hears(with_faulty_settings(3, 2, GPU_TAINT))

    assert first == second == [deliver_fail(f"Nodes cannot be delivered: {GPU_TAINT}")]
    assert other == []


def test_a_fault_of_the_spec_that_the_settings_have_no_part_in_is_not_reported() -> None:
    allocator = AllocatorService()

    outputs = allocator.hears(specified(1, 2, reason="Invalid", fault="Zone"))

    assert outputs == []


def test_every_node_that_fails_to_register_is_reported_whatever_was_reported_before() -> None:
    # given that the settings became invalid after two Nodes were assigned
    allocator = AllocatorService()
    allocator.given_machines(2)
    allocator.scale(2)
    allocator.hears(with_faulty_settings(2, 2, GPU_TAINT))

    # when both fail for the same reason, and the settings are invalid for the same one
    first = allocator.hears(registration_failed(1, "no link"))
    second = allocator.hears(registration_failed(2, "no link"))
    same_settings = allocator.hears(with_faulty_settings(3, 2, GPU_TAINT))

    # then each Node is reported, and the settings are not reported again
    assert first == [deliver_fail("not delivered: no link", node="g1")]
    assert second == [deliver_fail("not delivered: no link", node="g2")]
    assert same_settings == []


@pytest.mark.parametrize(
    ("path", "key"),
    [
        pytest.param(("acme", "prod", "train"), "", id="an input about a NodePool"),
        pytest.param(("allocator", "_", "_"), POOL, id="a NodePool in the work queue"),
    ],
)
def test_a_nodepool_whose_nodes_cannot_be_decided_on_shows_it(
    path: tuple[str, str, str], key: str
) -> None:
    address = Address("evt", "", path, "Wake")

    failure = Failure(address, "Wake", "", "KeyError: 'g1'", True, key)
    allocator = AllocatorService()
    allocator.scale(0)

    events = list(SERVICE.on_failure(allocator.state, failure))
    unknown = list(SERVICE.on_failure(SERVICE.initial, failure))

    text = "internal error while allocating Nodes: KeyError: 'g1'"
    assert events == [
        AllocationFailed(**OF, uid=UID, message=text),
        CWNodePoolNodesRequestFailed(**OF, message=text),
    ]
    assert unknown == []


def test_a_failure_about_an_offering_shows_on_no_nodepool() -> None:
    address = Address("evt", "", ("allocator", "_", "_"), "Wake")
    failure = Failure(address, "Wake", "", "KeyError: 'g1'", True, offering_key(ZONE, KIND))

    assert list(SERVICE.on_failure(SERVICE.initial, failure)) == []


def test_a_nodepool_that_failed_is_tried_again_and_shows_that_it_recovered() -> None:
    # given a NodePool that waits, the decision on which failed
    allocator = AllocatorService()
    allocator.hears(specified(1, 1), granted(1, 1), machine_added(1))
    text = "internal error while allocating Nodes: KeyError: 'g1'"
    context = Context(allocator.position, allocator.now)
    events = (capacity_checked(1, 1), AllocationFailed(**OF, uid=UID, message=text))
    for event in events:
        state = SERVICE.evolve(allocator.state, event, context)
        allocator.folded = replace(allocator.folded, state=state)

    # when the same happens again, and then a minute is over
    address = Address("evt", "", ("acme", "prod", "train"), "Wake")
    failure = Failure(address, "Wake", "", "KeyError: 'g1'", True)
    repeated = list(SERVICE.on_failure(allocator.state, failure))
    allocator.now += timedelta(minutes=1)
    outputs = allocator.wake_until_idle()

    # then users are told once, and all that was missing follows
    assert repeated == [AllocationFailed(**OF, uid=UID, message=text)]
    assert outputs == [queued(1, granted=1), assigned(1), AllocationRecovered(**OF, uid=UID)]
    assert allocator.pool.failure == ""
    assert not allocator.has_work


def test_a_failure_about_an_offering_shows_on_the_first_nodepool_that_waits_for_it() -> None:
    allocator = AllocatorService()
    allocator.scale(1)
    address = Address("evt", "", ("allocator", "_", "_"), "Wake")
    failure = Failure(address, "Wake", "", "KeyError: 'g1'", True, offering_key(ZONE, KIND))

    events = list(SERVICE.on_failure(allocator.state, failure))

    text = "internal error while allocating Nodes: KeyError: 'g1'"
    assert events[0] == AllocationFailed(**OF, uid=UID, message=text)
