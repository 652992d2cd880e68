"""The types of objects, and parsing types and names as a user writes them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from nodepool.cli.hints import similar

if TYPE_CHECKING:
    from nodepool.client import Bucket


@dataclass(frozen=True, slots=True)
class Kind:
    """A type of object.

    bucket: the bucket of the read model that holds its objects.
    singular: its name in messages.
    full: its name in output, as `full/name`.
    title: its `kind` in an object.
    short: how it may be abbreviated; empty where it may not.
    spellings: every way to write it, in lower case.
    """

    bucket: "Bucket"
    singular: str
    full: str
    title: str
    short: str
    spellings: frozenset[str]


def _kind(bucket: "Bucket", singular: str, title: str, short: str, *others: str) -> Kind:
    """A type; the last of its other spellings, if any, is its name in output."""
    full = others[-1] if others else singular
    spellings = frozenset(filter(None, (bucket, singular, short, *others)))
    return Kind(bucket, singular, full, title, short, spellings)


NODEPOOL = _kind(
    "nodepools",
    "nodepool",
    "NodePool",
    "np",
    "nodepools.compute.coreweave.com",
    "nodepool.compute.coreweave.com",
)
NODE = _kind("nodes", "node", "Node", "no")
QUOTA = _kind("quotas", "quota", "Quota", "")
CAPACITY = _kind("capacity", "capacity", "Capacity", "", "capacities", "capacity")
KINDS = (NODEPOOL, NODE, QUOTA, CAPACITY)
ELSEWHERE = {
    NODE: "a Node changes with its NodePool, and 'nodepool preempt' takes back a spot Node",
    QUOTA: "'nodepool set quota' sets one and 'nodepool delete quota' unsets it",
    CAPACITY: "'nodepool fleet add' adds machines",
}
"""What to use instead, where a command does not support a type."""


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
    hint = _instead(spelling, allowed)
    listed = f"use {_listed(allowed)}{'; ' if hint else ''}{hint}"
    raise click.UsageError(f"TYPE: {spelling!r} is not supported; {listed}")


def _instead(spelling: str, allowed: Sequence[Kind]) -> str:
    """What may be meant by a type that is not supported; empty where that is unknown."""
    for kind in KINDS:
        if spelling.lower() in kind.spellings:
            return ELSEWHERE.get(kind, "")
    names = [name for kind in allowed for name in (kind.bucket, kind.singular)]
    return similar(spelling, names, cutoff=0.75)


def _listed(kinds: Sequence[Kind]) -> str:
    return " or ".join(kind.bucket for kind in kinds)


def _unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))
