"""How long the log takes to answer SQL, with the segments of a month of a cell of 10,000 Nodes."""

import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from nodepool.archive.storage.segments import BLOCK_ROWS, SCHEMA
from nodepool.archive.storage.sql import Database

MESSAGES: Final = 3_000_000
OF_A_SEGMENT: Final = 20_000
"""As many as ten minutes of a busy cell have."""
START: Final = datetime(2026, 11, 1, tzinfo=UTC)
STEP: Final = timedelta(milliseconds=800)
CONTENT: Final = (
    '{"specversion":"1.0","id":"%d","type":"NodeUpdated","source":"lifecycle","data":{"zone":'
    '"US-EAST-04A","node":"g%06x","assignment":%d,"phase":"production","labels":{"node.kubernetes'
    '.io/instance-type":"gd-8xh100ib-i128","node.coreweave.cloud/class":"gpu"}}}'
)
QUESTIONS: Final = {
    "SQL count over 3,000,000 messages, s": "SELECT count(*) FROM log",
    "the same by type, s": "SELECT type, count(*) FROM log GROUP BY type",
    "the same of one day, s": "SELECT count(*) FROM log WHERE day = '2026-11-11'",
    "the same by a field of the data, s": "SELECT data->>'node', count(*) FROM log GROUP BY 1",
}


class Answered(NamedTuple):
    """A question, and how many seconds its answer took, the opening of the segments included."""

    what: str
    seconds: float


def answer_questions() -> Sequence[Answered]:
    """Measured once each, on segments that were written just before."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for first in range(1, MESSAGES + 1, OF_A_SEGMENT):
            _write(folder, first)
        return [Answered(what, _ask(folder, sql)) for what, sql in QUESTIONS.items()]


def _ask(folder: Path, sql: str) -> float:
    began = time.perf_counter()
    Database(folder).ask(sql, most=1)
    return time.perf_counter() - began


def _write(folder: Path, first: int) -> None:
    numbers = range(first, first + OF_A_SEGMENT)
    times = [START + number * STEP for number in numbers]
    columns: dict[str, Sequence[object]] = {
        "position": numbers,
        "time": times,
        "subject": [f"np.evt.lifecycle.acme.prod.p{n % 1_000}.NodeUpdated" for n in numbers],
        "type": ["NodeUpdated"] * OF_A_SEGMENT,
        "service": ["lifecycle"] * OF_A_SEGMENT,
        "org": ["acme"] * OF_A_SEGMENT,
        "cluster": ["prod"] * OF_A_SEGMENT,
        "name": [f"p{number % 1_000}" for number in numbers],
        "id": [f"{number}" for number in numbers],
        "correlationid": [f"c{number // 20}" for number in numbers],
        "causationid": [f"{number - 1}.fleet.0" for number in numbers],
        "headers": [[]] * OF_A_SEGMENT,
        "content": [(CONTENT % (n, n % 10_000, n)).encode() for n in numbers],
    }
    place = folder / f"day={times[0]:%Y-%m-%d}" / f"{first}.parquet"
    place.parent.mkdir(exist_ok=True)
    table = pa.table(columns, schema=SCHEMA)
    pq.write_table(table, place, compression="zstd", row_group_size=BLOCK_ROWS)
