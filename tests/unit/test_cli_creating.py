"""The cluster in which `find capacity --create` creates a NodePool."""

from collections.abc import Mapping

import pytest

from nodepool.cli.creating import best_place
from nodepool.cli.errors import CliError
from nodepool.contract.availability import Availability, CapacitySelection, ZoneAvailability
from nodepool.contract.events import CapacityFound

H100 = "gd-8xh100ib-i128"


def found(*tags: Availability) -> CapacityFound:
    """The zones A, B and so on with these tags."""
    zones = (
        ZoneAvailability(zone=zone, availability=tag, has_cluster=False, tags=(tag,))
        for zone, tag in zip("ABCDE", tags, strict=False)
    )
    selection = CapacitySelection(instance_type=H100, count=4)
    return CapacityFound(org="acme", selections=(selection,), zones=tuple(zones))


ALL = found(*Availability)


@pytest.mark.parametrize(
    ("clusters", "zone", "cluster"),
    [
        ({"a": "A", "b": "B"}, "A", "a"),
        ({"b": "B", "c": "C"}, "B", "b"),
        ({"c": "C", "d": "D", "demo": "E"}, "C", "c"),
        ({"a": "A", "demo": "A", "z": "A"}, "A", "demo"),
        ({"a": "A", "demo": "B"}, "A", "a"),
    ],
)
def test_the_best_zone_with_a_cluster_is_chosen(
    clusters: Mapping[str, str], zone: str, cluster: str
) -> None:
    chosen, name = best_place(ALL, clusters, "demo", "register one in {}".format)

    assert (chosen.zone, name) == (zone, cluster)


@pytest.mark.parametrize(
    ("zones", "clusters", "problem"),
    [
        (
            found(Availability.NOT_AVAILABLE, Availability.SKU_UNAVAILABLE),
            {"demo": "A"},
            f"no zone has 4 x {H100} now; ask again later, or for fewer Nodes",
        ),
        (
            ALL,
            {"demo": "D", "e": "E"},
            f"acme has no cluster in a zone that may have 4 x {H100}; register one in A",
        ),
        (
            ALL,
            {"b": "A", "a": "A", "demo": "B"},
            "A has several clusters; choose one with --cluster: a, b",
        ),
    ],
)
def test_without_one_place_it_is_an_error(
    zones: CapacityFound, clusters: Mapping[str, str], problem: str
) -> None:
    with pytest.raises(CliError) as error:
        best_place(zones, clusters, "demo", "register one in {}".format)

    assert str(error.value) == problem
