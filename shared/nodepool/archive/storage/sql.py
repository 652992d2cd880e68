"""Asks a log in SQL: DuckDB reads its segments, and can do nothing else.

Segments lie in a folder of their own, one folder for each day, so that a question about some days
opens no other files. DuckDB has no access to the network, loads no extensions, reads no files but
segments, and is asked to select only. Its memory and its threads are bounded.
"""

import os
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from nodepool.archive.manifests import Manifest
from nodepool.archive.storage.errors import ArchiveError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

MEMORY: Final = "1GB"
"""How much memory DuckDB takes at most; it spills nothing to disk."""
THREADS_MAX: Final = 4
LOG: Final = "log"
"""The name of the one table."""
_CONFIG: Final[dict[str, str | int | float | list[str]]] = {
    "memory_limit": MEMORY,
    "temp_directory": "",
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_community_extensions": False,
    "python_enable_replacements": False,
}
_EMPTY: Final = "day=1970-01-01/empty.parquet"
_VIEW: Final = """
CREATE VIEW log AS
SELECT position, time, day, subject, type, service, org, cluster, name, id, correlationid,
    causationid, coalesce(event -> 'data', event) AS data, headers, content
FROM (
    SELECT *, try_cast(try(decode(content)) AS JSON) AS event
    FROM read_parquet('{files}', hive_partitioning = true, hive_types = {{'day': DATE}})
    {where}
)
"""


class SqlError(ArchiveError):
    """The question cannot be answered; the text is what DuckDB says of it."""


class Answer(NamedTuple):
    """The answer to a question.

    columns: the names of its columns.
    rows: the values of each row, as Python has them.
    is_whole: whether these are all rows.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    is_whole: bool


class Database:
    """A database in memory whose one table is the log.

    folder: with the segments, as `place_of` names them; they may be links.
    others: the folders that such links lead to.
    since, until: the log has messages from then on, and up to then.
    """

    def __init__(
        self,
        folder: Path,
        others: Sequence[Path] = (),
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> None:
        import duckdb

        from nodepool.archive.storage.segments import write_empty

        if not any(folder.glob("day=*/*.parquet")):
            (folder / _EMPTY).parent.mkdir(exist_ok=True)
            write_empty(folder / _EMPTY)
        self._library = duckdb
        threads = min(THREADS_MAX, os.cpu_count() or 1)
        self._connection = connection = duckdb.connect(config={**_CONFIG, "threads": threads})
        allowed = [str(path.resolve()) for path in (folder, *others)]
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("SET allowed_directories = $1", [allowed])
        connection.execute("SET enable_external_access = false")
        files = str(folder.resolve() / "day=*" / "*.parquet").replace("'", "''")
        bounds = [f"time >= '{since}'"] if since is not None else []
        bounds += [f"time < '{until}'"] if until is not None else []
        where = f"WHERE {' AND '.join(bounds)}" if bounds else ""  # Without it, counting is quick.
        connection.execute(_VIEW.format(files=files, where=where))
        connection.execute("SET lock_configuration = true")

    def ask(self, sql: str, most: int) -> Answer:
        """Return the answer to a SELECT, of at most so many rows; raise SqlError for other text."""
        try:
            return _ask(self._connection, sql, most)
        except self._library.Error as error:
            raise SqlError(_cause(error)) from None

    def interrupt(self) -> None:
        """Make `ask`, in another thread, raise SqlError soon."""
        self._connection.interrupt()


def _ask(connection: "DuckDBPyConnection", sql: str, most: int) -> Answer:
    statements = connection.extract_statements(sql)
    kinds = [statement.type.name for statement in statements]
    if kinds != ["SELECT"]:
        named = " and ".join(kinds) or "nothing"
        raise SqlError(f"one SELECT is answered, and this is {named}: nothing here can be changed")
    found = connection.sql(statements[0].query)
    rows = found.limit(most + 1).fetchall()
    return Answer(found.columns, rows[:most], len(rows) <= most)


def place_of(folder: Path, manifest: Manifest) -> Path:
    """Return where a database in a folder has a segment, in the folder of its day."""
    day = manifest.began[:10]
    return folder / f"day={day}" / f"{manifest.first:020}-{manifest.last:020}.parquet"


def _cause(error: Exception) -> str:
    """Return what DuckDB says, as one line without its name of the kind of error."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0] if lines else type(error).__name__
    if "Out of Memory" in text:
        text = f"it takes more than {MEMORY} of memory: ask about less, or name --from and --to"
    return text
