"""Contents as a hostile sender writes them: valid documents in which something is wrong.

Everything is drawn from a `Random`, so that both a seeded simulation and hypothesis can draw it.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

DEEP = 2_000
"""Deeper than Python's stack allows a function to call itself."""
LONG = 20_000


@dataclass(frozen=True)
class Raw:
    """A value as it stands in the text, be it JSON or not."""

    text: str


@dataclass(frozen=True)
class Pairs:
    """A JSON object; a name may come twice."""

    items: "tuple[tuple[str, Tree], ...]"


@dataclass(frozen=True)
class Items:
    """A JSON list."""

    items: "tuple[Tree, ...]"


Tree = Raw | Pairs | Items

TOKENS = (
    "null",
    "true",
    "0",
    "-1",
    "1.5",
    "-0",
    "1e999",
    "-1e999",
    "1e400",
    "NaN",
    "Infinity",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775809",
    "18446744073709551616",
    "253402300800",
    "1" * 400,
    "1" * 5_000,
    '""',
    '" "',
    '"_"',
    '"fleet"',
    '"a.b"',
    '"*"',
    '">"',
    '"~"',
    '"a/b"',
    r'"\u0000"',
    r'"\ud800"',
    r'"\udfff\ud800"',
    r'"a\r\nb"',
    r'"\u202e\ufeff\uffff"',
    '"9999-12-31T23:59:59.999999Z"',
    '"0001-01-01T00:00:00+14:00"',
    '"2026-01-01T00:00:00"',
    '"2026-13-01T00:00:00Z"',
    '"1e400"',
    '"-5"',
    "[]",
    "{}",
    "[[]]",
    "[null]",
    '{"": ""}',
    '{"a": {"b": {"c": []}}}',
    "[" * DEEP + "]" * DEEP,
    '{"a":' * DEEP + "1" + "}" * DEEP,
    "[" * DEEP,
    '"' + "x" * 300 + '"',
    '"' + "x" * LONG + '"',
    '"' + "\u20ac" * 300 + '"',
    "[" + "{}," * 1_000 + "{}]",
    "[" + "1," * 1_000 + "1]",
    "{" + ",".join(f'"k{number}": "v"' for number in range(300)) + "}",
)
"""Values of a kind, size or depth that a reader may not have thought of."""
BYTES = (b"\xff\xfe", b"\x00", b"\xed\xa0\x80", b"\xc0\xaf", b"\xef\xbb\xbf", b"\r\n", b"{", b'"')
"""Bytes to put into a content: no UTF-8, a surrogate, an overlong slash, a byte order mark."""
NAMES = ("", "org", "cluster", "pool", "zone", "uid", "__class__", "a" * 300, "\ud800", "data")
"""Names for fields that a message may or may not have."""


def tree_of(value: object) -> Tree:
    """A JSON value as a tree that can be changed in ways that JSON itself does not allow."""
    match value:
        case Mapping():
            return Pairs(tuple((str(name), tree_of(item)) for name, item in value.items()))
        case list() | tuple():
            return Items(tuple(map(tree_of, value)))
    return Raw(json.dumps(value))


def printed(tree: Tree) -> str:
    """The text of a tree."""
    match tree:
        case Raw(text):
            return text
        case Items(items):
            return f"[{','.join(map(printed, items))}]"
        case Pairs(items):
            return f"{{{','.join(f'{json.dumps(name)}:{printed(item)}' for name, item in items)}}}"


def mutated(random: Random, document: object) -> bytes:
    """A document with one to three changes anywhere in it; seldom with broken bytes as well."""
    tree = tree_of(document)
    for _ in range(random.randint(1, 3)):
        tree = _changed(random, tree)
    content = printed(tree).encode()
    return garbled(random, content) if random.random() < 0.1 else content


def garbled(random: Random, content: bytes) -> bytes:
    """The content cut short, or with bytes in it that do not belong there."""
    at = random.randint(0, len(content))
    if random.random() < 0.5:
        return content[:at]
    return content[:at] + random.choice(BYTES) + content[at:]


def some_value(random: Random) -> Tree:
    """Any value that a reader may not expect."""
    return Raw(random.choice(TOKENS))


def _changed(random: Random, tree: Tree) -> Tree:
    """The tree with one change, at its top or anywhere below."""
    children = tree.items if isinstance(tree, Pairs | Items) else ()
    if not children or random.random() < 0.15:
        return some_value(random)
    at = random.randrange(len(children))
    if isinstance(tree, Items):
        return Items(_replaced(tree.items, at, _changed(random, tree.items[at])))
    assert isinstance(tree, Pairs)
    name, item = tree.items[at]
    if isinstance(item, Pairs | Items) and random.random() < 0.7:
        return Pairs(_replaced(tree.items, at, (name, _changed(random, item))))
    return Pairs(random.choice(_CHANGES)(random, tree.items, at))


Fields = tuple[tuple[str, Tree], ...]


def _other_value(random: Random, fields: Fields, at: int) -> Fields:
    return _replaced(fields, at, (fields[at][0], some_value(random)))


def _left_out(_random: Random, fields: Fields, at: int) -> Fields:
    return fields[:at] + fields[at + 1 :]


def _twice(random: Random, fields: Fields, at: int) -> Fields:
    again = random.choice((fields[at][1], some_value(random)))
    return (*fields, (fields[at][0], again))


def _exchanged(random: Random, fields: Fields, at: int) -> Fields:
    other = random.randrange(len(fields))
    swapped = _replaced(fields, at, (fields[at][0], fields[other][1]))
    return _replaced(swapped, other, (fields[other][0], fields[at][1]))


def _renamed(random: Random, fields: Fields, at: int) -> Fields:
    name = fields[at][0]
    names = (name.upper(), f"{name} ", f"{name}.{name}", *NAMES)
    return _replaced(fields, at, (random.choice(names), fields[at][1]))


def _inserted(random: Random, fields: Fields, _at: int) -> Fields:
    return (*fields, (random.choice(NAMES), some_value(random)))


_CHANGES: Sequence[Callable[[Random, Fields, int], Fields]] = (
    _other_value,
    _other_value,
    _other_value,
    _left_out,
    _twice,
    _exchanged,
    _renamed,
    _inserted,
)


def _replaced(items: tuple, at: int, item: object) -> tuple:  # type: ignore[type-arg]
    return (*items[:at], item, *items[at + 1 :])
