"""Build a folded value from the chunks of a snapshot, wherever they are stored."""

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Generic

from nodepool.engine.folded import Folded
from nodepool.engine.snapshot import Loader
from nodepool.service import S

if TYPE_CHECKING:
    from hashlib import _Hash

LINE_BYTES_MAX: Final = 16 << 20
"""The longest line of a snapshot."""


class ChunkLoader(Generic[S]):
    """Takes the chunks of a snapshot, which are cut anywhere, one after the other.

    state: the class of the state.
    lines, bytes, digest: how many lines and bytes there are so far, and their digest.

    For any chunks, each method either returns or raises ValueError, as `Loader` does.
    """

    def __init__(self, state: type[S], *, converts: bool = False) -> None:
        """Begin without a chunk; `converts` is that of `Loader`."""
        self.lines = self.bytes = 0
        self.digest: _Hash = hashlib.sha256()
        self._loader = Loader(state, converts=converts)
        self._rest = b""

    @property
    def notes(self) -> Sequence[str] | None:
        """What a conversion has changed; None if there was none."""
        return self._loader.notes

    def add(self, chunk: bytes) -> None:
        """Add the next chunk."""
        self.digest.update(chunk)
        self.bytes += len(chunk)
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        self.lines += len(lines)
        for line in lines:
            self._loader.add(line)
        if len(self._rest) > LINE_BYTES_MAX:
            raise ValueError(f"a line has more than {LINE_BYTES_MAX} bytes")

    def build(self, bytes: int, sha256: str) -> Folded[S]:
        """Return the folded value; raise ValueError unless the chunks have this size and digest."""
        if self._rest or self.bytes != bytes or self.digest.hexdigest() != sha256:
            raise ValueError("its chunks are not those that were saved")
        return self._loader.build_folded()
