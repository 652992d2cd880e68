from datetime import UTC, datetime

from allocator import Hears, Says
from allocator.decide import SERVICE
from allocator.state import State
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
from nodepool.contract.messages import PoolFields
from nodepool.contract.model import NodePoolSpec
from nodepool.state.work import IMMEDIATELY
from support.single import SingleService

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
ZONE, H100 = "US-EAST-02A", "gd-8xh100ib-i128"
OF: PoolFields = {"org": "acme", "cluster": "prod", "pool": "train"}


def allocator() -> SingleService[State, Hears, Says]:
    """The allocator alone."""
    return SingleService(SERVICE)


def specified(generation: int, target: int, uid: str = "u1") -> NodePoolValidated:
    """A valid NodePool with a target of so many Nodes."""
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


def checked(generation: int, count: int) -> CapacityChecked:
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
    """A new machine, free."""
    return MachineAdded(zone=ZONE, machine=name, instance_type=H100)


def acknowledged(generation: int, count: int) -> GrantAcknowledged:
    """The allocator works to a smaller grant from here on."""
    return GrantAcknowledged(**OF, uid="u1", generation=generation, granted=count)


def test_a_smaller_grant_is_acknowledged_so_that_others_may_have_the_rest() -> None:
    service = allocator()
    service.hears(specified(1, 5), granted(1, 5), specified(2, 2))

    outputs = service.hears(granted(2, 2))

    assert outputs == [acknowledged(2, 2)]
    assert service.hears(granted(2, 2)) == []


def test_a_grant_for_an_older_generation_is_given_back_with_the_next() -> None:
    service = allocator()

    outputs = service.hears(specified(1, 5), specified(2, 2), granted(1, 5), granted(2, 2))

    assert outputs == [acknowledged(2, 2)]


def test_a_grant_for_an_older_generation_is_not_used() -> None:
    service = allocator()
    service.hears(machine("g1"), specified(1, 1), specified(2, 0))

    outputs = service.hears(
        granted(1, 1), checked(1, 1), Wake(service="allocator", due=IMMEDIATELY)
    )

    assert outputs == []


def test_a_grant_of_an_earlier_nodepool_of_the_same_name_is_passed_over() -> None:
    service = allocator()

    outputs = service.hears(specified(1, 2, "u1"), specified(1, 2, "u2"), granted(1, 2, "u1"))

    assert outputs == []


def test_nodes_are_assigned_once_grant_and_capacity_are_there() -> None:
    service = allocator()
    service.hears(machine("g1"), machine("g2"), specified(1, 1))
    before = service.hears(granted(1, 1))

    outputs = service.hears(checked(1, 1))

    assert before == []
    assert outputs == [
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
