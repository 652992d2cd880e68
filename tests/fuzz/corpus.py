"""Right messages to begin with: each recorded form of each message, with its subject."""

import json
from pathlib import Path
from random import Random

from hypothesis import strategies as st

from support.hostile.contents import garbled, mutated

GOLDEN = Path(__file__).parents[1] / "unit" / "golden.jsonl"
RIGHT: list[tuple[str, dict[str, object]]] = [
    (line["subject"], line["content"])
    for line in map(json.loads, GOLDEN.read_text(encoding="utf-8").splitlines())
]
"""The subject and the content of each recorded message."""
HEADERS = ("Nats-Msg-Id", "ce-id", "CE-ID", "traceparent", "ce-source", "Content-Type", "")
HEADER_VALUES = ("", " ", "c1", "x" * 300, "\ud800", "\x00", "\u00e9", "a\r\nb: c", "0")

randoms = st.randoms(use_true_random=False)
"""What the generators of `support.hostile` draw from."""


def content(random: Random) -> bytes:
    """The content of some message with something wrong in it."""
    _, document = random.choice(RIGHT)
    return content_like(random, document)


def content_like(random: Random, document: dict[str, object]) -> bytes:
    """A content like this one with something wrong in it; a command's may lack the envelope."""
    chance = random.random()
    if chance < 0.05:
        return garbled(random, json.dumps(document).encode())
    if chance < 0.3:
        return mutated(random, document["data"])
    return mutated(random, document)


def headers(random: Random) -> dict[str, str]:
    """Headers, most of which mean something."""
    count = random.choice((0, 0, 1, 2))
    return {random.choice(HEADERS): random.choice(HEADER_VALUES) for _ in range(count)}
