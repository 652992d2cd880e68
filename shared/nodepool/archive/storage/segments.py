"""Segments as Parquet: messages become columns in memory, block by block, and are read back.

The same messages give the same bytes, so that two archivers write the same object.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import Final

import pyarrow as pa
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


def write_empty(path: Path) -> None:
    """Write a file with the columns of a segment, and no rows."""
    pq.write_table(SCHEMA.empty_table(), path)


def count_rows(content: bytes, first: int) -> int:
    """Return how many rows a segment has, in order from a position on without a gap.

    Raises ValueError if it cannot be read, or if a row has another position.
    """
    with _reading():
        file = pq.ParquetFile(BytesIO(content))
        expected = first
        for batch in file.iter_batches(BLOCK_ROWS, columns=["position"]):
            for position in batch.column("position").to_pylist():
                if position != expected:
                    raise ValueError(f"has position {position} in the place of {expected}")
                expected += 1
    return expected - first


def read_times(content: bytes) -> list[datetime]:
    """Return when the log stored each message of a segment; raise ValueError as `count_rows`."""
    with _reading():
        file = pq.ParquetFile(BytesIO(content))
        return [
            time
            for batch in file.iter_batches(BLOCK_ROWS, columns=["time"])
            for time in _times(batch)
        ]


def read_entries(
    content: bytes, wants: Callable[[str], bool], first: int, last: int
) -> list[Entry]:
    """Return the messages of a segment from a position to another, in their order.

    wants: says for a subject whether its messages are returned; of others only the subject is read.
    Raises ValueError if the segment cannot be read.
    """
    entries = list[Entry]()
    with _reading():
        file = pq.ParquetFile(BytesIO(content))
        for group in range(file.num_row_groups):
            where = file.read_row_group(group, columns=["position", "subject"])
            rows = zip(
                *(where.column(name).to_pylist() for name in where.schema.names), strict=True
            )
            wanted = [
                row
                for row, (position, subject) in enumerate(rows)
                if first <= position <= last and wants(subject)
            ]
            if wanted:
                table = file.read_row_group(group, columns=_STORED)
                table = table if len(wanted) == len(table) else table.take(pa.array(wanted))
                for batch in table.to_batches():
                    entries += _entries(batch)
    return entries


_STORED: Final = ["position", "time", "subject", "headers", "content"]
"""The columns from which the message is made again; all others say what these say."""
_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


@contextmanager
def _reading() -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, KeyError) as error:
        raise ValueError(f"is no Parquet: {str(error).splitlines()[0]}") from None


def _entries(batch: pa.RecordBatch) -> Iterator[Entry]:
    positions, subjects, contents = (
        batch.column(name).to_pylist() for name in ("position", "subject", "content")
    )
    all_headers = batch.column("headers").to_pylist()
    for position, time, subject, content, headers in zip(
        positions, _times(batch), subjects, contents, all_headers, strict=True
    ):
        yield Entry(position, time, subject, content, dict(headers))


def _times(batch: pa.RecordBatch) -> Iterator[datetime]:
    """Yield the times of a batch: much faster than with the conversion of Arrow."""
    for number in batch.column("time").cast(pa.int64()).to_pylist():
        yield _EPOCH + number * _MICROSECOND
