"""CRC-32C, which the server checks in what it restores; Python has only another CRC-32.

All rows of a block are worked on at once, a column at a time, with operations of Python that each
take thousands of bytes: byte for byte it would take ten times as long.
"""

from typing import Final

_POLYNOMIAL: Final = 0x82F63B78
_COLUMNS: Final = 128
_START: Final = 0xFFFFFFFF


def _shifted(crc: int) -> int:
    for _ in range(8):
        crc = (crc >> 1) ^ (_POLYNOMIAL if crc & 1 else 0)
    return crc


_TABLE: Final = [_shifted(byte) for byte in range(256)]
_PLANES: Final = [bytes(entry >> shift & 0xFF for entry in _TABLE) for shift in (0, 8, 16, 24)]
"""The same table, by the bytes of its entries."""


def _over_zeros(crc: int, count: int) -> int:
    for _ in range(count):
        crc = _TABLE[crc & 0xFF] ^ (crc >> 8)
    return crc


_ROW: Final = [
    [_over_zeros(byte << shift, _COLUMNS) for byte in range(256)] for shift in (0, 8, 16, 24)
]
"""What a row of zeros makes of each byte of a CRC."""


def crc32c(content: bytes) -> int:
    """Return the CRC-32C of a content."""
    rows = len(content) // _COLUMNS
    crc, end = _START, rows * _COLUMNS
    if rows:
        for own in _crcs_of_rows(content[:end], rows):
            crc = own ^ (
                _ROW[0][crc & 0xFF]
                ^ _ROW[1][crc >> 8 & 0xFF]
                ^ _ROW[2][crc >> 16 & 0xFF]
                ^ _ROW[3][crc >> 24]
            )
    for byte in content[end:]:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ _START


def _crcs_of_rows(content: bytes, rows: int) -> list[int]:
    """Return the CRC of each row, each begun with zero."""
    low = second = third = high = 0
    for column in range(_COLUMNS):
        index = low ^ int.from_bytes(content[column::_COLUMNS], "little")
        looked_up = index.to_bytes(rows, "little")
        found = [int.from_bytes(looked_up.translate(plane), "little") for plane in _PLANES]
        low, second, third, high = second ^ found[0], third ^ found[1], high ^ found[2], found[3]
    planes = (each.to_bytes(rows, "little") for each in (low, second, third, high))
    return [a | b << 8 | c << 16 | d << 24 for a, b, c, d in zip(*planes, strict=True)]
