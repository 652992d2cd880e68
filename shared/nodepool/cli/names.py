"""The types of objects, and parsing types and names as a user writes them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from nodepool.client import Bucket


@dataclass(frozen=True, slots=True)
class Kind:
    """A type of object.

    bucket: the bucket of the read model that holds its objects.
    singular: its name in messages.
    full: its name in output, as `full/name`.
    spellings: every way to write it, in lower case.
    """

    bucket: "Bucket"
    singular: str
    full: str
    spellings: frozenset[str]


def _kind(bucket: "Bucket", singular: str, full: str, *others: str) -> Kind:
    return Kind(bucket, singular, full, frozenset((bucket, singular, full, *others)))


NODEPOOL = _kind(
    "nodepools",
    "nodepool",
    "nodepool.compute.coreweave.com",
    "np",
    "nodepools.compute.coreweave.com",
)
NODE = _kind("nodes", "node", "node", "no")
QUOTA = _kind("quotas", "quota", "quota")
CAPACITY = _kind("capacity", "capacity", "capacity", "capacities")
KINDS = (NODEPOOL, NODE, QUOTA, CAPACITY)


def parse_names(words: Sequence[str], allowed: Sequence[Kind] = KINDS) -> tuple[Kind, list[str]]:
    """The type and the names in `TYPE NAME...` or `TYPE/NAME...`.

    There may be no names. Raises a usage error for other words, and for names of several types.
    """
    if not any("/" in word for word in words):
        if not words:
            raise click.UsageError(f"TYPE: is required; use {_listed(allowed)}")
        return _parse_kind(words[0], allowed), _unique(words[1:])
    pairs = [word.partition("/") for word in words]
    for word, (spelling, _, name) in zip(words, pairs, strict=True):
        if not spelling or not name or "/" in name:
            raise click.UsageError(f"NAME: {word!r} is not TYPE/NAME; write every name that way")
    kinds = [_parse_kind(spelling, allowed) for spelling, _, _ in pairs]
    if len(set(kinds)) > 1:
        raise click.UsageError("TYPE: all names must be of one type")
    return kinds[0], _unique(name for _, _, name in pairs)


def parse_required_names(words: Sequence[str], allowed: Sequence[Kind]) -> tuple[Kind, list[str]]:
    """As `parse_names`, with at least one name."""
    kind, names = parse_names(words, allowed)
    if not names:
        raise click.UsageError(f"NAME: is required; write {kind.singular} NAME")
    return kind, names


def _parse_kind(spelling: str, allowed: Sequence[Kind]) -> Kind:
    for kind in allowed:
        if spelling.lower() in kind.spellings:
            return kind
    raise click.UsageError(f"TYPE: {spelling!r} is not supported; use {_listed(allowed)}")


def _listed(kinds: Sequence[Kind]) -> str:
    return " or ".join(kind.bucket for kind in kinds)


def _unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))
