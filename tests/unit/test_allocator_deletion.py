"""How a NodePool that is deleted gives up all its Nodes."""

import pytest

from allocator.decide import SERVICE
from allocator.state import State
from nodepool.contract.events import AllocationFailed, AllocationRecovered, CWNodePoolDeleted
from nodepool.engine.bounds import OUTPUTS_MAX
from nodepool.service import Context
from unit.allocator_service import (
    OF,
    POOL,
    POOL_DELETED,
    UID,
    AllocatorService,
    active,
    allocator_with_nodes,
    capacity_checked,
    emptied,
    given_back,
    granted,
    kept,
    machine_added,
    node_deleted,
    pool_deleting,
    preemption_pending,
    registration_failed,
    removing,
    requested,
    reserved,
    specified,
)


def test_a_deleted_pool_gives_up_all_its_nodes_and_is_then_emptied() -> None:
    allocator = allocator_with_nodes(2)
    cause = "deletion of the NodePool"

    deletion = allocator.hears(pool_deleting())
    first = allocator.hears(node_deleted(1))
    last = allocator.hears(node_deleted(2))

    assert deletion == [
        given_back(1),
        removing(2, before=2, cause=cause),
        requested(1, POOL_DELETED),
        requested(2, POOL_DELETED),
    ]
    assert first == []
    assert last == [emptied(2)]


def test_a_deleted_pool_gives_up_its_node_that_is_reserved_for_the_control_plane_too() -> None:
    allocator = allocator_with_nodes(2)
    allocator.hears(reserved(2))

    deletion = allocator.hears(pool_deleting())
    gone = allocator.hears(node_deleted(1), node_deleted(2))

    assert deletion == [
        given_back(1),
        removing(2, before=2, cause="deletion of the NodePool"),
        requested(1, POOL_DELETED),
        requested(2, POOL_DELETED),
    ]
    assert gone == [emptied(2)]


def test_a_deletion_during_a_scale_down_takes_it_over() -> None:
    # given a scale-down of which one Node is gone and one is leaving
    allocator = allocator_with_nodes(3)
    allocator.scale(1)
    allocator.hears(node_deleted(3))

    # when the NodePool is deleted
    deletion = allocator.hears(pool_deleting())
    gone = allocator.hears(node_deleted(1), node_deleted(2))

    # then every Node is requested anew and counted once, and the scale-down is never complete
    assert deletion == [
        given_back(2),
        removing(2, before=3, cause="deletion of the NodePool"),
        requested(1, POOL_DELETED),
        requested(2, POOL_DELETED, request=2),
    ]
    assert gone == [emptied(2)]


def test_a_node_of_a_deleted_pool_that_was_to_be_kept_before_is_deleted_all_the_same() -> None:
    allocator = allocator_with_nodes(1)
    allocator.scale(0)
    allocator.hears(active(1), pool_deleting())

    outputs = allocator.hears(kept(1, request=1))

    assert outputs == []
    assert allocator.pool.members.counts.deleted == 1


@pytest.mark.parametrize("preempted_first", [True, False])
def test_a_preempted_node_of_a_deleted_pool_leaves_for_the_deletion(preempted_first: bool) -> None:
    allocator = allocator_with_nodes(1)
    events = (preemption_pending(1), pool_deleting())

    outputs = allocator.hears(*(events if preempted_first else reversed(events)))
    gone = allocator.hears(node_deleted(1))

    cause = "deletion of the NodePool"
    assert outputs == [
        given_back(1),
        removing(1, before=1, cause=cause),
        requested(1, POOL_DELETED),
    ]
    assert gone == [emptied(1)]


def test_a_deleted_pool_without_nodes_is_emptied_at_once_and_says_nothing_more() -> None:
    allocator = AllocatorService()
    allocator.scale(2)

    deletion = allocator.hears(pool_deleting())
    later = allocator.hears(
        granted(1, 2), capacity_checked(1, 2), CWNodePoolDeleted(**OF, uid=UID, message="")
    )

    assert deletion == [given_back(1), emptied(0)]
    assert later == []
    assert POOL not in allocator.state.pools


def test_a_deletion_of_more_nodes_than_a_step_holds_goes_on_at_the_next_wake() -> None:
    count = OUTPUTS_MAX + 100
    allocator = allocator_with_nodes(count)

    first = allocator.process(pool_deleting())
    rest = allocator.wake_until_idle()

    by_name = sorted(range(1, count + 1), key=lambda number: f"g{number}")
    requests = [requested(number, POOL_DELETED) for number in by_name]
    begun = removing(count, before=count, cause="deletion of the NodePool")
    assert first == [given_back(1), begun, *requests[: OUTPUTS_MAX - 2]]
    assert rest == requests[OUTPUTS_MAX - 2 :]


def test_an_emptied_pool_whose_deletion_is_stated_again_is_not_emptied_twice() -> None:
    allocator = allocator_with_nodes(1)

    first = allocator.hears(pool_deleting(), node_deleted(1))
    second = allocator.hears(pool_deleting())

    assert first[-1] == emptied(1)
    assert second == []


def test_a_deleted_pool_gives_back_its_grant_at_once_and_takes_no_late_verdict() -> None:
    # given a NodePool of one Node, and a machine for another
    allocator = allocator_with_nodes(1)
    allocator.hears(machine_added(2))

    # when it asks for two Nodes and is deleted, and the verdicts on the two come after that
    deletion = allocator.hears(allocator.specify(2), pool_deleting())
    late = allocator.hears(granted(2, 2), capacity_checked(2, 2))
    again = allocator.hears(pool_deleting())

    # then its grant is given back once, and nothing follows from the verdicts
    assert deletion[:2] == [
        given_back(2),
        removing(1, before=1, cause="deletion of the NodePool"),
    ]
    assert late == again == []
    assert allocator.pool.waiting is None


def test_a_deleted_pool_is_not_warned_of_a_machine_that_fails() -> None:
    allocator = AllocatorService()
    allocator.given_machines(1)
    allocator.scale(1)
    allocator.hears(pool_deleting())

    outputs = allocator.hears(registration_failed(1, "no link"))

    assert outputs == [emptied(1)]


def test_a_pool_of_an_unknown_type_leaves_nothing_behind() -> None:
    allocator = AllocatorService()

    allocator.hears(specified(1, 2, reason="Invalid", fault="InstanceType"), pool_deleting())
    allocator.hears(CWNodePoolDeleted(**OF, uid=UID, message=""))

    assert allocator.state == State()


def test_a_pool_of_an_unknown_type_recovers_from_a_failure() -> None:
    allocator = AllocatorService()
    event = specified(1, 2, reason="Invalid", fault="InstanceType")
    spec = event.spec.model_copy(update={"instance_type": "h1000"})
    allocator.hears(event.model_copy(update={"spec": spec}))
    failed, context = AllocationFailed(**OF, uid=UID, message="late"), Context(9, event.created)
    reconciler = SERVICE.reconciler
    assert reconciler is not None

    state = SERVICE.evolve(allocator.state, failed, context)

    events = list(reconciler.reconcile(state, event.key, context))
    assert events == [AllocationRecovered(**OF, uid=UID)]
