"""Objects as files of a folder, synced to disk.

obstore has folders too, but leaves the sync to the operating system: after a power cut, a name that
was created without a sync may have no content, and nothing replaces an object that exists.
"""

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from nodepool.archive.manifests import OBJECT_BYTES_MAX

PART: Final = ".part-"
"""What the name of a file begins with that is not complete."""


class Folder:
    """A folder, which is made when the first object is stored.

    path: where it is.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    async def get(self, name: str) -> bytes | None:
        """Return the content of an object; None if there is no such object."""
        return await asyncio.to_thread(_read, self.path / name)

    async def create(self, name: str, content: bytes) -> bool:
        """Store an object; return False, and change nothing, if there is one of this name."""
        return await asyncio.to_thread(_create, self.path, name, content)

    async def close(self) -> None:
        """Do nothing; a bucket needs it."""

    async def list(self, folder: str) -> AsyncIterator[list[tuple[str, int]]]:
        """Yield the names and sizes of the objects in a folder, and in the folders there."""
        yield await asyncio.to_thread(_list, self.path, folder)


def _read(path: Path) -> bytes | None:
    try:
        size = path.stat().st_size
        if size > OBJECT_BYTES_MAX:
            raise OSError(0, f"it has {size} bytes")
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _list(root: Path, folder: str) -> list[tuple[str, int]]:
    files = (path for path in (root / folder).rglob("*") if path.is_file())
    return [(path.relative_to(root).as_posix(), path.stat().st_size) for path in files]


def _create(root: Path, name: str, content: bytes) -> bool:
    path = root / name
    _make_folder(path.parent)
    descriptor, part = tempfile.mkstemp(prefix=PART, dir=root)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.link(part, path)
    except FileExistsError:
        return False
    finally:
        with suppress(FileNotFoundError):
            Path(part).unlink()
    _sync(path.parent)
    return True


def _make_folder(folder: Path) -> None:
    """Make a folder and those around it, each synced into the folder that holds it."""
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    _sync(folder.parent)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
