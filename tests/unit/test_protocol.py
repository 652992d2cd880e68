"""What a server sends, taken apart: whatever bytes are in it, and however they arrive."""

import asyncio
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats.aio.client import Client
from nats.errors import ProtocolError
from nats.protocol.parser import Parser as ClientParser

from nodepool.nats.wire.protocol import Parser, parse_headers, text

Heard = tuple[object, ...]
BLANKS = b" \t\r\n"


class Recorder:
    """What a parser has passed on, in its order."""

    def __init__(self) -> None:
        self.heard: list[Heard] = []

    async def _process_msg(self, *message: object) -> None:
        self.heard.append(message)

    async def _process_ping(self) -> None:
        self.heard.append(("ping",))

    async def _process_pong(self) -> None:
        self.heard.append(("pong",))

    async def _process_err(self, error: str) -> None:
        self.heard.append(("error", error))

    async def _process_info(self, info: object) -> None:
        self.heard.append(("info", info))


def heard(pieces: Sequence[bytes], kind: type[ClientParser] = Parser) -> list[Heard]:
    """What a parser passes on of the pieces of a stream."""
    recorder = Recorder()
    parser = kind(recorder)

    async def feed() -> None:
        for piece in pieces:
            await parser.parse(piece)

    asyncio.run(feed())
    return recorder.heard


def wire(subject: bytes, reply: bytes, headers: bytes, content: bytes) -> bytes:
    """A message as a server sends it, on subscription 7."""
    words = [b"HMSG" if headers else b"MSG", subject, b"7", *([reply] if reply else [])]
    if headers:
        words.append(b"%d" % len(headers))
    words.append(b"%d" % len(headers + content))
    return b" ".join(words) + b"\r\n" + headers + content + b"\r\n"


def cut(stream: bytes, at: Sequence[int]) -> list[bytes]:
    """The stream in pieces."""
    edges = [0, *sorted(edge % (len(stream) + 1) for edge in at), len(stream)]
    return [stream[first:last] for first, last in pairwise(edges)]


word = st.binary(min_size=1, max_size=30).filter(lambda raw: not set(raw) & set(BLANKS))
blob = st.binary(max_size=60)
message = st.tuples(word, st.one_of(st.just(b""), word), blob, blob)
cuts = st.lists(st.integers(0, 10_000), max_size=8)


@given(st.lists(message, max_size=6), cuts)
def test_messages_of_any_bytes_arrive_whole_in_any_pieces(
    messages: list[tuple[bytes, bytes, bytes, bytes]], at: list[int]
) -> None:
    # given messages of any bytes that a server takes, with pings between
    stream = b"".join(wire(*parts) + b"PING\r\n" for parts in messages)

    # when they arrive in any pieces
    result = heard(cut(stream, at))

    # then each is passed on as it was sent
    expected: list[Heard] = []
    for subject, reply, headers, content in messages:
        expected += [(7, subject, reply, content, headers or None), ("ping",)]
    assert result == expected


def test_operations_are_passed_on_as_the_client_parser_does() -> None:
    # given one of each operation, and messages of plain text
    stream = (
        b"+OK\r\nPING\r\nPONG\r\n-ERR 'Permissions Violation for Publish to \"x\"'\r\n"
        b'INFO {"server_id":"a"}\r\n' + wire(b"a.b", b"r", b"NATS/1.0\r\nA: 1\r\n\r\n", b"1")
    )

    # when both parsers take them apart
    # then they pass on the same
    assert heard([stream]) == heard([stream], ClientParser)


@pytest.mark.parametrize(
    "line",
    [
        b"HELLO",
        b"",
        b"MSG a",
        b"MSG a b 1",
        b"MSG a 1 -1",
        b"MSG a 1 b c 1",
        b"HMSG a 1 9 2",
        b"HMSG a 1 -1 2",
        b"INFO {",
        b"\xff\xfe",
        b"x" * ((1 << 20) + 1),
    ],
)
def test_what_no_server_sends_is_an_error(line: bytes) -> None:
    with pytest.raises(ProtocolError):
        heard([line + b"\r\n" if len(line) < 1 << 20 else line])


def test_an_error_of_the_server_may_quote_any_bytes() -> None:
    assert heard([b"-ERR 'Permissions Violation for \"\xff\"'\r\n"]) == [
        ("error", "'permissions violation for \"\\xff\"'")
    ]


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_different_bytes_are_different_text_unless_they_spell_an_escape(
    first: bytes, second: bytes
) -> None:
    # given two texts of any bytes, without the character that an escape begins with
    first, second = (raw.replace(b"\\", b"") for raw in (first, second))

    # when they become text
    # then different ones stay different, and can be encoded
    assert (text(first) == text(second)) == (first == second)
    text(first).encode()


@given(st.binary(max_size=200))
def test_any_bytes_have_headers_or_none(raw: bytes) -> None:
    for headers in (parse_headers(raw), parse_headers(b"NATS/1.0" + raw)):
        assert headers is None or all(
            name.isascii() and value.encode() is not None for name, value in headers.items()
        )


@given(
    st.dictionaries(st.from_regex(r"[A-Za-z-]{1,9}", fullmatch=True), st.text("ab:é 1", max_size=9))
)
def test_headers_are_read_as_the_client_reads_them(headers: dict[str, str]) -> None:
    # given headers
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    raw = f"NATS/1.0\r\n{lines}\r\n".encode()

    # when both read them
    # then they are the same
    theirs = asyncio.run(Client()._process_headers(raw))
    assert parse_headers(raw) == theirs


def test_a_status_is_that_of_the_server_only_where_no_message_was_stored() -> None:
    assert parse_headers(b"NATS/1.0 404 Message Not Found\r\n\r\n") == {
        "Status": "404",
        "Description": "Message Not Found",
    }
    assert parse_headers(b"NATS/1.0 503\r\n\r\n") == {"Status": "503"}
    assert parse_headers(b"NATS/1.0 404\r\nStatus: 503\r\nNats-Sequence: 7\r\n\r\n") == {
        "Nats-Sequence": "7"
    }
