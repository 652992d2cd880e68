from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodepool.contract.commands import SetQuota
from nodepool.contract.conditions import Quota, Validated
from nodepool.contract.events import (
    CommandAccepted,
    CommandRefused,
    CWNodeAssigned,
    CWNodeDeleted,
    CWNodePoolDeleted,
    CWNodePoolQuotaCheckFailed,
    CWNodeRegistrationFailed,
    CWOverQuota,
    GrantAcknowledged,
    NodePoolDeleting,
    NodePoolValidated,
    QuotaChecked,
    QuotaReleased,
    QuotaSet,
    Wake,
)
from nodepool.contract.keys import PoolKey, ledger_key
from nodepool.contract.messages import Message, PoolFields, pool_fields
from nodepool.contract.model import NodePoolSpec
from nodepool.contract.subjects import Address
from nodepool.engine.step import Folded, due, step
from nodepool.service import Context, Failure
from nodepool.state.work import IMMEDIATELY
from quota.decide import SERVICE
from quota.messages import Hears
from quota.state import Ledger, State

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
ZONE, H100, A100 = "US-EAST-02A", "gd-8xh100ib-i128", "gd-8xa100-i128"
LEDGER = ledger_key("acme", ZONE, H100)
UNDER = "NodePool is within instance type quota."


@dataclass
class Story:
    """The quota service, told one message after another; a wake follows where one is wanted."""

    folded: Folded[State] = field(default_factory=lambda: Folded(SERVICE.initial))
    position: int = 0
    generations: dict[str, int] = field(default_factory=dict)

    def hears(self, message: Hears | Wake, id: str = "") -> list[Message]:
        """What is said to a message, and to the wakes that follow from it."""
        said = self.outputs(message, id)
        while due(SERVICE, self.state) is not None:
            said += self.outputs(Wake(service="quota", due=IMMEDIATELY))
        return said

    def outputs(self, message: Hears | Wake, id: str = "") -> list[Message]:
        """What is said to a message itself."""
        self.position += 1
        now = Context(
            self.position, NOON + timedelta(seconds=self.position), id or f"c{self.position}"
        )
        result = step(SERVICE, self.folded, message, now)
        assert result.failure is None, result.failure
        self.folded = result.folded
        return list(result.outputs)

    def limit(self, limit: int, org: str = "acme") -> list[Message]:
        """What is said when a limit is set, the outcome and the limit itself left out."""
        command = SetQuota(org=org, zone=ZONE, instance_type=H100, limit=limit)
        return [
            one for one in self.hears(command) if not isinstance(one, CommandAccepted | QuotaSet)
        ]

    def wish(self, pool: str, target: int, **more: object) -> list[Message]:
        """What is said when a NodePool wants so many Nodes."""
        return self.hears(self.wished(pool, target, **more))

    def wished(self, pool: str, target: int, **more: object) -> NodePoolValidated:
        """The next wish of a NodePool."""
        self.generations[pool] = self.generations.get(pool, 0) + 1
        wish = NodePoolValidated(
            **of(pool),
            uid=uid(pool),
            zone=ZONE,
            generation=self.generations[pool],
            version=1,
            created=NOON,
            spec=NodePoolSpec(instance_type=H100, target_nodes=target),
            reason=Validated.VALID,
            message="",
        )
        return wish.model_copy(update=more)

    def assigned(self, pool: str, count: int) -> None:
        """A NodePool gets machines, one after another."""
        for number in range(count):
            assert self.hears(assigned(pool, number)) == []

    @property
    def state(self) -> State:
        """The state of the service."""
        return self.folded.state

    @property
    def used(self) -> int:
        """How many Nodes count against the limit."""
        return self.state.ledgers[LEDGER].used


def of(pool: str) -> PoolFields:
    """The identity of a NodePool, `name` or `org/cluster/name`."""
    *before, name = pool.split("/")
    org, cluster = before or ("acme", "prod")
    return pool_fields(PoolKey(f"{org}/{cluster}/{name}"))


def uid(pool: str, life: int = 1) -> str:
    """The uid of a NodePool in its first life, or a later one."""
    return f"{pool}.{life}"


def verdict(
    pool: str, reason: Quota, granted: int, limit: int | None, used: int, message: str = UNDER
) -> QuotaChecked:
    """A verdict on the first generation of a NodePool."""
    return QuotaChecked(
        **of(pool),
        generation=1,
        uid=uid(pool),
        reason=reason,
        granted=granted,
        zone=ZONE,
        instance_type=H100,
        limit=limit,
        used=used,
        message=message,
    )


def later(said: QuotaChecked, generation: int) -> QuotaChecked:
    """The same verdict on a later generation."""
    return said.model_copy(update={"generation": generation})


def over(pool: str, message: str) -> CWOverQuota:
    """The event beside a verdict that is not Under."""
    return CWOverQuota(**of(pool), message=message)


def exceeds(target: int, limit: int, used: str = "") -> str:
    """The sentence that says what blocks."""
    return f"targetNodes {target} exceeds quota {limit} for {H100}" + (used and f" ({used})")


def assigned(pool: str, number: int, life: int = 1) -> CWNodeAssigned:
    """A machine is given to a NodePool."""
    return CWNodeAssigned(
        **of(pool),
        node=f"g{number}",
        zone=ZONE,
        uid=uid(pool, life),
        instance_type=H100,
        assignment=number,
        message="",
    )


def deleted(pool: str, number: int = 0, life: int = 1) -> CWNodeDeleted:
    """A Node leaves its NodePool."""
    return CWNodeDeleted(
        **of(pool),
        node=f"g{number}",
        registered=True,
        uid=uid(pool, life),
        zone=ZONE,
        assignment=number,
        message="",
    )


def checked(pool: str, granted: int, generation: int, life: int = 1) -> GrantAcknowledged:
    """The allocator works to a smaller grant."""
    return GrantAcknowledged(
        **of(pool), uid=uid(pool, life), generation=generation, granted=granted
    )


def released(pool: str, granted: int, used: int) -> QuotaReleased:
    """What a NodePool gave back is free for others."""
    return QuotaReleased(**of(pool), granted=granted, zone=ZONE, instance_type=H100, used=used)


# The verdict on a wish.


def test_a_target_within_the_limit_is_granted() -> None:
    story = Story()
    story.limit(8)

    said = story.wish("train", 8)

    assert said == [verdict("train", Quota.UNDER, 8, 8, 8)]


def test_a_limit_that_was_never_set_blocks_like_a_limit_of_0() -> None:
    story = Story()

    said = story.wish("train", 3)

    told = f"no quota is set for {H100} in {ZONE}, and targetNodes is 3"
    assert said == [
        verdict("train", Quota.NOT_SET, 0, None, 0, told),
        over("train", told),
    ]


def test_a_target_above_the_limit_is_refused_with_the_numbers() -> None:
    story = Story()
    story.limit(8)
    story.wish("one", 4)
    story.wish("two", 2)

    said = story.wish("train", 12)

    told = exceeds(12, 8, "6 used by 2 other pools")
    assert said == [verdict("train", Quota.OVER, 0, 8, 6, told), over("train", told)]


def test_a_single_other_pool_is_named_in_the_singular() -> None:
    story = Story()
    story.limit(8)
    story.wish("one", 4)

    (said, _) = story.wish("train", 5)

    assert isinstance(said, QuotaChecked)
    assert said.message == exceeds(5, 8, "4 used by 1 other pool")


def test_a_target_that_grows_beyond_the_limit_keeps_the_grant_it_had() -> None:
    story = Story()
    story.limit(8)
    story.wish("train", 5)

    said = story.wish("train", 9)

    told = exceeds(9, 8)
    assert said == [
        later(verdict("train", Quota.OVER, 5, 8, 5, told), 2),
        over("train", told),
    ]


def test_a_grant_is_never_above_the_target() -> None:
    story = Story()
    story.limit(8)
    story.wish("train", 8)
    story.limit(2)

    (said, _) = story.wish("train", 4)

    assert isinstance(said, QuotaChecked)
    assert (said.reason, said.granted) == (Quota.OVER, 4)


def test_all_clusters_of_an_organisation_in_a_zone_share_its_limit() -> None:
    story = Story()
    story.limit(8)
    story.wish("acme/east/one", 6)

    (said, _) = story.wish("acme/west/two", 3)

    assert isinstance(said, QuotaChecked)
    assert said.message == exceeds(3, 8, "6 used by 1 other pool")


def test_other_organisations_zones_and_types_have_limits_of_their_own() -> None:
    story = Story()
    story.limit(8)
    story.limit(8, org="other")
    story.hears(SetQuota(org="acme", zone=ZONE, instance_type=A100, limit=8))
    story.hears(SetQuota(org="acme", zone="RNO2A", instance_type=H100, limit=8))
    story.wish("train", 8)

    wishes = [
        story.wished("other/prod/train", 8),
        story.wished("a100", 8, spec=NodePoolSpec(instance_type=A100, target_nodes=8)),
        story.wished("reno", 8, zone="RNO2A"),
    ]
    said = [one for wish in wishes for one in story.hears(wish)]

    assert [one.reason for one in said if isinstance(one, QuotaChecked)] == [Quota.UNDER] * 3


def test_a_target_of_0_is_within_any_limit() -> None:
    story = Story()
    story.limit(0)

    assert story.wish("train", 0) == [verdict("train", Quota.UNDER, 0, 0, 0)]


def test_a_wish_that_is_not_valid_has_no_verdict() -> None:
    story = Story()
    story.limit(8)

    assert story.wish("train", 3, reason=Validated.INVALID) == []
    assert story.used == 0


def test_a_wish_that_is_no_longer_valid_keeps_its_grant_and_waits_no_more() -> None:
    story = Story()
    story.limit(8)
    story.wish("train", 5)
    story.wish("train", 9)

    story.wish("train", 9, reason=Validated.INVALID)
    said = story.limit(100)

    assert said == []
    assert story.used == 5


def test_the_same_wish_again_has_the_same_verdict_and_no_second_event() -> None:
    story = Story()
    story.limit(8)
    first = story.wish("train", 9)

    again = story.wish("train", 9)

    told = exceeds(9, 8)
    assert first == [verdict("train", Quota.OVER, 0, 8, 0, told), over("train", told)]
    assert again == [later(verdict("train", Quota.OVER, 0, 8, 0, told), 2)]


# Those who wait.


def test_a_raised_limit_serves_who_waits_in_the_order_in_which_they_began() -> None:
    story = Story()
    story.limit(4)
    for pool, target in (("late", 0), ("first", 5), ("second", 6), ("late", 7)):
        story.wish(pool, target)

    said = story.limit(12)

    assert [
        (one.pool, one.reason, one.granted) for one in said if isinstance(one, QuotaChecked)
    ] == [
        ("first", Quota.UNDER, 5),
        ("second", Quota.UNDER, 6),
    ]
    assert story.used == 11


def test_a_smaller_pool_behind_one_that_does_not_fit_is_served() -> None:
    story = Story()
    story.limit(1)
    story.wish("large", 10)
    story.wish("small", 2)

    said = story.limit(4)

    assert said == [verdict("small", Quota.UNDER, 2, 4, 2)]


def test_what_does_not_change_is_not_said_again() -> None:
    story = Story()
    story.limit(4)
    story.wish("train", 9)

    assert story.limit(5) == []


def test_a_pool_that_was_served_waits_no_more() -> None:
    story = Story()
    story.limit(4)
    story.wish("train", 5)
    story.limit(5)

    assert list(story.state.ledgers[LEDGER].waiting) == []
    assert story.limit(6) == []


def test_a_limit_set_for_the_first_time_serves_those_who_wait() -> None:
    story = Story()
    story.wish("train", 3)

    assert story.limit(8) == [verdict("train", Quota.UNDER, 3, 8, 3)]


# A limit that is lowered.


def test_a_limit_below_what_is_in_use_takes_nothing_away_and_gives_nothing_more() -> None:
    story = Story()
    story.limit(8)
    story.wish("one", 4)
    story.wish("two", 4)

    said = story.limit(5)

    told = exceeds(4, 5, "4 used by 1 other pool")
    assert said == [
        verdict("one", Quota.OVER, 4, 5, 8, told),
        over("one", told),
        verdict("two", Quota.OVER, 4, 5, 8, told),
        over("two", told),
    ]
    assert story.used == 8


def test_a_limit_raised_again_makes_everybody_under() -> None:
    story = Story()
    story.limit(8)
    story.wish("one", 4)
    story.wish("two", 4)
    story.limit(5)

    said = story.limit(8)

    assert said == [
        verdict("one", Quota.UNDER, 4, 8, 8),
        verdict("two", Quota.UNDER, 4, 8, 8),
    ]


# What is given back.


def test_a_target_that_shrinks_gives_back_its_grant_when_its_nodes_are_gone() -> None:
    story = Story()
    story.limit(4)
    story.wish("train", 4)
    story.assigned("train", 4)

    shrunk = story.wish("train", 2)
    told = story.hears(checked("train", 2, generation=2))
    first, second = story.hears(deleted("train")), story.hears(deleted("train"))

    assert shrunk == [later(verdict("train", Quota.UNDER, 2, 4, 4), 2)]
    assert told == []
    assert first == [released("train", 3, 3)]
    assert second == [released("train", 2, 2)]


def test_a_grant_that_the_allocator_has_not_let_go_of_is_not_given_to_another() -> None:
    story = Story()
    story.limit(4)
    story.wish("train", 4)
    story.wish("other", 3)

    story.wish("train", 1)
    before = story.used
    said = story.hears(checked("train", 1, generation=2))

    assert before == 4
    assert said == [released("train", 1, 1), verdict("other", Quota.UNDER, 3, 4, 4)]


def test_an_answer_to_an_older_grant_leaves_the_newer_one_reserved() -> None:
    story = Story()
    story.limit(4)
    story.wish("train", 4)
    story.wish("train", 1)
    story.wish("train", 3)

    first = story.hears(checked("train", 1, generation=2))
    second = story.hears(checked("train", 3, generation=3))

    assert first == [released("train", 3, 3)]
    assert second == []
    assert story.used == 3


def test_an_answer_that_came_too_late_for_the_newest_grant_gives_back_all_the_same() -> None:
    story = Story()
    story.limit(4)
    story.wish("train", 4)
    story.wish("train", 1)
    story.wish("train", 1)

    said = story.hears(checked("train", 1, generation=2))

    assert said == [released("train", 1, 1)]


def test_a_node_whose_registration_failed_counts_until_its_pool_wants_it_no_more() -> None:
    story = Story()
    story.limit(4)
    story.wish("train", 2)
    story.assigned("train", 2)
    failed = CWNodeRegistrationFailed(
        **of("train"), node="g0", uid=uid("train"), zone=ZONE, assignment=0, message=""
    )

    said = story.hears(failed)

    assert said == []
    assert story.used == 2


def test_a_pool_in_deletion_gives_back_what_it_holds_node_by_node() -> None:
    story = Story()
    story.limit(4)
    story.wish("train", 2)
    story.assigned("train", 2)
    story.wish("other", 3)
    deleting = NodePoolDeleting(**of("train"), uid=uid("train"), generation=1, since=NOON)
    gone = CWNodePoolDeleted(**of("train"), uid=uid("train"), message="")

    said = [
        *story.hears(deleting),
        *story.hears(deleted("train")),
        *story.hears(deleted("train")),
        *story.hears(gone),
    ]

    assert [one for one in said if isinstance(one, QuotaChecked)] == [
        verdict("other", Quota.UNDER, 3, 4, 3)
    ]
    assert said.index(released("train", 0, 0)) < said.index(verdict("other", Quota.UNDER, 3, 4, 3))
    assert list(story.state.pools) == ["acme/prod/other"]


def test_a_pool_in_deletion_waits_for_nothing() -> None:
    story = Story()
    story.limit(4)
    story.wish("train", 9)
    story.hears(NodePoolDeleting(**of("train"), uid=uid("train"), generation=1, since=NOON))

    assert story.limit(100) == []


def test_what_is_said_of_an_earlier_pool_of_the_same_name_is_passed_over() -> None:
    story = Story()
    story.limit(8)
    story.wish("train", 2, uid=uid("train", 2))

    said = [
        *story.hears(assigned("train", 0, life=1)),
        *story.hears(deleted("train", 0, life=1)),
        *story.hears(checked("train", 0, 1, life=1)),
        *story.hears(
            NodePoolDeleting(**of("train"), uid=uid("train", 1), generation=1, since=NOON)
        ),
    ]

    assert said == []
    assert story.used == 2


# Commands.


def test_setting_a_limit_says_what_is_granted_under_it() -> None:
    story = Story()
    story.limit(8)
    story.wish("train", 3)

    said = story.outputs(SetQuota(org="acme", zone=ZONE, instance_type=H100, limit=9))

    assert said == [
        CommandAccepted(org="acme", cluster="_", pool="_", command="SetQuota", result="configured"),
        QuotaSet(org="acme", zone=ZONE, instance_type=H100, limit=9, granted=3),
    ]


def test_setting_the_limit_that_holds_changes_nothing() -> None:
    story = Story()
    story.limit(8)

    said = story.outputs(SetQuota(org="acme", zone=ZONE, instance_type=H100, limit=8))

    assert said == [
        CommandAccepted(org="acme", cluster="_", pool="_", command="SetQuota", result="unchanged")
    ]


def test_the_same_command_again_is_not_done_again() -> None:
    story = Story()
    command = SetQuota(org="acme", zone=ZONE, instance_type=H100, limit=8)
    first = story.outputs(command, id="mine")
    story.limit(9)

    again = story.outputs(command, id="mine")

    assert again == first[:1]
    assert story.state.ledgers[LEDGER].limit == 9


@pytest.mark.parametrize(
    ("zone", "instance_type", "fault", "cause"),
    [
        ("MARS-01A", H100, "zone", "MARS-01A is not known"),
        (ZONE, "none-such", "instanceType", "none-such is not known"),
        ("MARS-01A", "none-such", "zone", "MARS-01A is not known"),
    ],
)
def test_a_limit_for_what_does_not_exist_is_refused(
    zone: str, instance_type: str, fault: str, cause: str
) -> None:
    story = Story()

    said = story.hears(SetQuota(org="acme", zone=zone, instance_type=instance_type, limit=8))

    assert said == [
        CommandRefused(
            org="acme",
            cluster="_",
            pool="_",
            command="SetQuota",
            reason="Invalid",
            field=fault,
            message=cause,
        )
    ]


# What cannot be judged, and wakes for nothing.


def test_a_wake_for_which_nothing_is_left_to_do_finds_nothing_to_say() -> None:
    story = Story()

    assert story.outputs(Wake(service="quota", due=IMMEDIATELY)) == []
    story.limit(8)
    assert story.outputs(Wake(service="quota", due=IMMEDIATELY)) == []


def test_a_wish_that_cannot_be_judged_is_told_to_its_pool() -> None:
    address = Address("evt", "", ("acme", "prod", "train"), "NodePoolValidated")

    said = SERVICE.on_failure(Failure(address, "NodePoolValidated", "", "KeyError: 'x'", True))

    assert list(said) == [
        CWNodePoolQuotaCheckFailed(
            **of("train"), message="internal error while checking quota: KeyError: 'x'"
        )
    ]


def test_anything_else_that_cannot_be_read_concerns_no_pools_quota() -> None:
    address = Address("evt", "", ("acme", "prod", "train"), "CWNodeAssigned")

    assert list(SERVICE.on_failure(Failure(address, "CWNodeAssigned", "", "?"))) == []


# Whatever arrives, in whatever order, the limit is never passed.


@dataclass(frozen=True)
class Taker:
    """What an allocator knows of a NodePool, which reads the log later than it is written."""

    uid: str = ""
    generation: int = 0
    granted: int = 0
    bound: int = 0
    held: int = 0
    deleting: bool = False


@dataclass
class House:
    """A log that quota and an allocator read at their own pace, and NodePools that come and go."""

    log: list[Message] = field(default_factory=list)
    story: Story = field(default_factory=Story)
    quota_at: int = 0
    taker_at: int = 0
    takers: dict[str, Taker] = field(default_factory=dict)
    lives: dict[str, int] = field(default_factory=dict)
    alive: set[str] = field(default_factory=set)
    deleting: set[str] = field(default_factory=set)

    # What may happen, where it can: to a NodePool, so many times or with this number.

    def limit(self, _pool: str, number: int) -> None:
        """The limit is set."""
        command = SetQuota(org="acme", zone=ZONE, instance_type=H100, limit=number)
        self.log.append(command)

    def wish(self, pool: str, number: int) -> None:
        """A NodePool is created, or wants another number of Nodes."""
        if pool not in self.deleting:
            self.log.append(self.wished(pool, number))

    def spoil(self, pool: str, number: int) -> None:
        """A NodePool wants what is not valid."""
        if pool in self.alive:
            spoilt = {"reason": Validated.INVALID}
            self.log.append(self.wished(pool, number).model_copy(update=spoilt))

    def delete(self, pool: str, _number: int) -> None:
        """A NodePool is to go."""
        if pool in self.alive:
            self.alive.discard(pool)
            self.deleting.add(pool)
            life, generation = uid(pool, self.lives[pool]), self.story.generations[pool]
            said = NodePoolDeleting(**of(pool), uid=life, generation=generation, since=NOON)
            self.log.append(said)

    def forget(self, pool: str, _number: int) -> None:
        """A NodePool in deletion that holds no Node any more is gone."""
        taker = self.takers.get(pool, Taker())
        if pool in self.deleting and taker.deleting and not taker.held:
            self.deleting.discard(pool)
            self.lives[pool] += 1
            self.log.append(CWNodePoolDeleted(**of(pool), uid=taker.uid, message=""))

    def take(self, pool: str, number: int) -> None:
        """The allocator gives machines to a NodePool that may have more."""
        taker = self.takers.get(pool, Taker())
        if not taker.deleting:
            for _ in range(min(number, taker.granted - taker.held)):
                self.moves(pool, assigned(pool, 0).model_copy(update={"uid": taker.uid}), 1)

    def drop(self, pool: str, number: int) -> None:
        """Nodes leave a NodePool."""
        taker = self.takers.get(pool, Taker())
        for _ in range(min(number, taker.held)):
            self.moves(pool, deleted(pool).model_copy(update={"uid": taker.uid}), -1)

    def quota(self, _pool: str, number: int) -> None:
        """Quota outputs the next messages, and is woken where it wants to be."""
        for _ in range(number):
            if self.quota_at < len(self.log):
                message = self.log[self.quota_at]
                self.quota_at += 1
                if type(message).__name__ in SERVICE.inputs:
                    self.quota_answers(message)
            elif due(SERVICE, self.story.state) is not None:
                self.log.append(Wake(service="quota", due=IMMEDIATELY))

    def allocator(self, _pool: str, number: int) -> None:
        """The allocator reads the next messages; a grant that became smaller is confirmed."""
        for message in self.log[self.taker_at : self.taker_at + number]:
            self.taker_at += 1
            self.allocator_reads(message)

    def both(self, pool: str, number: int) -> None:
        """Both read on."""
        self.quota(pool, number)
        self.allocator(pool, number)

    # How it happens.

    def wished(self, pool: str, target: int) -> NodePoolValidated:
        """The next wish of a NodePool in its present life."""
        self.alive.add(pool)
        life = self.lives.setdefault(pool, 1)
        wish = self.story.wished(pool, target)
        return wish.model_copy(update={"uid": uid(pool, life)})

    def quota_answers(self, message: Hears | Wake) -> None:
        """Quota outputs one message, and keeps its promises."""
        before = self.story.state.ledgers.get(LEDGER, Ledger()).used
        self.log += self.story.outputs(message)

        state = self.story.state
        ledger = state.ledgers.get(LEDGER, Ledger())
        reserved = [pool.reserved for pool in state.pools.values()]
        assert ledger.used == sum(reserved)
        assert ledger.holders == sum(count > 0 for count in reserved)
        assert ledger.used <= max(ledger.limit or 0, before), "more is granted than may be"

    def moves(self, pool: str, said: Message, change: int) -> None:
        """A machine comes to a NodePool, or leaves it."""
        taker = self.takers[pool]
        self.takers[pool] = replace(taker, held=taker.held + change)
        self.log.append(said)

    def allocator_reads(self, message: Message) -> None:
        """The allocator follows wishes and grants."""
        if not isinstance(message, NodePoolValidated | NodePoolDeleting | QuotaChecked):
            return
        pool = message.pool
        taker = self.takers.get(pool, Taker())
        match message:
            case NodePoolValidated() if message.uid != taker.uid:
                taker = Taker(message.uid, message.generation)
            case NodePoolValidated():
                taker = replace(taker, generation=message.generation)
            case NodePoolDeleting(uid=taker.uid):
                taker = replace(taker, deleting=True)
            case QuotaChecked(uid=taker.uid, granted=granted):
                taker = replace(taker, bound=max(taker.bound, granted))
                if message.generation == taker.generation:
                    if granted < taker.bound:
                        said = checked(pool, granted, taker.generation)
                        self.log.append(said.model_copy(update={"uid": taker.uid}))
                    taker = replace(taker, granted=granted, bound=granted)
        self.takers[pool] = taker

    def goes_on(self) -> bool:
        """Lets each read a message and who is too many leave; False when all has come to rest."""
        before = len(self.log) + self.quota_at + self.taker_at
        self.both("", 1)
        for pool, taker in self.takers.items():
            if taker.held > taker.granted or taker.deleting:
                self.drop(pool, 1)
            self.forget(pool, 1)
        return before != len(self.log) + self.quota_at + self.taker_at

    def keeps_within_what_is_reserved(self) -> None:
        """Whoever holds Nodes has them reserved."""
        ledger = self.story.state.ledgers.get(LEDGER, Ledger())
        held = sum(taker.held for taker in self.takers.values())
        assert held <= ledger.used, "more is held than was reserved"


ObjectEvent = tuple[Callable[[House, str, int], None], str, int]
object_events: st.SearchStrategy[list[ObjectEvent]] = st.lists(
    st.tuples(
        st.sampled_from(
            (
                *(House.wish, House.wish, House.limit, House.take, House.drop, House.delete),
                *(House.forget, House.spoil, House.quota, House.quota, House.allocator),
                *(House.both, House.both, House.both),
            )
        ),
        st.sampled_from(("a", "b", "c")),
        st.integers(0, 8),
    ),
    min_size=20,
    max_size=80,
)


@given(object_events)
def test_the_sum_of_reservations_never_passes_the_limit(
    story: list[ObjectEvent],
) -> None:
    house = House()

    for happens, pool, number in story:
        happens(house, pool, number)
        house.keeps_within_what_is_reserved()
    while house.goes_on():
        house.keeps_within_what_is_reserved()


@given(object_events)
def test_when_everything_is_said_whoever_waits_does_not_fit_and_nobody_else_waits(
    story: list[ObjectEvent],
) -> None:
    house = House()
    for happens, pool, number in story:
        happens(house, pool, number)
    while house.goes_on():
        pass

    state = house.story.state
    for key, kept in state.pools.items():
        ledger = state.ledgers[kept.ledger]
        fits = (
            ledger.limit is not None and ledger.used - kept.reserved + kept.target <= ledger.limit
        )
        if kept.checked:
            assert (kept.reason is Quota.UNDER) is fits, key
            assert (key in ledger.waiting) is not fits, key
            assert kept.granted <= kept.target
            assert kept.reserved == max(kept.granted, kept.held)
        assert kept.held == house.takers[key.split("/")[2]].held
