"""How a NodePool shrinks to a smaller target, and how a higher target takes removals back."""

from nodepool.contract.conditions import Validated
from nodepool.contract.events import NodePreempted
from nodepool.contract.model import RemovalReason
from nodepool.engine.bounds import OUTPUTS_MAX
from unit.allocator_service import (
    IDLE_ONLY,
    PREFER_IDLE,
    SCALE_DOWN,
    AllocatorService,
    acknowledged,
    active,
    allocator_with_nodes,
    assigned,
    cancelled,
    deliver_fail,
    kept,
    node_deleted,
    nodes_removed,
    of_node,
    preemption_pending,
    queued,
    registration_failed,
    removing,
    replacing,
    requested,
    reserved,
    scaled_down,
    scaled_up,
    specified,
)

# A scale-down.


def test_a_scale_down_requests_deletions_and_is_announced_complete_when_the_nodes_are_gone() -> (
    None
):
    allocator = allocator_with_nodes(3)

    smaller = allocator.scale(1)
    first = allocator.hears(node_deleted(3))
    between = allocator.pool.removed
    last = allocator.hears(node_deleted(2))

    assert smaller == [removing(2, before=3), requested(3), requested(2), acknowledged(2, 1)]
    assert first == []
    assert between == 1
    assert last == [nodes_removed(2, remaining=1), scaled_down(3, 1)]
    assert allocator.pool.scaled == 1
    assert allocator.pool.removed is None


def test_a_node_that_is_lost_after_a_scale_down_is_no_new_request() -> None:
    allocator = allocator_with_nodes(3)
    allocator.scale(2)
    allocator.hears(node_deleted(3))

    assert allocator.hears(node_deleted(1)) == [assigned(3, 4)]


def test_a_target_that_is_lowered_during_a_scale_down_continues_it() -> None:
    allocator = allocator_with_nodes(3)
    allocator.scale(2)

    lower = allocator.scale(1)
    gone = allocator.hears(node_deleted(3), node_deleted(2))

    assert lower == [requested(2), acknowledged(3, 1)]
    assert gone == [nodes_removed(2, remaining=1), scaled_down(3, 1)]


def test_a_leaving_node_that_fails_to_register_counts_as_removed() -> None:
    # given a NodePool of three Nodes that have not registered, one of which is to leave
    allocator = AllocatorService()
    allocator.given_machines(3)
    allocator.scale(3)
    allocator.scale(2)

    outputs = allocator.hears(registration_failed(1, "no link"))

    assert outputs == [
        deliver_fail("not delivered: no link", node="g1"),
        nodes_removed(1, remaining=2),
        scaled_down(3, 2),
    ]


def test_a_leaving_node_stays_in_place_of_another_that_fails_to_register() -> None:
    # given a NodePool of three Nodes that have not registered, one of which is to leave
    allocator = AllocatorService()
    allocator.given_machines(3)
    allocator.scale(3)
    allocator.scale(2)

    outputs = allocator.hears(registration_failed(3, "no link"))

    stays = allocator.hears(kept(1, request=1))

    assert outputs == [deliver_fail("not delivered: no link", node="g3"), cancelled(1)]
    assert stays == [nodes_removed(0, 2), scaled_down(3, 2)]
    assert allocator.pool.removed is None


def test_a_node_that_was_kept_is_requested_again_once_it_is_idle() -> None:
    allocator = allocator_with_nodes(1)
    allocator.scale(0)

    busy = allocator.hears(active(1), kept(1, request=1))
    idle = allocator.hears(active(1, False))

    assert busy == []
    assert idle == [requested(1, request=2)]


def test_a_node_that_was_kept_in_spite_of_an_earlier_request_is_still_leaving() -> None:
    allocator = allocator_with_nodes(1)
    allocator.scale(0)
    allocator.hears(active(1), kept(1, request=1), active(1, False))

    outputs = allocator.hears(kept(1, request=1))

    assert outputs == []
    assert allocator.leaving == 1


def test_an_invalid_spec_removes_no_node_and_ends_no_scale_down() -> None:
    allocator = allocator_with_nodes(3)
    allocator.scale(2)

    invalid = allocator.hears(specified(3, 0, reason=Validated.INVALID))
    gone = allocator.hears(node_deleted(3))
    valid = allocator.hears(specified(4, 2))

    assert invalid == [acknowledged(3, 0, number=2)]
    assert gone == []
    assert valid == [nodes_removed(1, remaining=2), scaled_down(3, 2)]


# A removal that a higher target takes back.


def test_a_target_that_rises_to_where_it_was_takes_the_whole_scale_down_back() -> None:
    allocator = allocator_with_nodes(3)
    allocator.scale(1)

    outputs = allocator.scale(3)
    stay = allocator.hears(kept(2, request=1), kept(3, request=1))

    assert outputs == [cancelled(2), cancelled(3)]
    assert stay == [nodes_removed(0, remaining=3)]
    assert allocator.pool.scaled == 3
    assert allocator.pool.removed is None


def test_a_target_that_rises_in_part_takes_back_as_many_removals() -> None:
    allocator = allocator_with_nodes(3)
    allocator.scale(0)

    higher = allocator.scale(2)
    gone = allocator.hears(kept(1, request=1), kept(2, request=1), node_deleted(3))

    assert higher == [cancelled(1), cancelled(2)]
    assert gone == [nodes_removed(1, remaining=2), scaled_down(3, 2)]


def test_a_target_above_where_it_was_takes_all_back_and_scales_up_from_there() -> None:
    allocator = allocator_with_nodes(2)
    allocator.scale(1)

    outputs = allocator.scale(4)

    assert outputs[0] == cancelled(2)
    assert outputs[1] == scaled_up(2, 4)


def test_a_preempted_node_leaves_however_high_the_target_rises() -> None:
    allocator = allocator_with_nodes(2)
    allocator.scale(0)
    allocator.hears(preemption_pending(2))

    outputs = allocator.scale(2)

    assert outputs == [cancelled(1)]


def test_a_target_that_rises_again_counts_the_nodes_that_are_gone_and_asks_for_them_anew() -> None:
    # given a scale-down from five Nodes to two, of which two Nodes are gone
    allocator = allocator_with_nodes(5)
    allocator.scale(2)
    allocator.hears(node_deleted(5), node_deleted(4))

    # when the target is five again
    outputs = allocator.scale(5)
    stays = allocator.hears(kept(3, request=1))

    # then the third is spared, and two are requested and assigned; the removal ends once it is
    # certain that the third stays
    assert outputs == [
        cancelled(3),
        queued(2, granted=5),
        assigned(5, assignment=6),
        assigned(4, assignment=7),
    ]
    assert stays == [nodes_removed(2, remaining=5)]


def test_a_removal_that_was_taken_back_is_no_part_of_the_next() -> None:
    # given a removal of three Nodes that was taken back after two were gone
    allocator = allocator_with_nodes(5)
    allocator.scale(2)
    allocator.hears(node_deleted(5), node_deleted(4))
    allocator.scale(3)
    allocator.hears(kept(3, request=1))

    smaller = allocator.scale(2)
    gone = allocator.hears(node_deleted(3))

    assert smaller == [removing(1, before=3), requested(3, request=2), acknowledged(4, 2)]
    assert gone == [nodes_removed(1, remaining=2), scaled_down(3, 2)]


def test_a_node_that_was_gone_before_it_could_be_kept_counts_as_removed() -> None:
    # given that the first of three Nodes that leave may stay after all
    allocator = allocator_with_nodes(3)
    allocator.scale(0)
    allocator.scale(1)

    # when it was gone already
    gone = allocator.hears(node_deleted(1, SCALE_DOWN))
    between = allocator.pool.removed
    rest = allocator.hears(kept(2, request=1), node_deleted(3))

    # then another is spared, and both that are gone are counted
    assert gone == [cancelled(2)]
    assert between == 1
    assert rest == [nodes_removed(2, remaining=1), scaled_down(3, 1)]


def test_a_scale_down_ends_once_every_cancelled_removal_is_answered() -> None:
    # given a scale-down from six Nodes to two, of which two removals were cancelled
    allocator = allocator_with_nodes(6)
    allocator.scale(2)
    allocator.scale(4)

    # when both cancellations came too late
    first = allocator.hears(node_deleted(6), node_deleted(5))
    replaced = allocator.hears(node_deleted(4, SCALE_DOWN))
    late = allocator.hears(node_deleted(3, SCALE_DOWN))

    # then the totals count all four victims
    assert first == []
    assert replaced == [queued(1, granted=4), assigned(6, assignment=7)]
    assert late[:2] == [nodes_removed(4, remaining=3), scaled_down(6, 4)]


def test_a_reserved_node_that_was_gone_before_it_could_be_kept_counts_as_removed() -> None:
    allocator = allocator_with_nodes(3)
    allocator.scale(2)

    kept = allocator.hears(reserved(3))
    gone = allocator.hears(node_deleted(3, SCALE_DOWN))

    assert kept == [cancelled(3)]
    assert gone == [nodes_removed(1, remaining=2), scaled_down(3, 2)]


# Choices that are made again.


def test_an_idle_node_takes_the_place_of_a_victim_that_waits_for_its_pods() -> None:
    allocator = allocator_with_nodes(2)
    allocator.hears(active(1), active(2))
    allocator.scale(1, PREFER_IDLE)

    outputs = allocator.hears(active(1, False))

    assert outputs == [requested(1, idle_only=False), cancelled(2)]


def test_a_change_to_idle_only_keeps_the_victims_that_wait_for_their_pods() -> None:
    allocator = allocator_with_nodes(2)
    allocator.hears(active(1), active(2))
    allocator.scale(1, PREFER_IDLE)

    outputs = allocator.scale(1, IDLE_ONLY)
    stays = allocator.hears(kept(2, request=1))

    assert outputs == [cancelled(2)]
    assert stays == []
    assert allocator.pool.has_too_many


def test_an_unhealthy_node_that_leaves_already_counts_towards_a_scale_down() -> None:
    allocator = allocator_with_nodes(3)
    allocator.hears(replacing(1))

    smaller = allocator.scale(2)
    gone = allocator.hears(node_deleted(1))

    assert smaller == [acknowledged(2, 2)]
    assert gone == [scaled_down(3, 2)]


def test_a_node_that_left_in_the_place_of_a_victim_is_requested_again_with_a_higher_target() -> (
    None
):
    # given a scale-down for which an unhealthy Node has left
    allocator = allocator_with_nodes(3)
    allocator.hears(replacing(1))
    allocator.scale(2)
    allocator.hears(node_deleted(1))

    outputs = allocator.scale(3)

    assert outputs == [scaled_up(2, 3), queued(1, granted=3), assigned(1, assignment=4)]


def test_a_victim_is_kept_if_another_node_turns_out_to_be_unhealthy_and_leaves() -> None:
    allocator = allocator_with_nodes(3)
    allocator.scale(2)

    unhealthy = allocator.hears(replacing(1))
    healthy = allocator.hears(kept(3, request=1), replacing(1, None))

    assert unhealthy == [cancelled(3)]
    assert healthy == [requested(3, request=2)]


# A preemption during a scale-down.


def test_a_preemption_during_a_scale_down_spares_another_node() -> None:
    allocator = allocator_with_nodes(3)
    allocator.scale(2)

    preempted = allocator.hears(preemption_pending(1))
    stays = allocator.hears(kept(3, request=1))
    gone = allocator.hears(node_deleted(1))

    # then the Node that was preempted was no victim, and does not count as removed
    assert preempted == [cancelled(3)]
    assert stays == []
    assert gone == [nodes_removed(0, 2), scaled_down(3, 2)]


def test_a_preempted_node_is_no_victim_if_its_removal_was_cancelled_before() -> None:
    # given a scale-down to one Node, of which one removal was cancelled, without an answer so far
    allocator = allocator_with_nodes(3)
    allocator.scale(1)
    allocator.scale(2)

    # when just this Node is preempted
    preempted = allocator.hears(preemption_pending(2))
    gone = allocator.hears(kept(3, request=1), node_deleted(2, RemovalReason.PREEMPTED))

    assert preempted == [cancelled(3)]
    assert gone == [nodes_removed(0, 2), scaled_down(3, 2)]


def test_a_preemption_of_the_victim_spares_no_other_node() -> None:
    allocator = allocator_with_nodes(3)
    allocator.scale(2)

    preempted = allocator.hears(preemption_pending(3))
    gone = allocator.hears(node_deleted(3))

    assert preempted == []
    assert gone == [nodes_removed(1, remaining=2), scaled_down(3, 2)]


def test_a_node_that_was_kept_before_is_preempted_all_the_same() -> None:
    # given a Node that leaves for a scale-down and is preempted
    allocator = allocator_with_nodes(3)
    allocator.scale(2)
    allocator.hears(preemption_pending(3))

    # when it is said of it that it stays, as it became active before
    outputs = allocator.hears(kept(3, request=1))

    # then no other Node leaves in its place
    assert outputs == []
    assert allocator.pool.members["g3"].removal is RemovalReason.PREEMPTED


def test_a_node_that_was_preempted_before_the_scale_down_counts_towards_it() -> None:
    allocator = allocator_with_nodes(3)
    allocator.hears(preemption_pending(1))

    smaller = allocator.scale(1)
    gone = allocator.hears(node_deleted(1), node_deleted(3))

    # then the victim counts as removed, and the Node that was preempted does not
    assert smaller == [removing(1, before=3), requested(3), acknowledged(2, 1)]
    assert gone == [nodes_removed(1, remaining=1), scaled_down(3, 1)]


def test_a_preemption_is_enough_for_a_scale_down_that_waits_for_an_idle_node() -> None:
    allocator = allocator_with_nodes(2)
    allocator.hears(active(1), active(2))
    allocator.scale(1)

    preempted = allocator.hears(preemption_pending(1))
    idle = allocator.hears(active(2, False))
    gone = allocator.hears(node_deleted(1))

    assert preempted == idle == []
    assert gone == [nodes_removed(0, 1), scaled_down(2, 1)]


def test_a_node_that_is_preempted_without_a_timetable_leaves_like_any_other() -> None:
    allocator = allocator_with_nodes(3)
    allocator.scale(2)

    outputs = allocator.hears(NodePreempted(**of_node(1)))

    assert outputs == [cancelled(3)]


def test_a_thousand_active_nodes_are_asked_for_once_and_leave_as_they_become_idle() -> None:
    count = OUTPUTS_MAX + 100
    allocator = allocator_with_nodes(count)
    allocator.hears(*(active(number) for number in range(1, count + 1)))

    first = allocator.scale(0)
    idle = allocator.hears(*(active(number, False) for number in range(1, count + 1)))

    assert first == [removing(count, before=count), acknowledged(2, 0)]
    assert idle == [requested(number) for number in range(1, count + 1)]


# A removal of more Nodes than one step holds.


def test_a_removal_of_more_nodes_than_a_step_holds_goes_on_at_the_next_wake() -> None:
    count = OUTPUTS_MAX + 100
    allocator = allocator_with_nodes(count)

    first = allocator.process(allocator.specify(0))
    rest = allocator.wake()

    newest_first = [requested(number) for number in range(count, 0, -1)]
    assert first == [removing(count, before=count), *newest_first[: OUTPUTS_MAX - 1]]
    assert rest == newest_first[OUTPUTS_MAX - 1 :]
    assert not allocator.has_work


def test_a_removal_that_is_taken_back_before_it_went_on_cancels_what_was_requested() -> None:
    # given that the requests for 899 deletions have filled a step
    count = OUTPUTS_MAX + 100
    allocator = allocator_with_nodes(count)
    allocator.process(allocator.specify(0))

    # when the target is what it was before the wake that would request the others
    outputs = allocator.process(allocator.specify(count))
    rest = allocator.wake_until_idle()
    allocator.hears(*(kept(number, request=1) for number in range(102, count + 1)))

    # then these 899 are cancelled, oldest first, and nothing else is requested
    assert outputs == [cancelled(number) for number in range(102, count + 1)]
    assert rest == []
    assert allocator.leaving == 0
    assert allocator.pool.removed is None


def test_more_cancellations_than_a_step_holds_go_on_at_the_next_wake() -> None:
    # given that all Nodes are to leave
    count = OUTPUTS_MAX + 100
    allocator = allocator_with_nodes(count)
    allocator.scale(0)

    # when the target is what it was
    first = allocator.process(allocator.specify(count))
    leaving = allocator.leaving
    rest = allocator.wake()

    # then 900 are cancelled at once, the other 100 after the wake, and no scale-down is announced
    oldest_first = [cancelled(number) for number in range(1, count + 1)]
    assert first == oldest_first[:OUTPUTS_MAX]
    assert leaving == 100
    assert rest == oldest_first[OUTPUTS_MAX:]
    assert not allocator.has_work
    allocator.hears(*(kept(number, request=1) for number in range(1, count + 1)))
    assert allocator.pool.scaled == count
    assert allocator.pool.removed is None


def test_a_target_that_falls_again_before_all_is_cancelled_is_met_by_what_is_still_leaving() -> (
    None
):
    # given 900 cancellations of 1,000, so that 100 Nodes are still leaving
    count = OUTPUTS_MAX + 100
    allocator = allocator_with_nodes(count)
    allocator.scale(0)
    allocator.process(allocator.specify(count))

    # when the target is 100 less before the wake that would cancel the others
    outputs = [*allocator.process(allocator.specify(count - 100)), *allocator.wake_until_idle()]
    leaving = allocator.leaving
    allocator.hears(*(kept(number, request=1) for number in range(1, OUTPUTS_MAX + 1)))
    gone = allocator.hears(*(node_deleted(number) for number in range(OUTPUTS_MAX + 1, count + 1)))

    # then nothing is cancelled any more, nor requested; with the 100 Nodes the scale-down is done
    assert outputs == []
    assert leaving == 100
    assert gone == [nodes_removed(100, remaining=count - 100), scaled_down(count, count - 100)]
