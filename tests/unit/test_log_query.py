"""`nodepool log query`: what it prints, and that it reads segments and can do nothing else."""

import asyncio
import csv
import io
import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from nodepool.archive.storage.sql import Database, SqlError
from nodepool.cli.app import run
from nodepool.cli.times import parse_moment
from nodepool.client import whole_log
from nodepool.contract.log import Entry
from support.archived import archive_entries

NOON = datetime(2026, 11, 28, 12, tzinfo=UTC)
SECRET = "no segment has this"


def messages(count: int, hours: float = 1) -> list[Entry]:
    """So many messages, with so many hours between them."""
    return [
        Entry(
            number,
            NOON + (number - 1) * timedelta(hours=hours),
            "np.evt.fleet._.zone.g1.MachineFailed",
            json.dumps({"id": f"e{number}", "data": {"cause": f"é {number}"}}).encode(),
            {"a": "b"},
        )
        for number in range(1, count + 1)
    ]


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """An archive of a hundred messages of five days."""
    folder = tmp_path / "it's an archive"
    asyncio.run(archive_entries(folder, messages(100), most=10))
    return folder


@pytest.fixture
def database(archive: Path, tmp_path: Path) -> Database:
    return database_of(archive, tmp_path / "files")


def database_of(archive: Path, folder: Path) -> Database:
    folder.mkdir()

    async def open_archive() -> Sequence[Path]:
        async with whole_log.opened(str(archive)) as history:
            return await whole_log.lay_out(folder, history)

    return Database(folder, asyncio.run(open_archive()))


def query(archive: Path, sql: str, *options: str) -> int:
    """The exit code of a question."""
    return run(["log", "query", sql, "--archive", str(archive), "--only-archived", *options])


# What is printed.


def test_rows_are_printed_in_each_format(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sql = """SELECT position, time, data->>'cause' AS the_cause, headers, NULL AS nothing,
             1.5::DECIMAL(4, 1) AS number, content[:5] AS begin FROM log LIMIT 2"""
    first = ["1", "2026-11-28T12:00:00Z", "é 1", '{"a": "b"}', "", "1.5", '{"id"']

    def printed(*options: str) -> str:
        assert query(archive, sql, *options) == 0
        return capsys.readouterr().out

    table = printed().splitlines()
    assert table[0].split() == [
        "POSITION",
        "TIME",
        "THE",
        "CAUSE",
        "HEADERS",
        "NOTHING",
        "NUMBER",
        "BEGIN",
    ]
    assert table[1].split()[-3:] == ["<none>", "1.5", '{"id"']
    assert len(printed("--no-headers").splitlines()) == 2
    rows = list(csv.reader(io.StringIO(printed("-o", "csv"))))
    assert rows[1] == first
    whole = json.loads(printed("-o", "json"))
    assert whole["items"][0]["headers"] == {"a": "b"}
    assert whole["items"][1]["nothing"] is None
    assert yaml.safe_load(printed("-o", "yaml")) == whole
    assert printed("-o", "jsonpath={.items[*].position}") == "1 2"
    assert printed("-o", "custom-columns=N:.number").split() == ["N", "1.5", "1.5"]


def test_rows_beyond_the_limit_are_named_and_no_row_is_an_answer_too(
    archive: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert query(archive, "FROM log", "--limit", "3", "-o", "csv") == 0
    output = capsys.readouterr()
    assert len(output.out.splitlines()) == 4
    assert "only the first 3 rows are shown" in output.err

    assert query(archive, "FROM log WHERE position > 1000") == 0
    assert "No rows found" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("since", "until", "positions"),
    [
        ("2026-11-29", "2026-11-30", (13, 36)),
        ("2026-11-28T20:00Z", "2026-11-28T20:00:01Z", (9, 9)),
        ("2026-12-02T15:00Z", "2027-01-01", (100, 100)),
    ],
)
def test_a_time_leaves_out_all_other_messages(
    since: str,
    until: str,
    positions: tuple[int, int],
    archive: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    sql = "SELECT min(position) || ' ' || max(position) AS found FROM log"

    assert query(archive, sql, "--from", since, "--to", until, "-o", "csv", "--no-headers") == 0

    assert tuple(map(int, capsys.readouterr().out.split())) == positions


def test_an_empty_time_has_the_columns_and_no_rows(
    archive: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert query(archive, "SELECT count(*) AS n FROM log", "--to=2020-01-01", "-o", "csv") == 0

    assert capsys.readouterr().out == "n\n0\n"


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-11-28", datetime(2026, 11, 28, tzinfo=UTC)),
        ("2026-11-28T14:03Z", datetime(2026, 11, 28, 14, 3, tzinfo=UTC)),
        ("1h30m", NOON - timedelta(minutes=90)),
        ("-1h30m", NOON - timedelta(minutes=90)),
    ],
)
def test_a_moment_is_a_date_a_time_or_a_time_ago(text: str, moment: datetime) -> None:
    assert parse_moment(text, NOON) == moment


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        (["--from", "soon"], "--from: 'soon' is no time; write 2026-11-28, "),
        (["--to", "-1"], "--to: '-1' is no time"),
        (["--to", "99999999999h"], "or 2h for two hours ago"),
        (["-o", "name"], "--output: name is not printed here; use csv, json, yaml"),
    ],
)
def test_an_option_that_cannot_be_understood_is_named(
    options: list[str], fault: str, archive: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert query(archive, "FROM log", *options) == 2
    assert fault in capsys.readouterr().err


def test_without_an_archive_only_the_server_can_answer(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NODEPOOL_ARCHIVE", raising=False)

    assert run(["log", "query", "FROM log", "--only-archived"]) == 2
    assert "--only-archived needs --archive" in capsys.readouterr().err


# What it cannot do.

CHANGES = (
    "CREATE TABLE t AS FROM log",
    "DROP VIEW log",
    "COPY log TO '{place}'",
    "COPY (SELECT 1) TO ':memory:'",
    "EXPORT DATABASE '{place}'",
    "ATTACH '{place}'",
    "INSTALL httpfs",
    "LOAD '{secret}'",
    "SET enable_external_access = true",
    "RESET lock_configuration",
    "PRAGMA enable_profiling",
    "CALL enable_logging(storage = 'file', storage_config = {{'path': '{place}'}})",
    "EXPLAIN ANALYZE COPY (SELECT 1) TO ':memory:'",
    "CREATE PERSISTENT SECRET s (TYPE http)",
    "SELECT 1; COPY log TO '{place}'",
    "",
    "-- nothing",
)
READS = (
    "SELECT * FROM read_text('{secret}')",
    "SELECT * FROM read_csv('{secret}')",
    "SELECT * FROM '{secret}'",
    "SELECT * FROM glob('/*')",
    "SELECT * FROM read_text('{segments}/../log.json')",
    "SELECT * FROM read_text('{link}')",
    "SELECT * FROM read_parquet('http://127.0.0.1:1/a.parquet')",
    "SELECT * FROM read_text('s3://bucket/a')",
    "SELECT * FROM sqlite_scan('{secret}', 'a')",
    "SELECT getenv('HOME')",
    "SELECT * FROM {variable}",
)


@pytest.mark.parametrize("sql", CHANGES)
def test_nothing_but_one_select_is_answered(sql: str, database: Database, tmp_path: Path) -> None:
    place, secret = tmp_path / "written", tmp_path / "secret"
    secret.write_text(SECRET)
    before = sorted(tmp_path.rglob("*"))

    with pytest.raises(SqlError, match="one SELECT is answered"):
        database.ask(sql.format(place=place, secret=secret), most=10)

    assert sorted(tmp_path.rglob("*")) == before
    assert not Path(":memory:").exists()


@pytest.mark.parametrize("sql", READS)
def test_no_file_is_read_but_segments_and_nothing_is_asked_of_the_network(
    sql: str, database: Database, archive: Path, tmp_path: Path
) -> None:
    secret, link = tmp_path / "secret", tmp_path / "files" / "link"
    secret.write_text(SECRET)
    link.symlink_to(secret)
    variable = SECRET
    assert variable

    text = sql.format(secret=secret, link=link, variable="variable", segments=archive / "segments")
    with pytest.raises(SqlError) as refused:
        database.ask(text.replace("it's", "it''s"), most=10)

    assert SECRET not in str(refused.value)


def test_the_text_of_a_fault_is_one_line(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert query(archive, "SELECT nothing\nFROM log") == 1

    assert 'Referenced column "nothing" not found' in capsys.readouterr().err


def test_memory_has_a_bound(database: Database) -> None:
    with pytest.raises(SqlError, match="it takes more than 1GB of memory: ask about less"):
        database.ask(
            "SELECT len(array_agg(repeat('x', 1000000) || range)) FROM range(2000)", most=1
        )


async def test_a_question_that_is_cancelled_ends(archive: Path, tmp_path: Path) -> None:
    async with whole_log.opened(str(archive)) as history:
        others = await whole_log.lay_out(tmp_path, history)
    many = "range(10000000)"
    endless = f"SELECT count(*) FROM {many} AS a, {many} AS b WHERE a.range * b.range % 7 = 5"

    asking = asyncio.create_task(whole_log.ask(tmp_path, others, endless, 1, (None, None)))
    await asyncio.wait([asking], timeout=0.3)
    assert not asking.done()
    asking.cancel()

    with pytest.raises(asyncio.CancelledError):
        await asking


@pytest.mark.parametrize("package", ["duckdb", "pyarrow"])
def test_a_package_that_is_missing_is_named_with_its_extra(
    package: str,
    archive: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("nodepool.archive.storage.segments", package):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, package, None)

    # A time without segments needs both.
    assert query(archive, "FROM log", "--to", "2020-01-01") == 1
    fault = f"this needs the package {package}: pip install 'nodepool[archive]'"
    assert fault in capsys.readouterr().err


def test_a_place_without_an_archive_and_a_broken_chain_are_named(
    archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert query(tmp_path / "nothing", "FROM log") == 1
    assert "there is none: it has no log.json" in capsys.readouterr().err

    sorted((archive / "manifests").iterdir())[3].unlink()
    assert query(archive, "FROM log") == 1
    assert "are missing; see 'nodepool log verify'" in capsys.readouterr().err
