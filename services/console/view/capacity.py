"""The Capacity Finder: the requested Nodes, and the zones that likely have them, best first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from console.view.words import Look, Word
from nodepool.contract.availability import SELECTIONS_MAX
from nodepool.contract.catalog import INSTANCE_TYPES
from nodepool.contract.documents import field, items, text
from nodepool.contract.model import NODES_MAX

USUAL_TYPE: Final = "gd-8xa100-i128"
USUAL_COUNT: Final = 2
_LOOKS: Final[Mapping[str, Look]] = {
    "Likely available": "ok",
    "Possibly available": "go",
    "Limited availability": "wait",
}


@dataclass(frozen=True, slots=True)
class Selection:
    """How many Nodes of which type, as typed; `fault` says what is wrong with the number."""

    instance_type: str
    count: str
    fault: str = ""

    @property
    def number(self) -> int:
        """The number of Nodes; 0 if the text is no number."""
        return int(self.count) if self.count.isascii() and self.count.isdecimal() else 0


@dataclass(frozen=True, slots=True)
class Zone:
    """A zone: its worst word, the word of each selection, and the organisation's clusters there."""

    name: str
    word: Word
    words: tuple[Word, ...]
    clusters: tuple[str, ...]
    has_cluster: bool

    @property
    def is_possible(self) -> bool:
        """Return whether the zone may have everything."""
        return self.word.look != "no"


@dataclass(frozen=True, slots=True)
class Found:
    """The zones that may have the requested Nodes or have a cluster, and the other zones."""

    zones: tuple[Zone, ...]
    others: tuple[Zone, ...]


def read_selections(types: Sequence[str], counts: Sequence[str]) -> tuple[Selection, ...]:
    """Return what a form asks for; each type once."""
    found: dict[str, Selection] = {}
    for instance_type, count in zip(types, counts, strict=False):
        if instance_type in INSTANCE_TYPES and len(found) < SELECTIONS_MAX:
            number = count.strip()[:9]
            selection = Selection(instance_type, number)
            is_right = 1 <= selection.number <= NODES_MAX
            fault = "" if is_right else f"Give a number from 1 to {NODES_MAX:,}, for example 4."
            found[instance_type] = Selection(instance_type, number, fault)
    return tuple(found.values())


def ask_without(rows: Sequence[Selection], left_out: Selection) -> Mapping[str, Sequence[str]]:
    """Return the query for all rows of a form but one."""
    kept = [each for each in rows if each is not left_out]
    return {"type": [each.instance_type for each in kept], "count": [each.count for each in kept]}


def read_found(answer: object, zones: Mapping[str, str]) -> Found:
    """Return the answer of the finder.

    zones: the zone of each cluster of the organisation.
    """
    found = [_zone(each, zones) for each in items(answer, "zones")]
    near = [each for each in found if each.is_possible or each.clusters]
    return Found(tuple(near), tuple(each for each in found if each not in near))


def _zone(document: object, zones: Mapping[str, str]) -> Zone:
    name = text(document, "zone")
    clusters = tuple(sorted(cluster for cluster, zone in zones.items() if zone == name))
    return Zone(
        name,
        _word(text(document, "availability")),
        tuple(_word(str(tag)) for tag in items(document, "tags")),
        clusters,
        field(document, "hasCluster") is True,
    )


def _word(availability: str) -> Word:
    return Word(_LOOKS.get(availability, "no"), availability)
