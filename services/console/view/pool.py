"""The page of a NodePool: the sentence of `explain`, its evidence, what helps, and its Nodes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from console.view.bar import Part, build_bar
from console.view.model import Happening, Place, Pool
from console.view.nodes import Grid, build_grid, count_words
from console.view.remedies import Remedy, list_remedies
from console.view.standing import Standing, sentence, stand
from console.view.timeline import Timeline, build_timeline
from console.view.times import parse_moment
from console.view.words import Word, word_of_reason
from nodepool.contract.catalog import INSTANCE_TYPES
from nodepool.contract.documents import Document, field, items, labels, text

HELPS_MAX: Final = 3
"""The most remedies that are shown."""
PROOFS_MAX: Final = 6
"""The most positions that prove a cause."""


@dataclass(frozen=True, slots=True)
class Proof:
    """A position of the log that proves a cause, and the object that it is about."""

    position: int
    about: str


@dataclass(frozen=True, slots=True)
class Cause:
    """A cause of `explain`: `details` are sentences."""

    title: str
    message: str
    since: datetime | None
    details: tuple[str, ...]
    helps: tuple[Remedy, ...]
    proofs: tuple[Proof, ...]


@dataclass(frozen=True, slots=True)
class Shown:
    """A condition as a row of a table."""

    type: str
    word: Word
    message: str
    position: int
    since: datetime | None


@dataclass(frozen=True, slots=True)
class PoolPage:
    """What the page of a NodePool shows.

    say: the Nodes that it wants, the Nodes that it has, and the first cause.
    causes: what keeps it from its target, ranked.
    gpus: how many GPUs it has, and wants; None for a type without GPUs.
    active: how many of its Nodes run Pods.
    bar, key: its Nodes by state.
    """

    pool: Pool
    standing: Standing
    say: str
    causes: tuple[Cause, ...]
    gpus: tuple[int, int] | None
    active: int
    bar: tuple[Part, ...]
    key: tuple[tuple[Word, int], ...]
    timeline: Timeline
    grid: Grid
    conditions: tuple[Shown, ...]
    labels: tuple[str, ...]


def build_pool_page(pool: Pool, happenings: Sequence[Happening], by: str) -> PoolPage:
    """Return the page of a NodePool.

    happenings: the events about it. by: how its Nodes are grouped.
    """
    facts, standing = pool.facts, stand(pool)
    entry = INSTANCE_TYPES.get(facts.instance_type)
    each = entry.gpus if entry is not None else 0
    key = count_words(pool.members)
    missing = max(0, facts.target - len(facts.counted_nodes)) if not facts.deleting else 0
    parts = [(_BAR.get(word.look, word.look), count, word.text) for word, count in key]
    look = standing.word.look if standing.word.look in ("act", "wait", "bad") else "go"
    return PoolPage(
        pool=pool,
        standing=standing,
        say=_say(pool, standing),
        causes=tuple(_causes(pool.explanation, pool.place)),
        gpus=(facts.current * each, facts.target * each) if each else None,
        active=sum(node.active for node in facts.nodes),
        bar=build_bar([*parts, (look, missing, "missing")]),
        key=(*key, *(((Word(look, "missing"), missing),) if missing else ())),
        timeline=build_timeline(pool, happenings),
        grid=build_grid(pool.members, by),
        conditions=tuple(_conditions(pool.document)),
        labels=tuple(f"{name}={value}" for name, value in sorted(labels(pool.document).items())),
    )


_BAR: Final = {"ok": "has", "idle": "idl", "off": "idl", "ask": "idl"}
"""The colours of states in a bar, if they differ: a Node that is well has no colour."""


def _say(pool: Pool, standing: Standing) -> str:
    """Return the sentence of `explain`; without an explanation, the message of the condition.

    The page says elsewhere since when the cause lasts, and what helps: this part is left out.
    """
    said = text(pool.explanation, "sentence")
    if said and standing.why and items(pool.explanation, "causes"):
        wants, _, _ = said.partition("; ")
        return f"{sentence(wants)} {standing.why}"
    return said or sentence(standing.why or "being read")


def _causes(explanation: Document | None, pool: Place) -> Iterator[Cause]:
    for each in items(explanation, "causes"):
        yield Cause(
            title=text(each, "title"),
            message=sentence(text(each, "message"), pool.name),
            since=parse_moment(field(each, "since")),
            details=tuple(sentence(str(words), pool.name) for words in items(each, "details")),
            helps=tuple(list_remedies(each, pool))[:HELPS_MAX],
            proofs=tuple(_proofs(each))[:PROOFS_MAX],
        )


def _proofs(cause: object) -> Iterator[Proof]:
    for each in items(cause, "proofs"):
        position = field(each, "logPosition")
        if isinstance(position, int):
            yield Proof(position, text(each, "about"))


def _conditions(document: Document) -> Iterator[Shown]:
    for each in items(document, "status", "conditions"):
        reason, kind = text(each, "reason"), text(each, "type")
        position = field(each, "logPosition")
        word = word_of_reason(reason)
        if kind == "Stalled" and text(each, "status") == "True":
            word = Word("act", reason)
        yield Shown(
            kind,
            word,
            text(each, "message"),
            position if isinstance(position, int) else 0,
            parse_moment(field(each, "lastTransitionTime")),
        )


def find_member_pool(pools: Sequence[Pool], node: Place) -> Pool | None:
    """Return the NodePool that a Node is in; None if no NodePool has it."""
    return next((pool for pool in pools if any(m.place == node for m in pool.members)), None)
