"""The objects from which pages are computed: NodePools with their Nodes, events and quotas."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

from console.view.words import Look, Word
from nodepool.contract.documents import Document, field, text
from nodepool.explanation.documents import facts
from nodepool.explanation.facts import Facts
from nodepool.explanation.node_facts import NodeFacts


class Place(NamedTuple):
    """A NodePool or a Node: its cluster and its name."""

    cluster: str
    name: str


@dataclass(frozen=True, slots=True)
class Deadline:
    """Something that will happen to a Node, at a moment or before it.

    about, many: what happens to one Node, and to several with the same deadline.
    """

    at: datetime
    look: Look
    about: str
    many: str
    why: str


@dataclass(frozen=True, slots=True)
class Member:
    """A Node with what is known about it.

    pool: the NodePool that it is in. facts: its document as values.
    word: its state. deadlines: what will happen to it and when, soonest first.
    """

    place: Place
    pool: str
    facts: NodeFacts
    word: Word
    deadlines: tuple[Deadline, ...]
    _content: bytes

    @property
    def document(self) -> Document:
        """The Node as `nodepool get` shows it."""
        # The text takes a tenth of the memory of the values in it, and few pages need them.
        found: Document = json.loads(self._content)
        return found


@dataclass(frozen=True, slots=True)
class Pool:
    """A NodePool with its Nodes.

    zone: the zone of its cluster; empty if unknown.
    document: the NodePool as `nodepool get` shows it.
    facts: the same as values, with the facts of its Nodes.
    members: its Nodes, by name.
    explanation: why it lacks Nodes, as the gateway explains it; None while unknown.
    """

    place: Place
    zone: str
    document: Document
    facts: Facts
    members: tuple[Member, ...]
    explanation: Document | None = None

    @property
    def is_at_target(self) -> bool:
        """Return whether the NodePool has the Nodes that it wants, and is not being deleted."""
        check = self.facts.checks.get("AtTarget")
        return check is not None and check.status == "True" and not self.facts.deleting


@dataclass(frozen=True, slots=True)
class Happening:
    """An event of the log about a NodePool or a Node.

    kind, name: the object. actor: the sender of the command that led to it; `-` if no command did.
    """

    cluster: str
    position: int
    time: datetime
    severity: str
    reason: str
    kind: str
    name: str
    message: str
    actor: str = "-"

    @property
    def place(self) -> Place:
        """The object that the event is about."""
        return Place(self.cluster, self.name)


def without_reason(message: str, reason: str) -> str:
    """Return the message of an event without its reason, which pages show separately."""
    return message.removeprefix(f"Reason: {reason}. ")


@dataclass(frozen=True, slots=True)
class Fleet:
    """All objects of an organisation, at one moment.

    zones: the zone of each cluster.
    """

    org: str
    pools: Mapping[Place, Pool]
    zones: Mapping[str, str]
    quotas: Sequence[Document] = ()


def build_pool(
    place: Place,
    zone: str,
    document: Document,
    members: Iterable[Member],
    explanation: Document | None = None,
) -> Pool:
    """Return a NodePool from its document and its Nodes."""
    own = tuple(sorted(members, key=lambda member: member.place))
    known = replace(facts(document, zone=zone), nodes=tuple(member.facts for member in own))
    return Pool(place, zone, document, known, own, explanation)


def name_of(document: Document) -> str:
    """Return the name of an object."""
    return text(document, "metadata", "name")


def spec_of(document: Document, name: str) -> object:
    """Return a field of the spec of an object."""
    return field(document, "spec", name)
