"""How a user names things: a type in any of its spellings, and names after it or behind a slash."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from nodepool.client import Bucket


@dataclass(frozen=True, slots=True)
class Kind:
    """A type of object: `full` is how outputs name one, `spellings` how users may."""

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


def kind_of(spelling: str, allowed: Sequence[Kind] = KINDS) -> Kind:
    """The type that a user means; raises a usage error that lists those allowed."""
    for kind in allowed:
        if spelling.lower() in kind.spellings:
            return kind
    known = " or ".join(kind.bucket for kind in allowed)
    raise click.UsageError(f"TYPE: {spelling!r} is not known here; write {known}")


def named(words: Sequence[str], allowed: Sequence[Kind] = KINDS) -> tuple[Kind, list[str]]:
    """The type and the names in `TYPE NAME…` or `TYPE/NAME…`; all names are of one type."""
    if not any("/" in word for word in words):
        if not words:
            known = " or ".join(kind.bucket for kind in allowed)
            raise click.UsageError(f"TYPE: is missing; write {known}")
        return kind_of(words[0], allowed), _unique(words[1:])
    pairs = [word.partition("/") for word in words]
    for word, (spelling, _, name) in zip(words, pairs, strict=True):
        if not spelling or not name or "/" in name:
            raise click.UsageError(f"NAME: {word!r} stands beside TYPE/NAME; write each so")
    kinds = [kind_of(spelling, allowed) for spelling, _, _ in pairs]
    if len(set(kinds)) > 1:
        raise click.UsageError("TYPE: differs between the names; ask for one type at a time")
    return kinds[0], _unique(name for _, _, name in pairs)


def required(words: Sequence[str], allowed: Sequence[Kind]) -> tuple[Kind, list[str]]:
    """As `named`, and at least one name must be there."""
    kind, names = named(words, allowed)
    if not names:
        raise click.UsageError(f"NAME: is missing; write {kind.singular} NAME")
    return kind, names


def _unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))
