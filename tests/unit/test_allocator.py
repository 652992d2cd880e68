from dataclasses import dataclass
from datetime import UTC, datetime

from allocator.decide import SERVICE, State
from nodepool.contract.conditions import Capacity, Quota, Validated
from nodepool.contract.events import (
    CapacityChecked,
    CWNodeAssigned,
    CWNodeRequestQueued,
    GrantAcknowledged,
    MachineAdded,
    NodePoolValidated,
    QuotaChecked,
    Wake,
)
from nodepool.contract.messages import Message, PoolFields
from nodepool.contract.model import NodePoolSpec
from nodepool.service import IMMEDIATELY, Context, step

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
ZONE, H100 = "US-EAST-02A", "gd-8xh100ib-i128"
OF: PoolFields = {"org": "acme", "cluster": "prod", "pool": "train"}


@dataclass
class Story:
    """The allocator, told one message after another."""

    state: State = SERVICE.initial
    position: int = 0

    def hears(self, *messages: Message) -> list[Message]:
        """What is said to these messages."""
        said: list[Message] = []
        for message in messages:
            self.position += 1
            found = step(SERVICE, self.state, message, Context(self.position, NOON))
            assert found.failure is None, found.failure
            self.state = found.state
            said += found.outputs
        return said


def wish(generation: int, target: int, uid: str = "u1") -> NodePoolValidated:
    """A NodePool wants so many Nodes."""
    return NodePoolValidated(
        **OF,
        uid=uid,
        zone=ZONE,
        generation=generation,
        version=1,
        created=NOON,
        spec=NodePoolSpec(instance_type=H100, target_nodes=target),
        reason=Validated.VALID,
        message="",
    )


def granted(generation: int, count: int, uid: str = "u1") -> QuotaChecked:
    """A NodePool may have so many Nodes."""
    return QuotaChecked(
        **OF,
        generation=generation,
        reason=Quota.UNDER,
        uid=uid,
        granted=count,
        zone=ZONE,
        instance_type=H100,
        limit=100,
        used=count,
        message="",
    )


def cleared(generation: int, count: int) -> CapacityChecked:
    """Capacity was checked for a grant."""
    return CapacityChecked(
        **OF,
        uid="u1",
        generation=generation,
        granted=count,
        reason=Capacity.SUFFICIENT,
        wanted=count,
        available=count,
        since=NOON,
        message="",
    )


def machine(name: str) -> MachineAdded:
    """A machine is there to be had."""
    return MachineAdded(zone=ZONE, machine=name, instance_type=H100)


def confirmed(generation: int, count: int) -> GrantAcknowledged:
    """The allocator works to a smaller grant."""
    return GrantAcknowledged(**OF, uid="u1", generation=generation, granted=count)


def test_a_smaller_grant_is_confirmed_so_that_others_may_have_the_rest() -> None:
    story = Story()
    story.hears(wish(1, 5), granted(1, 5), wish(2, 2))

    said = story.hears(granted(2, 2))

    assert said == [confirmed(2, 2)]
    assert story.hears(granted(2, 2)) == []


def test_a_grant_for_a_wish_that_was_overtaken_is_given_back_with_the_next() -> None:
    story = Story()

    said = story.hears(wish(1, 5), wish(2, 2), granted(1, 5), granted(2, 2))

    assert said == [confirmed(2, 2)]


def test_a_grant_for_a_wish_that_was_overtaken_is_not_used() -> None:
    story = Story()
    story.hears(machine("g1"), wish(1, 1), wish(2, 0))

    said = story.hears(granted(1, 1), cleared(1, 1), Wake(service="allocator", due=IMMEDIATELY))

    assert said == []


def test_a_grant_of_an_earlier_nodepool_of_the_same_name_is_passed_over() -> None:
    story = Story()

    said = story.hears(wish(1, 2, "u1"), wish(1, 2, "u2"), granted(1, 2, "u1"))

    assert said == []


def test_nodes_are_assigned_once_grant_and_capacity_are_there() -> None:
    story = Story()
    story.hears(machine("g1"), machine("g2"), wish(1, 1))
    before = story.hears(granted(1, 1))

    said = story.hears(cleared(1, 1))

    assert before == []
    assert said == [
        CWNodeRequestQueued(**OF, count=1, granted=1, message=f"requested 1 Nodes of {H100}"),
        CWNodeAssigned(
            **OF,
            node="g1",
            zone=ZONE,
            uid="u1",
            instance_type=H100,
            assignment=1,
            message="Node g1 is assigned to NodePool train",
        ),
    ]
