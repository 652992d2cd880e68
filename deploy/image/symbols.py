"""Cuts from shared libraries what only debuggers and linkers read, as `strip` does.

The base has no `strip`. Of an ELF file a loader reads the segments alone; symbols, debugging
information and the table of sections lie behind them, see
https://man7.org/linux/man-pages/man5/elf.5.html.
"""

import struct
from pathlib import Path

_ELF64_LITTLE = b"\x7fELF\x02\x01"
_HEADER = struct.Struct("<16x HHI QQQ I HHHHHH")
_SEGMENT = struct.Struct("<II QQQQ QQ")


def strip(library: Path) -> int:
    """Cuts a file where its last segment ends; returns by how many bytes it is smaller.

    What is not a little-endian ELF file of 64 bits, or has nothing behind its segments, stays as it
    is.
    """
    content = library.read_bytes()
    if not content.startswith(_ELF64_LITTLE):
        return 0
    header: list[int] = list(_HEADER.unpack_from(content))
    first, size, count = header[4], header[8], header[9]
    end = first + count * size
    for number in range(count):
        segment: tuple[int, ...] = _SEGMENT.unpack_from(content, first + number * size)
        end = max(end, segment[2] + segment[5])
    if end >= len(content):
        return 0
    header[5] = header[10] = header[11] = header[12] = 0  # There is no table of sections.
    with library.open("r+b") as file:
        file.seek(0)
        file.write(content[:16] + _HEADER.pack(*header)[16:])
        file.truncate(end)
    return len(content) - end
