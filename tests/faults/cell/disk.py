"""Provides a disk of fixed size, and measures the most that was used."""

import asyncio
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

LOOK_S = 0.1


class Disk:
    """A folder that holds so many bytes at most, by its file system or by what is watched.

    is_fixed: whether the file system takes no more; else the files are only counted.
    most: the most bytes that were used at once.
    """

    def __init__(self, folder: Path, bytes: int, *, is_fixed: bool) -> None:
        self.folder, self.bytes, self.is_fixed = folder, bytes, is_fixed
        self.most = 0

    def used(self) -> int:
        """Return how many bytes are used now."""
        if self.is_fixed:
            found = os.statvfs(self.folder)
            return (found.f_blocks - found.f_bfree) * found.f_frsize
        return sum(_size(path) for path in self.folder.rglob("*"))

    async def watch(self) -> None:
        """Measure until cancelled."""
        while True:
            self.most = max(self.most, self.used())
            await asyncio.sleep(LOOK_S if self.is_fixed else 10 * LOOK_S)


def _size(path: Path) -> int:
    with suppress(OSError):  # The server removes files.
        return path.stat().st_blocks * 512
    return 0


@contextmanager
def disk(folder: Path, bytes: int) -> Iterator[Disk]:
    """Yield a disk in an empty folder, as a file system in memory if it can be mounted."""
    folder.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={bytes}", "tmpfs", str(folder)]
    try:
        is_fixed = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except OSError:
        is_fixed = False
    try:
        yield Disk(folder, bytes, is_fixed=is_fixed)
    finally:
        if is_fixed:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)
