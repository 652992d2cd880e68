from collections.abc import Generator, Sequence
from copy import copy
from dataclasses import replace
from datetime import timedelta
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from immutables import Map

from capacity import Hears, Says
from capacity.decide import SERVICE
from capacity.needed import Taking
from capacity.pool import Pool, Share
from capacity.state import State
from capacity.supply import share_of, shares
from capacity.verdict import verdict, warning
from nodepool.contract.affinity import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
)
from nodepool.contract.conditions import Capacity, Quota, Validated
from nodepool.contract.events import (
    CapacityChecked,
    CapacityCheckFailed,
    CWInsufficientCapacity,
    CWNodeAssigned,
    CWNodeDeleted,
    CWNodeRegistrationFailed,
    MachineAdded,
    MachineRepaired,
    NodeActivityChanged,
    NodePoolDeleting,
    NodePoolValidated,
    NodePreemptionRequested,
    NodeUpdated,
    QuotaChecked,
    Wake,
)
from nodepool.contract.keys import PoolKey, machine_key, offering_key, pool_key
from nodepool.contract.messages import Message, PoolFields, pool_fields
from nodepool.contract.model import (
    ComputeClass,
    NodePhase,
    NodePoolSpec,
    RemovalReason,
    SchedulingPriority,
)
from nodepool.contract.subjects import Address
from nodepool.engine.bounds import OUTPUTS_MAX
from nodepool.engine.snapshot import dump, load
from nodepool.engine.step import step
from nodepool.engine.world import World
from nodepool.placement.claims import Check, Grant
from nodepool.placement.line import Line
from nodepool.placement.machines import TRIAGE, Inventory
from nodepool.placement.racks import NVLINK_DOMAIN
from nodepool.placement.waits import Run, Wait
from nodepool.service import Context, Failure, Reconciler
from nodepool.state.work import WorkQueue
from support.publishing import publish
from support.single import NOON, SingleService

ZONE, H100, A100, GB200 = "US-EAST-02A", "gd-8xh100ib-i128", "gd-8xa100-i128", "gb200-4x"
OFFERING = offering_key(ZONE, H100)
GB_KEY = offering_key(ZONE, GB200)
LEAF = "ib.coreweave.cloud/leafgroup"
ENOUGH = "Sufficient capacity available for the requested instance type."


def of(pool: str) -> PoolFields:
    """The identity of a NodePool of one cluster."""
    return pool_fields(key(pool))


def key(pool: str) -> PoolKey:
    """The key of a NodePool of one cluster."""
    return pool_key("acme", "prod", pool)


def on_leaf(leaf: str) -> Affinity:
    """An affinity to the machines of one leaf group."""
    wanted = NodeSelectorRequirement(key=LEAF, operator="In", values=(leaf,))
    selector = NodeSelector(node_selector_terms=(NodeSelectorTerm(match_expressions=(wanted,)),))
    return Affinity(
        node_affinity=NodeAffinity(required_during_scheduling_ignored_during_execution=selector)
    )


class Story(SingleService[State, Hears, Says]):
    """The capacity service alone, with the messages that it hears in short."""

    def __init__(self) -> None:
        super().__init__(SERVICE)
        self.machines = 0
        self.specs: dict[str, NodePoolSpec] = {}
        self.generations: dict[str, int] = {}

    def add_machines(
        self, count: int, leaf: str = "", instance_type: str = H100
    ) -> Sequence[Message]:
        """The outputs when so many machines are added, named m1, m2 and so on."""
        first, self.machines = self.machines + 1, self.machines + count
        for number in range(first, self.machines + 1):
            self.process(
                MachineAdded(
                    zone=ZONE,
                    machine=f"m{number}",
                    instance_type=instance_type,
                    labels={LEAF: leaf} if leaf else {},
                )
            )
        return self.wake_until_idle()

    def specify(self, pool: str, target: int, **spec: object) -> Sequence[Message]:
        """The outputs when a NodePool has a new spec; its quota is not checked yet."""
        self.generations[pool] = self.generations.get(pool, 0) + 1
        self.specs[pool] = NodePoolSpec.model_validate(
            {"instance_type": H100, "target_nodes": target, **spec}
        )
        return self.hears(validated(pool, self.generations[pool], self.specs[pool]))

    def grant(
        self, pool: str, granted: int, reason: Quota = Quota.UNDER, generation: int = 0
    ) -> Sequence[Message]:
        """The outputs when a NodePool may have so many Nodes."""
        generation = generation or self.generations[pool]
        return self.hears(granted_to(pool, generation, granted, reason))

    def want(self, pool: str, target: int, **spec: object) -> Sequence[Message]:
        """The outputs when a NodePool has a new target that its quota allows."""
        return [*self.specify(pool, target, **spec), *self.grant(pool, target)]

    def assign(self, pool: str, number: int) -> Sequence[Message]:
        """The outputs when a NodePool gets a machine."""
        return self.hears(assigned(pool, number))

    def delete(self, pool: str, number: int) -> Sequence[Message]:
        """The outputs when a Node of a NodePool is deleted."""
        return self.hears(deleted(pool, number))


def validated(
    pool: str, generation: int, spec: NodePoolSpec, reason: Validated = Validated.VALID
) -> NodePoolValidated:
    """The verdict on the spec of a NodePool."""
    return NodePoolValidated(
        **of(pool),
        uid=pool,
        zone=ZONE,
        generation=generation,
        version=1,
        created=NOON,
        spec=spec,
        reason=reason,
        message="",
    )


def granted_to(
    pool: str, generation: int, granted: int, reason: Quota = Quota.UNDER
) -> QuotaChecked:
    """A NodePool may have so many Nodes."""
    return QuotaChecked(
        **of(pool),
        generation=generation,
        reason=reason,
        uid=pool,
        granted=granted,
        zone=ZONE,
        instance_type=H100,
        used=granted,
        message="",
    )


def assigned(pool: str, number: int) -> CWNodeAssigned:
    """A NodePool gets a machine."""
    return CWNodeAssigned(
        **of(pool),
        node=f"m{number}",
        zone=ZONE,
        uid=pool,
        instance_type=H100,
        assignment=number,
        message="",
    )


def deleted(pool: str, number: int) -> CWNodeDeleted:
    """A Node of a NodePool is deleted, and its machine is free."""
    return CWNodeDeleted(
        **of(pool),
        node=f"m{number}",
        zone=ZONE,
        uid=pool,
        assignment=number,
        registered=True,
        removal=RemovalReason.SCALE_DOWN,
        message="",
    )


def gives_way(pool: str, number: int) -> NodePreemptionRequested:
    """A spot Node is to be taken back for a NodePool that is short."""
    return NodePreemptionRequested(
        **of(pool), node=f"m{number}", zone=ZONE, assignment=number, cause="DefaultPoolShort"
    )


def deleting(pool: str) -> NodePoolDeleting:
    """A NodePool is being deleted."""
    return NodePoolDeleting(**of(pool), uid=pool, generation=1, since=NOON)


def registration_failed(pool: str, number: int) -> CWNodeRegistrationFailed:
    """A Node of a NodePool could not join, and its machine goes to triage."""
    return CWNodeRegistrationFailed(
        **of(pool), node=f"m{number}", zone=ZONE, uid=pool, assignment=number, message=""
    )


def short(outputs: Sequence[Message]) -> list[str]:
    """Each verdict as `pool reason available/wanted`, each warning as `pool: text`."""
    lines = []
    for event in outputs:
        match event:
            case CapacityChecked():
                numbers = f"{event.available}/{event.wanted}"
                lines.append(f"{event.pool} {event.reason} {numbers}")
            case CWInsufficientCapacity():
                lines.append(f"{event.pool}: {event.message}")
            case _:
                lines.append(type(event).__name__)
    return lines


def too_few(pool: str, count: str, which: str = "") -> str:
    """The warning that only `count` machines can be had, as `short` writes it."""
    return f"{pool}: {count} wanted Nodes of {H100}{which} can be had in {ZONE} now"


# The verdict on a grant.


def test_a_pool_whose_nodes_are_all_free_has_enough() -> None:
    story = Story()
    story.add_machines(3)

    outputs = story.want("train", 2)

    assert outputs == [
        CapacityChecked(
            **of("train"),
            uid="train",
            generation=1,
            granted=2,
            reason=Capacity.SUFFICIENT,
            wanted=2,
            available=3,
            since=NOON + timedelta(seconds=5),
            message=ENOUGH,
        )
    ]


def test_a_pool_of_which_only_some_nodes_are_free_is_warned() -> None:
    story = Story()
    story.add_machines(2)

    outputs = story.want("train", 3)

    assert short(outputs) == ["train Partial 2/3", too_few("train", "2 of 3")]


def test_a_pool_of_which_no_node_is_free_is_warned() -> None:
    story = Story()

    outputs = story.want("train", 3)

    assert short(outputs) == ["train NoneAvailable 0/3", too_few("train", "none of 3")]


def test_a_pool_that_wants_nothing_has_enough() -> None:
    story = Story()
    story.add_machines(1)

    assert short(story.want("train", 0)) == ["train Sufficient 1/0"]


def test_a_pool_over_its_quota_wants_no_more_than_its_grant() -> None:
    story = Story()
    story.specify("train", 3)

    assert short(story.grant("train", 0, Quota.OVER)) == ["train Sufficient 0/0"]


def test_a_pool_over_its_quota_replaces_what_it_loses() -> None:
    # given a NodePool that has all it was granted and wants more
    story = Story()
    story.add_machines(2)
    story.want("train", 2)
    story.assign("train", 1)
    story.assign("train", 2)
    story.specify("train", 9)
    over = story.grant("train", 2, Quota.OVER)

    # when a Node of it is lost, and no machine is free
    lost = story.hears(registration_failed("train", 2))

    # then it wants that one again, and no more
    assert short(over) == ["train Sufficient 0/0"]
    assert short(lost) == ["train NoneAvailable 0/1", too_few("train", "none of 1")]


def test_a_pool_wants_no_more_than_its_target_whatever_its_grant() -> None:
    story = Story()
    story.specify("train", 2)

    assert short(story.grant("train", 5))[0] == "train NoneAvailable 0/2"


def test_a_spec_alone_has_no_verdict() -> None:
    story = Story()

    assert story.specify("train", 3) == []


def test_a_grant_for_an_older_generation_has_no_verdict() -> None:
    story = Story()
    story.want("train", 3)
    story.specify("train", 2)

    assert story.grant("train", 3, generation=1) == []


def test_a_grant_to_a_pool_of_another_uid_changes_nothing() -> None:
    story = Story()
    story.specify("train", 3)
    before = story.state

    story.generations["other"] = 1
    outputs = story.grant("other", 3)

    assert outputs == []
    assert story.state == before


def test_a_pool_is_warned_once_of_the_same_reason() -> None:
    story = Story()
    story.want("train", 3)

    assert short(story.want("train", 3)) == ["train NoneAvailable 0/3"]


def test_a_pool_is_warned_again_after_it_had_enough() -> None:
    story = Story()
    story.want("train", 1)
    story.add_machines(1)
    story.assign("train", 1)

    outputs = story.want("train", 2)

    assert short(outputs) == ["train NoneAvailable 0/1", too_few("train", "none of 1")]


def test_machines_of_another_type_do_not_count() -> None:
    story = Story()
    story.add_machines(3, instance_type=A100)

    assert short(story.want("train", 1))[0] == "train NoneAvailable 0/1"


# Affinity.


def test_an_affinity_counts_only_the_machines_that_satisfy_it() -> None:
    story = Story()
    story.add_machines(2)
    story.add_machines(1, leaf="l1")

    outputs = story.want("train", 2, affinity=on_leaf("l1"))

    which = " that satisfy the node affinity"
    assert short(outputs) == ["train PartialNodeAffinity 1/2", too_few("train", "1 of 2", which)]


def test_an_affinity_that_no_free_machine_satisfies_is_the_reason() -> None:
    story = Story()
    story.add_machines(2)

    outputs = story.want("train", 1, affinity=on_leaf("l1"))

    which = " that satisfy the node affinity"
    assert short(outputs) == [
        "train NoneAvailableNodeAffinity 0/1",
        too_few("train", "none of 1", which),
    ]


def test_an_affinity_is_not_the_reason_where_no_machine_is_free_at_all() -> None:
    story = Story()

    assert short(story.want("train", 1, affinity=on_leaf("l1")))[0] == "train NoneAvailable 0/1"


def test_machines_taken_by_an_affinity_are_not_there_for_those_behind() -> None:
    story = Story()
    story.add_machines(1, leaf="l1")
    story.add_machines(1, leaf="l2")

    story.want("first", 1, affinity=on_leaf("l1"))

    assert short(story.want("second", 2)) == ["second Partial 1/2", too_few("second", "1 of 2")]


# The order in which NodePools are served.


def test_those_that_came_first_are_served_first() -> None:
    story = Story()
    story.add_machines(2)
    story.want("first", 2)

    assert short(story.want("second", 1))[0] == "second NoneAvailable 0/1"


def test_a_higher_priority_is_served_first() -> None:
    story = Story()
    story.want("low", 1)
    story.want("high", 1, scheduling_priority=SchedulingPriority(value=5))

    assert short(story.add_machines(1)) == ["high Sufficient 1/1", "low NoneAvailable 0/1"]


def test_spot_pools_are_served_last() -> None:
    story = Story()
    story.want("spot", 1, compute_class=ComputeClass.SPOT)
    story.want("train", 1)

    assert short(story.add_machines(1)) == ["train Sufficient 1/1", "spot NoneAvailable 0/1"]


def test_a_pool_that_wants_no_more_than_before_keeps_its_place() -> None:
    story = Story()
    story.want("first", 2)
    story.want("second", 2)
    since = story.state.pools[key("first")].wait.since

    story.want("first", 1)

    assert story.state.pools[key("first")].wait.since == since
    assert list(story.state.ranking(OFFERING)) == [key("first"), key("second")]


def test_a_pool_that_wants_more_than_before_goes_behind_the_others() -> None:
    story = Story()
    story.want("first", 1)
    story.want("second", 2)

    story.want("first", 2)

    assert list(story.state.ranking(OFFERING)) == [key("second"), key("first")]


def test_a_pool_waits_since_no_moment_before_its_quota_was_checked() -> None:
    story = Story()
    story.specify("train", 2)

    pool = story.state.pools[key("train")]

    assert (pool.wait.since, pool.waiting, pool.claim) == (None, None, 0)


def test_a_changed_spec_keeps_its_place_until_its_quota_is_checked() -> None:
    story = Story()
    story.want("first", 1)
    story.want("second", 1)
    before = story.specify("first", 2)

    outputs = [*before, *story.add_machines(1)]

    assert short(outputs) == ["second NoneAvailable 0/1"]
    assert story.state.ranking(OFFERING).demand == 2


def test_a_target_that_rises_again_waits_only_from_the_next_grant() -> None:
    # given a NodePool that lost a surplus Node, for which another NodePool waits
    story = Story()
    story.want("first", 2)
    story.add_machines(2)
    story.hears(assigned("first", 1), assigned("first", 2))
    story.want("second", 2)
    story.specify("first", 0)
    story.hears(deleted("first", 2))

    story.specify("first", 2)

    assert list(story.state.ranking(OFFERING)) == [key("second")]


def test_a_changed_spot_spec_keeps_its_place_until_its_quota_is_checked() -> None:
    story = Story()
    story.want("first", 1, compute_class="spot")
    story.want("second", 1, compute_class="spot")
    before = story.specify("first", 2, compute_class="spot")

    outputs = [*before, *story.add_machines(1)]

    assert short(outputs) == ["second NoneAvailable 0/1"]


def test_a_spec_that_is_no_longer_valid_wants_nothing() -> None:
    story = Story()
    story.want("train", 1)

    outputs = story.hears(validated("train", 1, story.specs["train"], Validated.INVALID))

    assert outputs == []
    assert len(story.state.ranking(OFFERING)) == 0


# Machines that come and go.


def test_machines_that_come_lead_to_one_verdict_for_each_pool() -> None:
    story = Story()
    story.want("first", 2)
    story.want("second", 2)

    outputs = story.add_machines(3)

    assert short(outputs) == [
        "first Sufficient 3/2",
        "second Partial 1/2",
        too_few("second", "1 of 2"),
    ]


def test_those_behind_a_pool_that_wants_fewer_nodes_have_a_new_verdict() -> None:
    story = Story()
    story.add_machines(2)
    story.want("first", 2)
    story.want("second", 1)

    outputs = story.want("first", 0)

    assert short(outputs) == ["second Sufficient 2/1", "first Sufficient 2/0"]


def test_machines_that_change_no_verdict_make_no_work() -> None:
    story = Story()
    story.add_machines(2)
    story.want("train", 1)

    story.process(MachineAdded(zone=ZONE, machine="x", instance_type=H100))

    assert not story.has_work


def test_the_numbers_of_a_verdict_are_those_of_now_and_a_larger_lack_is_warned_of() -> None:
    # given a NodePool that lacks a machine
    story = Story()
    story.add_machines(2)
    story.want("train", 3)

    # when it gets one of two, gets the other, and then loses both
    outputs = [story.assign("train", 1), story.assign("train", 2)]
    outputs += [story.hears(registration_failed("train", number)) for number in (1, 2)]

    # then each verdict names the numbers of that moment, and a new reason or a larger lack is a
    # warning
    assert [short(verdicts) for verdicts in outputs] == [
        ["train Partial 1/2"],
        ["train NoneAvailable 0/1", too_few("train", "none of 1")],
        ["train NoneAvailable 0/2", too_few("train", "none of 2")],
        ["train NoneAvailable 0/3", too_few("train", "none of 3")],
    ]


def test_a_lack_that_shrinks_and_grows_back_is_warned_of_once_for_each_reason() -> None:
    # given a NodePool that was warned that it lacks three machines
    story = Story()
    story.want("train", 3)

    # when it gets a machine and loses it, twice
    outputs = []
    for number in (1, 2):
        outputs += [story.add_machines(1), story.assign("train", number)]
        outputs += [story.hears(registration_failed("train", number))]

    # then only the first machine is warned of, as the others would say what was said before
    assert [short(verdicts) for verdicts in outputs] == [
        ["train Partial 1/3", too_few("train", "1 of 3")],
        ["train NoneAvailable 0/2"],
        ["train NoneAvailable 0/3"],
        ["train Partial 1/3"],
        ["train NoneAvailable 0/2"],
        ["train NoneAvailable 0/3"],
    ]


def test_a_warning_of_a_release_that_kept_no_number_is_not_given_again() -> None:
    # given a NodePool that lacks a machine, as a snapshot of an earlier release has it
    story = Story()
    story.add_machines(1)
    story.want("train", 2)
    story.assign("train", 1)
    pool = replace(story.state.pools[key("train")], lacked=Map())
    state = replace(story.state, pools=story.state.pools.set(pool.key, pool))
    story.folded = replace(story.folded, state=state)

    # when it loses its Node, gets a machine, and loses that
    outputs = [story.hears(registration_failed("train", 1)), story.add_machines(1)]
    outputs += [story.hears(assigned("unknown", 2))]

    # then it is warned of the other reason alone
    assert [short(verdicts) for verdicts in outputs] == [
        ["train NoneAvailable 0/2"],
        ["train Partial 1/2", too_few("train", "1 of 2")],
        ["train NoneAvailable 0/2", too_few("train", "none of 2")],
    ]


@pytest.mark.parametrize("target", [4, 2])
def test_another_target_that_lacks_machines_is_warned_of_and_begins_the_count_again(
    target: int,
) -> None:
    # given a NodePool with one Node that was warned that it lacks two more
    story = Story()
    story.add_machines(1)
    story.want("train", 3)
    story.assign("train", 1)

    # when it wants another number, and then loses its Node
    outputs = story.want("train", target), story.hears(registration_failed("train", 1))

    # then both are warned of
    assert [short(verdicts) for verdicts in outputs] == [
        [f"train NoneAvailable 0/{lack}", too_few("train", f"none of {lack}")]
        for lack in (target - 1, target)
    ]


def test_many_changes_lead_to_one_verdict_with_the_last_numbers() -> None:
    story = Story()
    story.add_machines(4)
    story.want("train", 9)

    for number in (1, 2, 3):
        story.process(assigned("train", number))

    assert short(story.wake_until_idle()) == ["train Partial 1/6"]


def test_a_pool_that_got_all_its_nodes_has_enough() -> None:
    story = Story()
    story.add_machines(1)
    story.want("train", 2)
    story.assign("train", 1)

    outputs = [*story.specify("train", 1), *story.grant("train", 1)]

    assert short(outputs) == ["train Sufficient 0/0"]
    assert len(story.state.waiting) == len(story.state.short) == 0


def test_a_pool_that_was_short_has_enough_once_it_wants_no_more() -> None:
    story = Story()
    story.add_machines(2)
    story.want("first", 2)
    story.want("second", 1)
    story.assign("first", 1)

    outputs = story.assign("second", 2)

    assert "second Sufficient 0/0" in short(outputs)


def test_a_deleted_node_frees_its_machine_for_others() -> None:
    story = Story()
    story.add_machines(1)
    story.want("first", 1)
    story.assign("first", 1)
    story.want("second", 1)
    story.want("first", 0)

    assert short(story.delete("first", 1)) == ["second Sufficient 1/1"]


def test_a_machine_that_failed_counts_only_after_its_repair() -> None:
    story = Story()
    story.add_machines(1)
    story.want("train", 1)
    story.assign("train", 1)

    first = story.hears(registration_failed("train", 1))
    second = story.hears(MachineRepaired(zone=ZONE, machine="m1"))

    assert short([*first]) == ["train NoneAvailable 0/1", too_few("train", "none of 1")]
    assert short([*second]) == ["train Sufficient 1/1"]


def test_a_node_that_is_gone_when_it_is_asked_to_give_way_gives_way_to_nobody() -> None:
    story = Story()
    story.add_machines(1)
    story.assign("cheap", 1)
    story.delete("cheap", 1)
    story.want("train", 1)

    outputs = story.hears(gives_way("cheap", 1))

    assert short(outputs) == []
    assert story.state.giving_way == Map()


def test_a_node_gives_way_until_it_is_gone() -> None:
    story = Story()
    story.add_machines(1)
    story.assign("cheap", 1)
    story.want("train", 1)

    story.hears(gives_way("cheap", 1))
    during = story.state.giving_way
    story.delete("cheap", 1)

    assert during == Map({OFFERING: Map({machine_key(ZONE, "m1"): False})})
    assert story.state.giving_way == Map()


def test_a_repair_of_an_unknown_machine_changes_nothing() -> None:
    story = Story()

    assert story.hears(MachineRepaired(zone=ZONE, machine="x")) == []
    assert story.state == State()


def test_a_machine_given_to_an_unknown_pool_is_no_longer_free() -> None:
    story = Story()
    story.add_machines(1)

    story.assign("unknown", 1)

    assert story.state.stock(OFFERING).count == 0


# NodePools that go, or that never were.


@pytest.mark.parametrize("reason", [Validated.INVALID, Validated.INTERNAL_ERROR])
def test_nothing_is_kept_of_a_pool_that_was_never_valid(reason: Validated) -> None:
    story = Story()
    spec = NodePoolSpec(instance_type="gd-9xh100", target_nodes=3)

    outputs = story.hears(validated("typo", 1, spec, reason), granted_to("typo", 1, 3))

    assert (outputs, story.state) == ([], State())


def test_a_pool_that_becomes_valid_gets_its_verdict() -> None:
    story = Story()
    story.hears(
        validated("train", 1, NodePoolSpec(instance_type=H100, target_nodes=1), Validated.INVALID)
    )
    story.generations["train"] = 1

    assert short(story.want("train", 2))[0] == "train NoneAvailable 0/2"


def test_a_late_grant_does_not_revive_a_pool_in_deletion() -> None:
    # given machines for one of two NodePools, of which the first is being deleted
    story = Story()
    story.add_machines(1)
    story.specify("first", 1)
    story.hears(deleting("first"))
    story.specify("second", 1)

    # when the grant of the first arrives late
    late, second = story.grant("first", 1), story.grant("second", 1)

    # then it has no verdict, and the second no shortage
    assert late == []
    assert short(second) == ["second Sufficient 1/1"]


def test_the_end_of_an_earlier_pool_of_the_same_name_changes_nothing() -> None:
    story = Story()
    story.want("train", 1)
    before = story.state

    story.hears(
        NodePoolDeleting(**of("train"), uid="earlier", generation=1, since=NOON),
    )

    assert story.state == before


def test_a_pool_in_deletion_waits_no_more() -> None:
    story = Story()
    story.want("first", 1)
    story.want("second", 1)

    story.hears(deleting("first"))

    assert list(story.state.ranking(OFFERING)) == [key("second")]


def test_nothing_is_kept_of_a_pool_in_deletion() -> None:
    story = Story()
    story.want("train", 1)

    story.hears(deleting("train"))

    assert (len(story.state.pools), len(story.state.waiting), len(story.state.short)) == (0, 0, 0)


def test_those_behind_a_pool_in_deletion_get_its_machines() -> None:
    story = Story()
    story.add_machines(1)
    story.want("first", 1)
    story.want("second", 1)

    outputs = story.hears(deleting("first"))

    assert short([*outputs]) == ["second Sufficient 1/1"]


# Many NodePools: a step has a bound, and the rest follows.


def crowd(pools: int, last: int = 1) -> Story:
    """So many NodePools that lack a Node each, the last one `last` Nodes, and new machines."""
    return copy(_crowd(pools, last))


@cache
def _crowd(pools: int, last: int) -> Story:
    """The same for all tests: it takes long to make, and its state is immutable."""
    # Crowds of about the same size begin alike: each NodePool is ranked behind all before it.
    alike = min(pools, OUTPUTS_MAX) - 1
    story = copy(_beginning(alike))
    for number in range(alike, pools):
        join(story, f"p{number}", last if number == pools - 1 else 1)
    story.wake_until_idle()
    for number in range(pools):
        story.process(MachineAdded(zone=ZONE, machine=f"m{number}", instance_type=H100))
    return story


@cache
def _beginning(pools: int) -> Story:
    story = Story()
    for number in range(pools):
        join(story, f"p{number}", 1)
    return story


def join(story: Story, pool: str, target: int) -> None:
    """A NodePool joins a crowd with its target and its grant; nothing is woken."""
    spec = NodePoolSpec(instance_type=H100, target_nodes=target)
    story.process(validated(pool, 1, spec))
    story.process(granted_to(pool, 1, target))


def test_more_verdicts_than_one_step_holds_follow_at_the_next_wake() -> None:
    story = crowd(OUTPUTS_MAX + 1)

    first, second = story.wake(), story.wake()

    assert len(first) == OUTPUTS_MAX
    assert short([*second]) == [f"p{OUTPUTS_MAX} Sufficient 1/1"]
    assert not story.has_work


def test_a_warning_that_a_step_cannot_hold_follows_at_the_next_wake() -> None:
    # given NodePools whose new verdicts fill a step, the last of them with a warning beside it
    story, last = crowd(OUTPUTS_MAX, last=2), f"p{OUTPUTS_MAX - 1}"

    # when the step is stopped between the two
    first, second = story.wake(), story.wake()

    # then the warning follows, and it is given once
    assert short([*first])[-1] == f"{last} Partial 1/2"
    assert short([*second]) == [too_few(last, "1 of 2")]
    assert not story.has_work


def test_a_warning_that_waits_is_not_given_once_the_one_before_it_holds_again() -> None:
    # given a NodePool that was warned that no machine is left, and a second warning that waits
    story, last = crowd(OUTPUTS_MAX, last=2), f"p{OUTPUTS_MAX - 1}"
    story.wake()

    # when its only machine goes to another NodePool before that
    story.process(assigned("unknown", 0))
    outputs = story.wake_until_idle()

    # then the verdict is what it was when it was warned
    assert short(outputs) == [f"{last} NoneAvailable 0/2"]


def test_an_event_about_a_node_that_stays_leaves_the_state_as_it_is() -> None:
    # given a NodePool with a Node
    story = Story()
    story.add_machines(1)
    story.want("train", 1)
    story.process(assigned("train", 1))
    before = story.state

    # when its labels change, and a Pod runs there that no drain waits for
    story.process(
        NodeUpdated(
            **of("train"),
            node="m1",
            zone=ZONE,
            assignment=1,
            phase=NodePhase.PRODUCTION,
            unschedulable=False,
            labels={},
            annotations={},
            taints=(),
        )
    )
    story.process(
        NodeActivityChanged(
            **of("train"), node="m1", zone=ZONE, assignment=1, active=True, message="runs job"
        )
    )

    # then nothing is computed anew
    assert story.state is before


# Types that come in racks.


class Racks(Story):
    """The same with a type of which 18 machines make a rack."""

    def add_rack_machines(self, count: int) -> None:
        """So many machines more."""
        for _ in range(count):
            self.machines += 1
            machine = MachineAdded(zone=ZONE, machine=f"m{self.machines}", instance_type=GB200)
            self.process(machine)

    def want_racks(self, pool: str, target: int) -> Sequence[Message]:
        """The outputs when a NodePool of that type has a new target that its quota allows."""
        return self.want(pool, target, instance_type=GB200)


@pytest.mark.parametrize(
    ("free", "expected"),
    [
        (17, "NoneAvailable 0/36"),
        (18, "Partial 18/36"),
        (35, "Partial 18/36"),
        (36, "Sufficient 36/36"),
    ],
)
def test_only_whole_racks_can_be_had(free: int, expected: str) -> None:
    story = Racks()
    story.add_rack_machines(free)

    assert short(story.want_racks("train", 36))[0] == f"train {expected}"


def test_a_warning_says_that_a_type_comes_in_racks() -> None:
    story = Racks()
    story.add_rack_machines(17)

    assert short(story.want_racks("train", 18))[1] == (
        f"train: none of 18 wanted Nodes of {GB200} can be had in {ZONE} now, in racks of 18"
    )


def test_a_rack_that_is_too_small_for_one_pool_is_there_for_the_next() -> None:
    story = Racks()
    story.add_rack_machines(20)
    story.want_racks("first", 36)

    assert short(story.want_racks("second", 18))[0] == "second NoneAvailable 0/18"


def test_a_machine_that_a_rack_has_lost_is_replaced_alone() -> None:
    story = Racks()
    story.add_rack_machines(18)
    story.want_racks("train", 18)
    for number in range(1, 19):
        story.process(assigned("train", number))
    story.hears(registration_failed("train", 18))

    story.add_rack_machines(1)

    assert short(story.wake_until_idle()) == ["train Sufficient 1/1"]


def test_many_verdicts_that_name_a_number_of_racks_are_renewed_at_a_bounded_rate() -> None:
    # given so many NodePools that wait that a renewal of all is due every other second
    story = Racks()
    for number in range(200):
        story.want_racks(f"p{number}", 18)
    story.tick = timedelta(milliseconds=10)
    story.now += timedelta(minutes=1)

    # when a machine comes every few hundredths of a second, and none after that
    outputs: list[Message] = []
    for _ in range(17):
        story.machines += 1
        name, labels = f"m{story.machines}", {NVLINK_DOMAIN: "d"}
        event = MachineAdded(zone=ZONE, machine=name, instance_type=GB200, labels=labels)
        outputs += story.hears(event)
    soon = len(outputs)
    story.now += timedelta(seconds=2)
    outputs = list(story.wake_until_idle())

    # then all are renewed once at the first machine, and two seconds later, with the right numbers
    assert (soon, len(outputs)) == (200, 200)
    shown = {pool.said.message for pool in story.state.pools.values() if pool.said is not None}
    found = shares(story.state, GB_KEY, {})
    expected = {verdict(story.state.pools[share.key], share).message for share in found}
    assert shown == expected


def test_what_completes_no_rack_cannot_be_had_however_many_machines_are_free() -> None:
    story = Racks()
    story.add_rack_machines(40)
    story.specify("train", 36, instance_type=GB200)

    assert short(story.grant("train", 17, Quota.OVER))[0] == "train NoneAvailable 0/17"


# The rules for counting.


def test_the_share_of_a_pool_is_what_is_left_after_those_before_it() -> None:
    story = Story()
    story.add_machines(4)
    story.want("first", 3)
    story.want("second", 2)
    pools = story.state.pools

    assert share_of(story.state, pools[key("first")]) == Share(key("first"), Capacity.SUFFICIENT, 4)
    assert share_of(story.state, pools[key("second")]) == Share(
        key("second"), Capacity.PARTIAL, 1, position=4, needed=1
    )


targets = st.lists(st.integers(0, 4), min_size=1, max_size=6)


@given(targets, st.integers(0, 12))
def test_pools_are_never_promised_more_machines_than_are_free(wanted: list[int], free: int) -> None:
    story = Story()
    story.add_machines(free)
    for number, target in enumerate(wanted):
        story.want(f"p{number}", target)

    promised = sum(
        min(share.available, story.state.pools[share.key].claim)
        for share in shares(story.state, OFFERING, {})
    )

    assert promised == min(free, sum(wanted))


@given(targets, st.integers(0, 12))
def test_an_affinity_that_any_machine_satisfies_changes_no_verdict(
    wanted: list[int], free: int
) -> None:
    plain, restricted = Story(), Story()
    plain.add_machines(free, leaf="l1")
    restricted.add_machines(free, leaf="l1")

    expected = [plain.want(f"p{number}", target) for number, target in enumerate(wanted)]
    outputs = [
        restricted.want(f"p{number}", target, affinity=on_leaf("l1"))
        for number, target in enumerate(wanted)
    ]

    assert list(map(short, outputs)) == list(map(short, expected))


def test_a_verdict_and_its_warning_say_the_same() -> None:
    pool = Pool(
        key("train"),
        "train",
        ZONE,
        generation=1,
        spec=NodePoolSpec(instance_type=H100, target_nodes=3),
        valid=True,
        grant=Grant(1, 3),
        check=Check(1, 3),
        wait=Wait(since=NOON),
    )
    share = Share(pool.key, Capacity.PARTIAL, 1)

    assert verdict(pool, share).message == warning(pool, share).message


# Failures, snapshots and replay.


def test_a_pool_whose_capacity_cannot_be_checked_shows_it() -> None:
    story = Story()
    story.specify("train", 1)
    address = Address("evt", "quota", ("acme", "prod", "train"), "QuotaChecked")

    outputs = SERVICE.on_failure(
        story.state, Failure(address, "QuotaChecked", "granted", "is missing")
    )

    text = "internal error while checking capacity: is missing"
    assert list(outputs) == [CapacityCheckFailed(**of("train"), uid="train", message=text)]


def test_a_failure_about_a_pool_that_was_never_valid_is_shown_by_none() -> None:
    story = Story()
    address = Address("evt", "validator", ("acme", "prod", "typo"), "NodePoolValidated")

    outputs = SERVICE.on_failure(
        story.state, Failure(address, "NodePoolValidated", "", "input should be an object")
    )

    assert list(outputs) == []


def test_a_failure_that_concerns_no_pool_is_shown_by_none() -> None:
    address = Address("evt", "fleet", ("fleet", ZONE, "m1"), "MachineAdded")

    assert (
        list(
            SERVICE.on_failure(SERVICE.initial, Failure(address, "MachineAdded", "", "is missing"))
        )
        == []
    )


def test_a_machine_that_is_given_away_twice_is_a_failure_of_that_pool_alone() -> None:
    story = Story()
    story.add_machines(1)
    story.want("train", 1)
    story.want("other", 1)
    story.assign("train", 1)
    before = story.state

    result = step(SERVICE, story.folded, assigned("other", 1), Context(99, NOON))

    assert [type(output) for output in result.outputs] == [CapacityCheckFailed]
    assert result.folded.state.inventory == before.inventory
    assert result.folded.state.pools[key("train")] == before.pools[key("train")]


def test_a_check_that_failed_is_made_again_after_a_minute_and_succeeds() -> None:
    # given a NodePool whose check failed
    story = Story()
    story.add_machines(1)
    story.want("train", 1)
    story.failure_of(assigned("train", 7_777))
    failed = story.state.pools[key("train")].said

    # when a minute has passed
    story.now += timedelta(minutes=1)
    outputs = story.wake_until_idle()

    # then its verdict is said again, and nothing is left to retry
    assert failed is None
    assert short(outputs) == ["train Sufficient 1/1"]
    assert (story.due, len(story.state.work.failures)) == (None, 0)


def test_a_pool_whose_share_cannot_be_told_keeps_no_other_from_its_verdict() -> None:
    # given two NodePools that wait, and a bug that the first brings up
    story = Story()
    story.want("bad", 1)
    story.want("good", 1)
    sound = Taking.take

    def take(self: Taking, line: Line, count: int) -> int:
        if self.key == key("bad"):
            raise LookupError("broken")
        return sound(self, line, count)

    # when two machines come
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("capacity.needed.Taking.take", take)
        outputs = story.add_machines(2)

    text = "internal error while checking capacity: LookupError: broken"
    assert short(outputs[:-1]) == ["good Sufficient 2/1"]
    assert outputs[-1] == CapacityCheckFailed(**of("bad"), uid="bad", message=text)


def test_a_failure_in_an_offering_shows_on_the_first_that_waits() -> None:
    story = Story()
    story.want("first", 1)
    story.want("second", 1)
    address = Address("evt", "clock", ("capacity", "_", "_"), "Wake")

    outputs = SERVICE.on_failure(
        story.state, Failure(address, "Wake", "", "KeyError", is_bug=True, key=OFFERING)
    )

    text = "internal error while checking capacity: KeyError"
    assert list(outputs) == [CapacityCheckFailed(**of("first"), uid="first", message=text)]


def test_a_wake_that_failed_on_an_offering_is_made_up_for_on_all_that_wait_there() -> None:
    # given two NodePools that wait, a machine for each, and a wake that failed
    def broken(_state: State, key: str, _context: Context) -> Generator[Says, State, None]:
        raise KeyError(key)

    story = Story()
    story.want("first", 1)
    story.want("second", 1)
    story.process(MachineAdded(zone=ZONE, machine="m1", instance_type=H100))
    story.process(MachineAdded(zone=ZONE, machine="m2", instance_type=H100))
    failing = replace(SERVICE, reconciler=Reconciler(broken))
    wake = Wake(service="capacity", due=story.now)
    story.folded = step(failing, story.folded, wake, Context(99, story.now)).folded

    # when a minute has passed
    story.now += timedelta(minutes=1)
    outputs = story.wake_until_idle()

    # then both have their verdict
    assert short(outputs) == ["first Sufficient 2/1", "second Sufficient 1/1"]
    assert (story.due, len(story.state.work.failures)) == (None, 0)


def test_the_state_survives_a_snapshot() -> None:
    story = crowd(3)
    story.want("train", 3, affinity=on_leaf("l1"))
    story.process(assigned("p1", 1))

    assert load(State, dump(story.folded)) == story.folded


def test_a_replay_of_the_log_makes_the_same_state() -> None:
    # given more NodePools without a machine than one step has room for
    world, pools = World([SERVICE]), range(OUTPUTS_MAX + 1)
    for number in pools:
        publish(world, validated(f"p{number}", 1, NodePoolSpec(instance_type=H100, target_nodes=1)))
        publish(world, granted_to(f"p{number}", 1, 1))
    world.run_until_idle()

    # when there are machines for all of them
    for number in pools:
        publish(world, MachineAdded(zone=ZONE, machine=f"m{number}", instance_type=H100))
    world.run_until_idle()
    while world.hosts[0].replica.open:  # A run ends where many inputs in a row have no output.
        world.run_until_idle()

    # then each has its verdict, and what is replayed is what was folded
    sufficient = [
        event.pool
        for event in world.messages(CapacityChecked)
        if isinstance(event, CapacityChecked) and event.reason is Capacity.SUFFICIENT
    ]
    assert sufficient == [f"p{number}" for number in pools]
    assert world.replay_differs() == []


# Whatever happens, in whatever order.

names = st.sampled_from(["a", "b", "c"])
reasons = st.sampled_from([Validated.VALID, Validated.VALID, Validated.INVALID])


@st.composite
def any_event(draw: st.DrawFn) -> Hears:
    """An event about one of three NodePools and four machines; many do not fit the others."""
    pool, number, generation = draw(names), draw(st.integers(1, 4)), draw(st.integers(1, 3))
    spec = NodePoolSpec(
        instance_type=H100,
        target_nodes=draw(st.integers(0, 4)),
        affinity=on_leaf("l1") if draw(st.booleans()) else None,
    )
    quota = draw(st.sampled_from([Quota.UNDER, Quota.OVER]))
    events: list[Hears] = [
        validated(pool, generation, spec, draw(reasons)),
        granted_to(pool, generation, draw(st.integers(0, 4)), quota),
        assigned(pool, number),
        deleted(pool, number),
        registration_failed(pool, number),
        MachineAdded(zone=ZONE, machine=f"m{number}", instance_type=H100),
        MachineRepaired(zone=ZONE, machine=f"m{number}"),
        deleting(pool),
    ]
    return draw(st.sampled_from(events))


@given(st.lists(any_event(), max_size=60))
def test_demand_verdicts_and_what_is_kept_follow_from_the_pools_that_stay(
    events: Sequence[Hears],
) -> None:
    # given any messages, and time for the checks that failed
    story = Story()
    for event in events:
        story.failure_of(event)
    story.now += timedelta(hours=1)
    story.wake_until_idle()
    state = story.state

    # then an offering is there for those that wait, and says how much they want
    pools = list(state.pools.values())
    ranking = state.ranking(OFFERING)
    assert ranking.demand == sum(pool.claim for pool in pools)
    assert set(ranking) == {pool.key for pool in pools if pool.claim}
    assert (OFFERING in state.waiting) is (len(ranking) > 0)

    # and the machines in service are counted
    machines = state.inventory.machines.values()
    assert state.stock(OFFERING).in_service == sum(each.holder != TRIAGE for each in machines)

    # and the last verdict on each names the numbers of now
    for share in shares(state, OFFERING, {}):
        pool = state.pools[share.key]
        assert share.reason is Capacity.SUFFICIENT or pool.said == verdict(pool, share)

    # and once all of them go, and verdicts are exact, nothing is kept
    for pool in pools:
        story.process(deleting(pool.uid))
    story.wake_until_idle()
    story.now += timedelta(minutes=1)
    story.wake_until_idle()
    left = replace(story.state, inventory=Inventory(), work=WorkQueue())
    assert left == State()
    assert (story.due, len(story.state.work.failures)) == (None, 0)


def test_a_machine_fills_the_position_that_the_allocator_filled() -> None:
    # given a NodePool that has a machine of its first wait, and waits for another one since later
    story = Story()
    story.add_machines(2)
    story.want("train", 1)
    first = story.state.pools[key("train")].wait.since
    assert first is not None
    story.hears(assigned("train", 1).model_copy(update={"since": first}))
    story.want("train", 2)
    second = story.state.pools[key("train")].wait.since

    # when its first machine fails, and then it gets the machine that fills the second position
    story.hears(registration_failed("train", 1))
    story.hears(assigned("train", 2).model_copy(update={"since": second}))

    # then it waits for a machine since it began to wait for the first one
    assert story.state.pools[key("train")].wait.runs == (Run(first, 1),)
