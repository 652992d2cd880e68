"""The types of objects, and parsing types and names as a user writes them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import click

from nodepool.contract.suggest import did_you_mean

if TYPE_CHECKING:
    from nodepool.contract.buckets import Bucket

Scope = Literal["cluster", "organisation", "cell"]
"""The owner of a type's objects: one cluster, one organisation, or the whole control plane."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A type of object.

    plural, singular, short: the names of the type.
    title: the `kind` of the type's objects.
    scope: the owner of the type's objects.
    stored_in: the bucket of the read model that holds the type's objects; None if there is none.
    group: the API group that is written after the name, as in `nodepool.<group>/training`.
    """

    plural: str
    singular: str
    title: str
    short: str
    scope: Scope
    stored_in: "Bucket | None" = None
    group: str = ""

    @property
    def bucket(self) -> "Bucket":
        """The bucket of the read model that holds the objects of the type, if any."""
        assert self.stored_in is not None, f"no bucket holds {self.plural}"
        return self.stored_in

    @property
    def full(self) -> str:
        """The name of the type in output, as `full/name`."""
        return f"{self.singular}.{self.group}" if self.group else self.singular

    @property
    def spellings(self) -> frozenset[str]:
        """All ways to write the name of the type, in lower case."""
        names = {self.plural, self.singular, self.short, self.full}
        return frozenset(names | {f"{self.plural}.{self.group}"} if self.group else names)


NODEPOOL = Kind(
    "nodepools",
    "nodepool",
    "NodePool",
    "np",
    "cluster",
    "nodepools",
    "compute.coreweave.com",
)
NODE = Kind("nodes", "node", "Node", "no", "cluster", "nodes")
QUOTA = Kind("quotas", "quota", "Quota", "qt", "organisation", "quotas")
CAPACITY = Kind("capacities", "capacity", "Capacity", "cap", "cell", "capacity")
CLUSTER = Kind("clusters", "cluster", "Cluster", "cl", "organisation", "clusters")
MACHINE = Kind("machines", "machine", "Machine", "ma", "cell", "machines")
ZONE = Kind("zones", "zone", "Zone", "zo", "cell")
INSTANCE_TYPE = Kind("instancetypes", "instancetype", "InstanceType", "it", "cell")
EVENT = Kind("events", "event", "Event", "ev", "cluster")
PREEMPTION = Kind("preemptions", "preemption", "Preemption", "pr", "cluster")
POD = Kind("pods", "pod", "Pod", "po", "cluster")
KINDS = (
    NODEPOOL,
    NODE,
    QUOTA,
    CAPACITY,
    CLUSTER,
    MACHINE,
    ZONE,
    INSTANCE_TYPE,
    EVENT,
    PREEMPTION,
    POD,
)
ALL = (CLUSTER, NODEPOOL, NODE, QUOTA, CAPACITY)
"""The types that `all` stands for."""
WITH_EVENTS = (NODEPOOL, NODE)
"""The types whose objects have events."""
ELSEWHERE = {
    NODE: "a Node changes with its NodePool; 'nodepool cordon', 'drain', 'reboot' and 'preempt'"
    " act on one",
    QUOTA: "'nodepool set quota' sets one and 'nodepool delete quota' unsets it",
    CAPACITY: "'nodepool fleet add' adds machines",
    MACHINE: "'nodepool machine' acts on a real one, and 'nodepool fleet' on a simulated one",
}
"""What to use instead if a command does not support a type."""


class Selection(NamedTuple):
    """Objects of one type by name; all objects of the type if there are no names."""

    kind: Kind
    names: Sequence[str]


def parse_selections(words: Sequence[str], allowed: Sequence[Kind] = KINDS) -> list[Selection]:
    """Return the objects in `TYPE[,TYPE] NAME...` or `TYPE/NAME...`, by their types.

    There may be no names. Raises a usage error for other words.
    """
    if not words:
        raise click.UsageError(f"TYPE: is required; use {_format_kinds(allowed)}")
    if any("/" in word for word in words):
        return _parse_pairs(words, allowed)
    spellings = [spelling for spelling in words[0].split(",") if spelling]
    kinds = [kind for spelling in spellings for kind in _parse_kinds(spelling, allowed)]
    if not kinds:
        raise click.UsageError(f"TYPE: is required; use {_format_kinds(allowed)}")
    return [Selection(kind, _unique(words[1:])) for kind in dict.fromkeys(kinds)]


def parse_names(words: Sequence[str], allowed: Sequence[Kind] = KINDS) -> tuple[Kind, list[str]]:
    """Return the type and the names in `TYPE NAME...` or `TYPE/NAME...`.

    There may be no names. Raises a usage error for other words, and for names of several types.
    """
    selections = parse_selections(words, allowed)
    if len(selections) > 1:
        raise click.UsageError("TYPE: all names must be of one type")
    return selections[0].kind, list(selections[0].names)


def parse_required_names(words: Sequence[str], allowed: Sequence[Kind]) -> tuple[Kind, list[str]]:
    """Return what `parse_names` returns, with at least one name."""
    kind, names = parse_names(words, allowed)
    if not names:
        raise click.UsageError(f"NAME: is required; write {kind.singular} NAME")
    return kind, names


def _parse_pairs(words: Sequence[str], allowed: Sequence[Kind]) -> list[Selection]:
    names: dict[Kind, list[str]] = {}
    for word in words:
        spelling, _, name = word.partition("/")
        if not spelling or not name or "/" in name:
            raise click.UsageError(f"NAME: {word!r} is not TYPE/NAME; write every name that way")
        names.setdefault(_parse_kind(spelling, allowed), []).append(name)
    return [Selection(kind, _unique(named)) for kind, named in names.items()]


def _parse_kinds(spelling: str, allowed: Sequence[Kind]) -> Sequence[Kind]:
    if spelling.lower() == "all" and set(ALL) <= set(allowed):
        return ALL
    return (_parse_kind(spelling, allowed),)


def _parse_kind(spelling: str, allowed: Sequence[Kind]) -> Kind:
    for kind in allowed:
        if spelling.lower() in kind.spellings:
            return kind
    for kind in KINDS:
        if spelling.lower() in kind.spellings:
            hint = f"; {ELSEWHERE[kind]}" if kind in ELSEWHERE else ""
            raise click.UsageError(
                f"TYPE: {spelling!r} is not supported here; use {_format_kinds(allowed)}{hint}"
            )
    close = did_you_mean(spelling, [kind.plural for kind in allowed])
    hint = close or f"; use {_format_kinds(allowed)}"
    raise click.UsageError(f"TYPE: {spelling!r} is not a type of object{hint}")


def _format_kinds(kinds: Sequence[Kind]) -> str:
    return format_alternatives([f"{kind.plural} ({kind.short})" for kind in kinds])


def format_alternatives(words: Sequence[str]) -> str:
    """Return words as alternatives: `a, b or c`."""
    *others, last = words
    return f"{', '.join(others)} or {last}" if others else last


def _unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))
