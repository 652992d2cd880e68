"""The Capacity Finder: what is asked for, and how likely each zone has it.

It is that of https://docs.coreweave.com/platform/capacity-plans/capacity-finder.
"""

from typing import Annotated

from pydantic import AfterValidator, Field

from nodepool.contract.model import NODES_MAX, Value
from nodepool.contract.words import Word

SELECTIONS_MAX = 16
"""The most instance types that one query asks for."""


class Availability(Word):
    """How likely a zone has what is asked for, best first."""

    LIKELY = "Likely available"
    POSSIBLE = "Possibly available"
    LIMITED = "Limited availability"
    NOT_AVAILABLE = "Not available"
    SKU_UNAVAILABLE = "SKU unavailable"

    @property
    def rank(self) -> int:
        """Its place in the order, from 0, the best, to 4, the worst."""
        return _ORDER.index(self)


_ORDER = tuple(Availability)


class CapacitySelection(Value):
    """So many Nodes of one instance type.

    instance_type: the type.
    count: how many Nodes.
    """

    instance_type: Annotated[str, Field(min_length=1, max_length=63)]
    count: Annotated[int, Field(ge=1, le=NODES_MAX)]


class ZoneAvailability(Value):
    """How likely a zone has everything that is asked for.

    zone: its name.
    availability: the worst of `tags`.
    has_cluster: whether the organisation has a cluster there; without one it has to make one first.
    tags: how likely the zone has each selection, in the order of the selections.
    """

    zone: str
    availability: Availability
    has_cluster: bool
    tags: tuple[Availability, ...]


def _check_selection_count(
    selections: tuple[CapacitySelection, ...],
) -> tuple[CapacitySelection, ...]:
    if not 1 <= len(selections) <= SELECTIONS_MAX:
        raise ValueError(f"must have from 1 to {SELECTIONS_MAX} items, not {len(selections)}")
    return selections


CapacitySelections = Annotated[
    tuple[CapacitySelection, ...],
    AfterValidator(_check_selection_count),
    Field(json_schema_extra={"minItems": 1, "maxItems": SELECTIONS_MAX}),
]
"""What a query asks for; each instance type may be there once."""
