"""The Capacity Finder: the tag of a zone, the order of zones, and what is refused."""

import json
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capacity import Hears, Says
from capacity.decide import SERVICE
from capacity.finder import order, tag
from capacity.state import State
from nodepool.contract.availability import (
    SELECTIONS_MAX,
    Availability,
    CapacitySelection,
    ZoneAvailability,
)
from nodepool.contract.catalog import INSTANCE_TYPES, ZONES, Access
from nodepool.contract.commands import FindCapacity
from nodepool.contract.conditions import Quota, Validated
from nodepool.contract.decode import Unreadable, decode
from nodepool.contract.events import (
    CapacityFound,
    ClusterRegistered,
    CommandAccepted,
    CommandRefused,
    CWNodeAssigned,
    CWNodeRegistrationFailed,
    MachineAdded,
    MachineRepaired,
    NodePoolValidated,
    QuotaChecked,
)
from nodepool.contract.keys import pool_key
from nodepool.contract.messages import pool_fields
from nodepool.contract.model import NODES_MAX, NodePoolSpec
from nodepool.engine.snapshot import dump, load
from support.single import NOON, SingleService

EAST, WEST = "US-EAST-04A", "US-WEST-04A"
H100, H200, CPU = "gd-8xh100ib-i128", "gd-8xh200ib-i128", "turin-gp"
LIKELY, POSSIBLE, LIMITED, NOT_AVAILABLE, SKU_UNAVAILABLE = Availability
TRAIN = pool_key("acme", "prod", "train")
GENERAL = [name for name, zone in ZONES.items() if zone.access is Access.GENERAL]


class Story(SingleService[State, Hears, Says]):
    """The capacity service alone, with machines named m1, m2 and so on in each zone."""

    def __init__(self) -> None:
        super().__init__(SERVICE)

    def add_machines(self, count: int, instance_type: str = H100, zone: str = EAST) -> None:
        """So many machines are added to a zone."""
        first = len(self.state.inventory.machines) + 1
        for number in range(first, first + count):
            self.process(MachineAdded(zone=zone, machine=f"m{number}", instance_type=instance_type))

    def want(self, target: int) -> None:
        """The NodePool `acme/prod/train` wants so many Nodes in the east, as its quota allows."""
        self.process(
            NodePoolValidated(
                **pool_fields(TRAIN),
                uid="u",
                generation=1,
                zone=EAST,
                version=1,
                created=NOON,
                spec=NodePoolSpec(instance_type=H100, target_nodes=target),
                reason=Validated.VALID,
                message="",
            )
        )
        self.process(
            QuotaChecked(
                **pool_fields(TRAIN),
                uid="u",
                generation=1,
                reason=Quota.UNDER,
                granted=target,
                zone=EAST,
                instance_type=H100,
                used=target,
                message="",
            )
        )

    def assign(self, number: int) -> None:
        """The NodePool gets a machine."""
        self.process(
            CWNodeAssigned(
                **pool_fields(TRAIN),
                uid="u",
                node=f"m{number}",
                zone=EAST,
                instance_type=H100,
                assignment=number,
                message="",
            )
        )

    def fail(self, number: int) -> None:
        """A machine of the NodePool goes to triage."""
        self.process(
            CWNodeRegistrationFailed(
                **pool_fields(TRAIN),
                uid="u",
                node=f"m{number}",
                zone=EAST,
                assignment=number,
                message="",
            )
        )

    def find(self, *selections: tuple[str, int], org: str = "acme") -> CapacityFound:
        """What a query is answered with."""
        found, outcome = self.process(query(*selections, org=org))
        assert isinstance(found, CapacityFound)
        assert outcome == CommandAccepted(
            org=org, cluster="_", pool="_", command="FindCapacity", result="done"
        )
        return found

    def tag_of(self, count: int, zone: str = EAST) -> Availability:
        """The tag of a zone for so many Nodes of one type."""
        zones = {each.zone: each for each in self.find((H100, count)).zones}
        return zones[zone].availability


def query(*selections: tuple[str, int], org: str = "acme") -> FindCapacity:
    """A query of an organisation."""
    items = tuple(CapacitySelection(instance_type=name, count=n) for name, n in selections)
    return FindCapacity(org=org, selections=items)


# The tag of a zone.


@pytest.mark.parametrize(
    ("count", "free", "demand", "healthy", "expected"),
    [
        (4, 4, 0, 4, LIKELY),
        (4, 6, 2, 9, LIKELY),
        (4, 6, 3, 9, POSSIBLE),
        (4, 4, 900, 4, POSSIBLE),
        (5, 4, 0, 5, LIMITED),
        (5, 1, 9, 5, LIMITED),
        (5, 4, 0, 4, NOT_AVAILABLE),
        (1, 0, 0, 9, NOT_AVAILABLE),
        (1, 0, 0, 0, NOT_AVAILABLE),
    ],
)
def test_a_tag_follows_from_free_machines_those_who_wait_and_all_in_service(
    count: int, free: int, demand: int, healthy: int, expected: Availability
) -> None:
    assert tag(count, free=free, demand=demand, healthy=healthy) is expected


numbers = st.integers(0, 20)


@given(st.integers(1, 20), numbers, numbers, numbers, st.integers(0, 5))
def test_more_nodes_or_more_demand_never_have_a_better_tag_and_more_machines_no_worse_one(
    count: int, free: int, demand: int, others: int, more: int
) -> None:
    healthy = free + others
    now = tag(count, free=free, demand=demand, healthy=healthy)

    larger = tag(count + more, free=free, demand=demand, healthy=healthy)
    wanted = tag(count, free=free, demand=demand + more, healthy=healthy)
    freed = tag(count, free=free + more, demand=demand, healthy=healthy + more)
    added = tag(count, free=free, demand=demand, healthy=healthy + more)

    assert min(larger.rank, wanted.rank) >= now.rank
    assert max(freed.rank, added.rank) <= now.rank


def test_free_machines_are_likely_available_up_to_their_number() -> None:
    story = Story()
    story.add_machines(3)

    assert [story.tag_of(count) for count in (1, 3, 4)] == [LIKELY, LIKELY, NOT_AVAILABLE]


def test_machines_that_another_nodepool_waits_for_are_possibly_available() -> None:
    # given three free machines, of which a NodePool wants two
    story = Story()
    story.add_machines(3)
    story.want(2)

    assert [story.tag_of(count) for count in (1, 2, 3)] == [LIKELY, POSSIBLE, POSSIBLE]


def test_machines_that_are_held_limit_what_is_available() -> None:
    # given three machines, of which a NodePool holds two
    story = Story()
    story.add_machines(3)
    story.want(2)
    story.assign(1)
    story.assign(2)

    tags = [story.tag_of(count) for count in (1, 2, 3, 4)]
    story.want(3)
    story.assign(3)

    # then those are in service, and none is available once all are held
    assert tags == [LIKELY, LIMITED, LIMITED, NOT_AVAILABLE]
    assert story.tag_of(1) is NOT_AVAILABLE


def test_a_machine_in_triage_does_not_count_until_it_is_repaired() -> None:
    # given two machines, of which one has failed
    story = Story()
    story.add_machines(2)
    story.want(1)
    story.assign(1)
    story.fail(1)
    story.want(0)
    broken = [story.tag_of(count) for count in (1, 2)]

    # when it is repaired, twice, and added again
    story.process(MachineRepaired(zone=EAST, machine="m1"))
    story.process(MachineRepaired(zone=EAST, machine="m1"))
    story.process(MachineAdded(zone=EAST, machine="m1", instance_type=H100))

    # then it counts once, among the free ones and among those in service
    repaired = [story.tag_of(count) for count in (1, 2, 3)]
    story.want(1)
    story.assign(2)
    assert broken == [LIKELY, NOT_AVAILABLE]
    assert repaired == [LIKELY, LIKELY, NOT_AVAILABLE]
    assert [story.tag_of(count) for count in (1, 2, 3)] == [LIKELY, LIMITED, NOT_AVAILABLE]


def test_a_zone_that_does_not_offer_the_type_has_no_such_sku() -> None:
    found = Story().find((H100, 1))

    assert {each.zone: each.availability for each in found.zones} == {
        zone: NOT_AVAILABLE if zone in INSTANCE_TYPES[H100].zones else SKU_UNAVAILABLE
        for zone in GENERAL
    }


# The order of zones.


def test_every_general_access_zone_is_there_once_and_no_other() -> None:
    # given machines in a zone that is not open to every customer
    story = Story()
    story.add_machines(4, H100, "US-WEST-02B")

    found = story.find((H100, 1))

    assert sorted(each.zone for each in found.zones) == sorted(GENERAL)
    assert {each.availability for each in found.zones} == {NOT_AVAILABLE, SKU_UNAVAILABLE}


def test_zones_are_ordered_by_tag_then_by_cluster_then_by_name() -> None:
    # given machines in three zones, and clusters of two organisations
    story = Story()
    story.add_machines(2, H100, "US-EAST-06A")
    story.add_machines(2, H100, WEST)
    story.add_machines(2, H100, EAST)
    for org, cluster, zone in (
        ("acme", "one", WEST),
        ("acme", "two", WEST),
        ("acme", "three", "US-EAST-01A"),
        ("other", "one", "US-EAST-06A"),
    ):
        story.process(ClusterRegistered(org=org, cluster=cluster, zone=zone))

    found = story.find((H100, 2))

    # then the best come first, and of these the ones with a cluster of the organisation
    assert [(each.zone, each.availability, each.has_cluster) for each in found.zones[:6]] == [
        (WEST, LIKELY, True),
        (EAST, LIKELY, False),
        ("US-EAST-06A", LIKELY, False),
        ("US-EAST-01A", NOT_AVAILABLE, True),
        ("RNO2A", NOT_AVAILABLE, False),
        ("US-CENTRAL-06A", NOT_AVAILABLE, False),
    ]
    others = {each.zone for each in story.find((H100, 2), org="other").zones if each.has_cluster}
    assert others == {"US-EAST-06A"}


def test_several_selections_are_ordered_by_the_worst_then_by_the_others() -> None:
    # given a zone with both types, one with one of them, and one with the other in part
    story = Story()
    story.add_machines(2, H100, EAST)
    story.add_machines(2, H200, EAST)
    story.add_machines(2, H100, "US-EAST-01A")
    story.add_machines(2, H200, WEST)

    found = story.find((H100, 2), (H200, 2))

    assert found.selections == query((H100, 2), (H200, 2)).selections
    assert [(each.zone, each.availability, each.tags) for each in found.zones[:5]] == [
        (EAST, LIKELY, (LIKELY, LIKELY)),
        ("US-EAST-01A", NOT_AVAILABLE, (LIKELY, NOT_AVAILABLE)),
        (WEST, NOT_AVAILABLE, (NOT_AVAILABLE, LIKELY)),
        ("US-EAST-02A", NOT_AVAILABLE, (NOT_AVAILABLE, NOT_AVAILABLE)),
        ("EU-SOUTH-03B", SKU_UNAVAILABLE, (SKU_UNAVAILABLE, NOT_AVAILABLE)),
    ]


tags = st.lists(st.sampled_from(list(Availability)), min_size=2, max_size=2).map(tuple)


@given(st.dictionaries(st.sampled_from(GENERAL), st.tuples(tags, st.booleans())), st.randoms())
def test_the_order_is_total_and_does_not_depend_on_the_order_before(
    drawn: dict[str, tuple[tuple[Availability, ...], bool]], random: Random
) -> None:
    zones = [
        ZoneAvailability(
            zone=name,
            availability=max(tags, key=lambda each: each.rank),
            has_cluster=has_cluster,
            tags=tags,
        )
        for name, (tags, has_cluster) in drawn.items()
    ]
    shuffled = random.sample(zones, len(zones))

    ranked = sorted(shuffled, key=order)

    assert ranked == sorted(zones, key=order)
    ranks = [each.availability.rank for each in ranked]
    assert ranks == sorted(ranks)


# Queries.


def test_a_query_changes_nothing() -> None:
    story = Story()
    story.add_machines(2)
    before = story.state

    story.find((H100, 2))

    assert story.state is before


def test_a_query_that_is_delivered_twice_is_answered_once() -> None:
    story = Story()
    first = story.process(query((H100, 1)), id="q")
    story.add_machines(1)

    second = story.process(query((H100, 1)), id="q")

    assert [type(each) for each in first] == [CapacityFound, CommandAccepted]
    assert second == first[1:]


def test_clusters_and_machines_in_service_survive_a_snapshot() -> None:
    story = Story()
    story.add_machines(2)
    story.process(ClusterRegistered(org="acme", cluster="prod", zone=EAST))

    assert load(State, dump(story.folded)) == story.folded


# What is refused.


@pytest.mark.parametrize(
    ("asked", "field", "message"),
    [
        (
            query((H100, 1), ("gd-8xh200", 1)),
            "selections[1].instanceType",
            "gd-8xh200 is not a known instance type; did you mean gd-8xh200ib-i128?",
        ),
        (query(("x", 1)), "selections[0].instanceType", "x is not a known instance type"),
        (
            query(("gd-1xgh200", 1)),
            "selections[0].instanceType",
            "gd-1xgh200 is a Superchip instance type, which is not offered as spot",
        ),
        (
            query(("gb200-4x", 18)),
            "selections[0].instanceType",
            "gb200-4x is a Superchip instance type, which is not offered as spot",
        ),
        (
            query((H100, 1), (CPU, 1), (H100, 2)),
            "selections[2].instanceType",
            f"{H100} is selected twice; select each type once, with the sum of Nodes",
        ),
        (
            query((H100, 1), org="fleet"),
            "org",
            "fleet is a reserved word, not an organisation",
        ),
    ],
)
def test_a_query_without_an_answer_is_refused_with_the_field(
    asked: FindCapacity, field: str, message: str
) -> None:
    assert Story().process(asked) == [
        CommandRefused(
            org=asked.org,
            cluster="_",
            pool="_",
            command="FindCapacity",
            reason="Invalid",
            field=field,
            message=message,
        )
    ]


def test_a_query_of_what_is_no_organisation_is_refused() -> None:
    (refusal,) = Story().process(query((H100, 1), org="_"))

    assert isinstance(refusal, CommandRefused)
    assert (refusal.field, refusal.reason) == ("org", "Invalid")


ONE = {"instanceType": H100, "count": 1}
MANY = [{"instanceType": f"t{number}", "count": 1} for number in range(SELECTIONS_MAX + 1)]


@pytest.mark.parametrize(
    ("data", "field", "cause"),
    [
        ({}, "selections", "is required"),
        ({"selections": []}, "selections", "must have from 1 to 16 items, not 0"),
        ({"selections": MANY}, "selections", "must have from 1 to 16 items, not 17"),
        ({"selections": [{"instanceType": H100}]}, "selections[0].count", "is required"),
        ({"selections": [{"count": 1}]}, "selections[0].instanceType", "is required"),
        (
            {"selections": [ONE | {"count": 0}]},
            "selections[0].count",
            "input should be greater than or equal to 1",
        ),
        (
            {"selections": [ONE | {"count": -1}]},
            "selections[0].count",
            "input should be greater than or equal to 1",
        ),
        (
            {"selections": [ONE, ONE | {"count": NODES_MAX + 1}]},
            "selections[1].count",
            "input should be less than or equal to 1000000",
        ),
        (
            {"selections": [ONE | {"count": "1"}]},
            "selections[0].count",
            "input should be a valid integer",
        ),
        (
            {"selections": [ONE | {"count": 1.5}]},
            "selections[0].count",
            "input should be a valid integer",
        ),
        (
            {"selections": [ONE | {"instanceType": ""}]},
            "selections[0].instanceType",
            "string should have at least 1 character",
        ),
        (
            {"selections": [ONE | {"counts": 1}]},
            "selections[0].counts",
            "is not a known field; did you mean count?",
        ),
        (
            {"selections": [ONE], "zone": EAST},
            "zone",
            "is not a known field",
        ),
        ({"selections": [None]}, "selections[0]", "input should be an object"),
        ({"selections": ONE}, "selections", "input should be a valid array"),
        ({"selections": [ONE], "org": "other"}, "org", "differs from the subject it was sent on"),
    ],
)
def test_content_that_is_no_query_is_refused_with_the_field(
    data: object, field: str, cause: str
) -> None:
    content = json.dumps(data).encode()

    read = decode(FindCapacity, "np.cmd.acme._._.FindCapacity", content, {}, 1)

    assert isinstance(read, Unreadable)
    assert (read.field, read.cause) == (field, cause)
