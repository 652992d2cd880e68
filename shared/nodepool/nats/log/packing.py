"""Messages as a backup of the server, which restores each at its position and with its time.

The form is that of nats-server 2.15: entries, each with a name, a time, a position and a content,
in frames of S2 (https://github.com/klauspost/compress/tree/master/s2). The frames are not
compressed: what they hold lives for a moment only.
"""

import json
from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from nodepool.contract.log import Entry
from nodepool.nats.log.checksums import crc32c

FRAME_BYTES: Final = 32 << 10
"""Few messages: the server gives up if it needs five seconds for those of a frame. It may sync each
of them to a disk that is slow."""
_MAGIC: Final = b"NATSARC1"
_FRAMES: Final = b"\xff\x06\x00\x00S2sTwO"
_UNCOMPRESSED: Final = b"\x01"
_MASK: Final = 0xA282EAD8
_WORD: Final = 0xFFFFFFFF
_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def state_of(first: int, last: int, bytes: int) -> Mapping[str, object]:
    """Return the state of a stream that has the messages from a position to another."""
    return {
        "messages": last + 1 - first,
        "bytes": bytes,
        "first_seq": first,
        "first_ts": _EPOCH.isoformat(),
        "last_seq": last,
        "last_ts": _EPOCH.isoformat(),
        "consumer_count": 0,
    }


def stored_bytes(entry: Entry) -> int:
    """Return how many bytes the server needs to store a message."""
    headers = len(pack_headers(entry.headers))
    return 34 + len(entry.subject.encode()) + headers + len(entry.content)


async def pack(
    state: Mapping[str, object], batches: AsyncIterable[Iterable[Entry]]
) -> AsyncGenerator[bytes, None]:
    """Yield the backup of a stream with these messages, piece by piece."""
    yield _FRAMES
    waiting = bytearray(_MAGIC + _pack_entry(b"state.json", 0, 0, b"", json.dumps(state).encode()))
    async for entries in batches:
        for entry in entries:
            waiting += _pack_message(entry)
            if len(waiting) >= FRAME_BYTES:
                for frame in _frames(waiting):
                    yield frame
                waiting.clear()
    waiting += _pack_entry(b"", 0, 0, b"", b"")
    for frame in _frames(waiting):
        yield frame


def _pack_message(entry: Entry) -> bytes:
    nanoseconds = (entry.time - _EPOCH) // _MICROSECOND * 1_000
    subject, headers = entry.subject.encode(), pack_headers(entry.headers)
    return _pack_entry(subject, nanoseconds, entry.position, headers, entry.content)


def pack_headers(headers: Mapping[str, str]) -> bytes:
    """Return headers as the bytes of a stored message; none if there are no headers."""
    if not headers:
        return b""
    lines = "".join(f"{name}: {text}\r\n" for name, text in headers.items())
    return f"NATS/1.0\r\n{lines}\r\n".encode()


def _pack_entry(name: bytes, time: int, position: int, headers: bytes, content: bytes) -> bytes:
    numbers = (len(name), time << 1, position, len(headers), len(content))
    return b"".join((*map(_varint, numbers), name, headers, content))


def _varint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _frames(content: bytearray) -> Sequence[bytes]:
    pieces = (bytes(content[at : at + FRAME_BYTES]) for at in range(0, len(content), FRAME_BYTES))
    return [_frame(piece) for piece in pieces]


def _frame(content: bytes) -> bytes:
    crc = crc32c(content)
    masked = ((crc >> 15 | crc << 17) + _MASK) & _WORD
    size = (len(content) + 4).to_bytes(3, "little")
    return _UNCOMPRESSED + size + masked.to_bytes(4, "little") + content
