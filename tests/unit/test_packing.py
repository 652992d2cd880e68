"""Messages as a backup of the server: checksums, headers, and frames."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from datetime import UTC, datetime

from hypothesis import example, given
from hypothesis import strategies as st

from nodepool.contract.log import Entry
from nodepool.nats.log.checksums import crc32c
from nodepool.nats.log.packing import FRAME_BYTES, pack, pack_headers, state_of
from nodepool.nats.wire.protocol import parse_headers

NAMES = st.from_regex("[A-Za-z][A-Za-z0-9-]{0,20}", fullmatch=True)
TEXTS = st.text(st.characters(exclude_characters="\r\n", codec="utf-8")).map(
    lambda text: text.strip(" \t")
)


def byte_for_byte(content: bytes) -> int:
    """The CRC-32C of a content, by its definition."""
    crc = 0xFFFFFFFF
    for byte in content:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


@given(st.binary(max_size=700))
@example(b"123456789")
def test_the_checksum_of_any_content_is_that_of_its_definition(content: bytes) -> None:
    assert crc32c(content) == byte_for_byte(content)


def test_the_checksum_is_that_of_the_standard() -> None:
    assert crc32c(b"123456789") == 0xE3069283


@given(st.dictionaries(NAMES, TEXTS, max_size=5))
def test_headers_are_read_as_they_were(headers: dict[str, str]) -> None:
    assert (parse_headers(pack_headers(headers)) or {}) == headers


def test_a_backup_has_frames_of_a_bounded_size_with_their_checksums() -> None:
    entry = Entry(7, datetime(2026, 11, 28, tzinfo=UTC), "np.dead.quota", b"x" * FRAME_BYTES, {})

    async def batches() -> AsyncGenerator[Sequence[Entry], None]:
        yield [entry]

    async def packed() -> list[bytes]:
        return [piece async for piece in pack(state_of(7, 7, 9), batches())]

    begin, *frames = asyncio.run(packed())

    assert begin == b"\xff\x06\x00\x00S2sTwO"
    for frame in frames:
        content = frame[8:]
        assert frame[:1] == b"\x01"
        assert int.from_bytes(frame[1:4], "little") == len(content) + 4 <= FRAME_BYTES + 4
        crc = byte_for_byte(content)
        masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
        assert int.from_bytes(frame[4:8], "little") == masked
    whole = b"".join(frame[8:] for frame in frames)
    assert whole.startswith(b"NATSARC1")
    assert b"np.dead.quota" + entry.content in whole
    assert whole.endswith(bytes(5))
