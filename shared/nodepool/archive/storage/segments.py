"""Segments as Parquet: messages become columns in memory, block by block, and are read back.

The same messages give the same bytes, so that two archivers write the same object.
"""

from collections.abc import Collection, Iterator, Mapping
from datetime import date
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from nodepool.archive.manifests import Manifest, Object, digest_of
from nodepool.archive.names import segment_name
from nodepool.archive.rows import Row, row_of, size_of
from nodepool.contract.log import Entry

_NAMES: Final = ("type", "service", "org", "cluster", "name", "id", "correlationid", "causationid")
SCHEMA: Final = pa.schema(
    [
        pa.field("position", pa.int64(), nullable=False),
        pa.field("time", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("subject", pa.string(), nullable=False),
        *(pa.field(name, pa.string()) for name in _NAMES),
        pa.field("headers", pa.map_(pa.string(), pa.string()), nullable=False),
        pa.field("content", pa.binary(), nullable=False),
    ]
)
BLOCK_ROWS: Final = 8_192
BLOCK_BYTES: Final = 8 << 20
"""A block of rows is compressed once it has as many rows, or as many bytes."""


class Segment:
    """A segment that is being made; it holds its messages compressed, but for the last block.

    count: how many messages it holds.
    first, last: the first and the last message; None while it is empty.
    """

    def __init__(self) -> None:
        self.count = 0
        self.first: Entry | None = None
        self.last: Entry | None = None
        self._block: list[Row] = []
        self._block_bytes = 0
        self._file = BytesIO()
        self._writer = pq.ParquetWriter(
            self._file, SCHEMA, compression="zstd", use_dictionary=_DICTIONARIES
        )

    @property
    def day(self) -> date | None:
        """The day of its messages, by the clock of the log in UTC; None while it is empty."""
        return self.first.time.date() if self.first is not None else None

    def add(self, entry: Entry) -> int:
        """Add the next message, and return how many bytes it counts.

        Messages of another day belong to another segment.
        """
        size = size_of(entry)
        self.first, self.last = self.first or entry, entry
        self.count += 1
        self._block_bytes += size
        self._block.append(row_of(entry))
        if len(self._block) >= BLOCK_ROWS or self._block_bytes >= BLOCK_BYTES:
            self._compress()
        return size

    def _compress(self) -> None:
        columns = zip(*self._block, strict=True)
        arrays = [
            pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)
        ]
        self._writer.write_batch(pa.record_batch(arrays, schema=SCHEMA))
        self._block, self._block_bytes = [], 0

    def close(self, log: str, previous: str) -> tuple[Manifest, bytes]:
        """Return the manifest and the content; nothing can be added afterwards.

        log: the identity of the log.
        previous: the digest of the manifest before.
        """
        assert self.first is not None, "a segment has a message"
        assert self.last is not None, "a segment has a message"
        if self._block:
            self._compress()
        self._writer.close()
        content = self._file.getvalue()
        first, last, sha256 = self.first.position, self.last.position, digest_of(content)
        name = segment_name(self.first.time.date(), first, last, sha256)
        manifest = Manifest(
            log=log,
            first=first,
            last=last,
            count=self.count,
            began=self.first.time.isoformat(),
            ended=self.last.time.isoformat(),
            object=Object(name=name, bytes=len(content), sha256=sha256),
            previous=previous,
        )
        return manifest, content


_DICTIONARIES: Final = ["subject", "type", "service", "org", "cluster", "name"]
"""The columns whose values repeat."""


def read_types(content: bytes, types: Collection[str]) -> Iterator[list[Entry]]:
    """Yield the messages of a segment in order, those of these types only, block by block.

    Raises ValueError if it cannot be read.
    """
    wanted = pa.array(sorted(types))
    columns = ["position", "time", "subject", "content", "headers", "type"]
    try:
        for batch in pq.ParquetFile(BytesIO(content)).iter_batches(BLOCK_ROWS, columns=columns):
            chosen = batch.filter(pc.is_in(batch.column("type"), wanted)).to_pylist()
            yield [
                Entry(row["position"], row["time"], row["subject"], row["content"], _headers(row))
                for row in chosen
            ]
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"is no Parquet: {str(error).splitlines()[0]}") from None


def _headers(row: Mapping[str, Any]) -> Mapping[str, str]:
    return dict(row["headers"])


def write_empty(path: Path) -> None:
    """Write a file with the columns of a segment, and no rows."""
    pq.write_table(SCHEMA.empty_table(), path)


def count_rows(content: bytes, first: int) -> int:
    """Return how many rows a segment has, in order from a position on without a gap.

    Raises ValueError if it cannot be read, or if a row has another position.
    """
    try:
        file = pq.ParquetFile(BytesIO(content))
        expected = first
        for batch in file.iter_batches(BLOCK_ROWS, columns=["position"]):
            for position in batch.column("position").to_pylist():
                if position != expected:
                    raise ValueError(f"has position {position} in the place of {expected}")
                expected += 1
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"is no Parquet: {str(error).splitlines()[0]}") from None
    return expected - first
