from collections.abc import Sequence
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from capacity import Hears, Says
from capacity.decide import SERVICE
from capacity.state import Pool, State
from capacity.supply import Share, share_of, shares
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
    CWNodePoolDeleted,
    CWNodeRegistrationFailed,
    MachineAdded,
    MachineRepaired,
    NodePoolDeleting,
    NodePoolValidated,
    QuotaChecked,
)
from nodepool.contract.keys import PoolKey, offering_key, pool_key
from nodepool.contract.messages import Message, PoolFields, pool_fields
from nodepool.contract.model import ComputeClass, NodePoolSpec, SchedulingPriority
from nodepool.contract.subjects import Address
from nodepool.engine.bounds import OUTPUTS_MAX
from nodepool.engine.snapshot import dump, load
from nodepool.engine.step import step
from nodepool.engine.world import World
from nodepool.service import Context, Failure
from support.publishing import publish
from support.single import NOON, SingleService

ZONE, H100, A100 = "US-EAST-02A", "gd-8xh100ib-i128", "gd-8xa100-i128"
OFFERING = offering_key(ZONE, H100)
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
        message="",
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


def test_a_pool_over_its_quota_wants_nothing() -> None:
    story = Story()
    story.specify("train", 3)

    assert short(story.grant("train", 1, Quota.OVER)) == ["train Sufficient 0/0"]


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

    assert short(story.add_machines(1)) == ["high Sufficient 1/1"]


def test_spot_pools_are_served_last() -> None:
    story = Story()
    story.want("spot", 1, compute_class=ComputeClass.SPOT)
    story.want("train", 1)

    assert short(story.add_machines(1)) == ["train Sufficient 1/1"]


def test_a_pool_that_wants_no_more_than_before_keeps_its_place() -> None:
    story = Story()
    story.want("first", 2)
    story.want("second", 2)
    since = story.state.pools[key("first")].since

    story.want("first", 1)

    assert story.state.pools[key("first")].since == since
    assert list(story.state.offerings[OFFERING].waiting) == [key("first"), key("second")]


def test_a_pool_that_wants_more_than_before_goes_behind_the_others() -> None:
    story = Story()
    story.want("first", 1)
    story.want("second", 2)

    story.want("first", 2)

    assert list(story.state.offerings[OFFERING].waiting) == [key("second"), key("first")]


def test_a_pool_waits_since_no_moment_before_its_quota_was_checked() -> None:
    story = Story()
    story.specify("train", 2)

    pool = story.state.pools[key("train")]

    assert (pool.since, pool.place, pool.shortfall) == (None, None, 0)


def test_a_changed_spec_wants_nothing_until_its_quota_is_checked() -> None:
    story = Story()
    story.want("first", 1)
    story.want("second", 1)
    story.specify("first", 2)

    outputs = story.add_machines(1)

    assert short(outputs) == ["second Sufficient 1/1"]


def test_a_spec_that_is_no_longer_valid_wants_nothing() -> None:
    story = Story()
    story.want("train", 1)

    outputs = story.hears(validated("train", 1, story.specs["train"], Validated.INVALID))

    assert outputs == []
    assert len(story.state.offerings[OFFERING].waiting) == 0


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

    assert short(outputs) == ["first Sufficient 2/0", "second Sufficient 2/1"]


def test_machines_that_change_no_verdict_make_no_work() -> None:
    story = Story()
    story.add_machines(2)
    story.want("train", 1)

    story.process(MachineAdded(zone=ZONE, machine="x", instance_type=H100))

    assert not story.has_work


def test_fewer_machines_for_the_same_reason_make_no_new_verdict() -> None:
    story = Story()
    story.add_machines(3)
    story.want("train", 5)

    assert story.assign("train", 1) == []


def test_a_pool_that_got_all_its_nodes_has_enough() -> None:
    story = Story()
    story.add_machines(1)
    story.want("train", 2)
    story.assign("train", 1)

    outputs = story.want("train", 1)

    assert short(outputs) == ["train Sufficient 0/0"]
    assert len(story.state.offerings[OFFERING].short) == 0


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
    failed = CWNodeRegistrationFailed(
        **of("train"), node="m1", zone=ZONE, uid="train", assignment=1, message=""
    )

    first = story.hears(failed)
    second = story.hears(MachineRepaired(zone=ZONE, machine="m1"))

    assert short([*first]) == ["train NoneAvailable 0/1", too_few("train", "none of 1")]
    assert short([*second]) == ["train Sufficient 1/1"]


def test_a_repair_of_an_unknown_machine_changes_nothing() -> None:
    story = Story()

    assert story.hears(MachineRepaired(zone=ZONE, machine="x")) == []
    assert story.state == State()


def test_a_machine_given_to_an_unknown_pool_is_no_longer_free() -> None:
    story = Story()
    story.add_machines(1)

    story.assign("unknown", 1)

    assert story.state.inventory.count(OFFERING) == 0


# NodePools that go.


def test_a_pool_in_deletion_waits_no_more() -> None:
    story = Story()
    story.want("first", 1)
    story.want("second", 1)

    story.hears(NodePoolDeleting(**of("first"), uid="first", generation=1, since=NOON))

    assert list(story.state.offerings[OFFERING].waiting) == [key("second")]


def test_a_deleted_pool_is_forgotten() -> None:
    story = Story()
    story.want("train", 1)

    story.hears(CWNodePoolDeleted(**of("train"), uid="train", message=""))

    offering = story.state.offerings[OFFERING]
    assert len(story.state.pools) == 0
    assert (len(offering.waiting), len(offering.short), offering.demand) == (0, 0, 0)


def test_those_behind_a_deleted_pool_get_its_machines() -> None:
    story = Story()
    story.add_machines(1)
    story.want("first", 1)
    story.want("second", 1)

    outputs = story.hears(CWNodePoolDeleted(**of("first"), uid="first", message=""))

    assert short([*outputs]) == ["second Sufficient 1/1"]


# Many NodePools: a step has a bound, and the rest follows.


def crowd(pools: int, last: int = 1) -> Story:
    """So many NodePools that lack a Node each, the last one `last` Nodes, and new machines."""
    story = Story()
    for number in range(pools):
        pool, target = f"p{number}", last if number == pools - 1 else 1
        spec = NodePoolSpec(instance_type=H100, target_nodes=target)
        story.process(validated(pool, 1, spec))
        story.process(granted_to(pool, 1, target))
    story.wake_until_idle()
    for number in range(pools):
        story.process(MachineAdded(zone=ZONE, machine=f"m{number}", instance_type=H100))
    return story


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


# The rules for counting.


def test_shares_pass_over_those_that_were_warned_that_no_machine_is_left() -> None:
    story = Story()
    story.want("first", 1)
    story.want("second", 1)

    assert list(shares(story.state, OFFERING)) == []


def test_the_share_of_a_pool_is_what_is_left_after_those_before_it() -> None:
    story = Story()
    story.add_machines(4)
    story.want("first", 3)
    story.want("second", 2)
    pools = story.state.pools

    assert share_of(story.state, pools[key("first")]) == (key("first"), Capacity.SUFFICIENT, 4)
    assert share_of(story.state, pools[key("second")]) == (key("second"), Capacity.PARTIAL, 1)


targets = st.lists(st.integers(0, 4), min_size=1, max_size=6)


@given(targets, st.integers(0, 12))
def test_pools_are_never_promised_more_machines_than_are_free(wanted: list[int], free: int) -> None:
    story = Story()
    story.add_machines(free)
    for number, target in enumerate(wanted):
        story.want(f"p{number}", target)

    promised = sum(
        min(share.available, story.state.pools[share.key].shortfall)
        for share in shares(story.state, OFFERING)
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
        OFFERING,
        generation=1,
        spec=NodePoolSpec(instance_type=H100, target_nodes=3),
        checked=True,
        granted=3,
        within_quota=True,
        since=NOON,
    )
    share = Share(pool.key, Capacity.PARTIAL, 1)

    assert verdict(pool, share).message == warning(pool, share).message


# Failures, snapshots and replay.


def test_a_pool_whose_capacity_cannot_be_checked_shows_it() -> None:
    address = Address("evt", "quota", ("acme", "prod", "train"), "QuotaChecked")

    outputs = SERVICE.on_failure(
        SERVICE.initial, Failure(address, "QuotaChecked", "granted", "is missing")
    )

    text = "internal error while checking capacity: is missing"
    assert list(outputs) == [CapacityCheckFailed(**of("train"), message=text)]


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
    story.assign("train", 1)
    before = story.folded

    result = step(SERVICE, before, assigned("other", 1), Context(99, NOON))

    assert [type(output) for output in result.outputs] == [CapacityCheckFailed]
    assert result.folded == before


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
