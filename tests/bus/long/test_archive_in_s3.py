"""An archive in a real S3 server, whose answers fail in every way that stores do."""

import asyncio
import json
from pathlib import Path

import pytest
from obstore.exceptions import GenericError
from obstore.store import S3Store

from bus.archives import MESSAGES_OF_A_PART as PART
from bus.archives import SMALL, audit, fill_with_messages, launched_archiver
from bus.harness import ReplicaProcess, connected, until
from bus.object_store import BUCKET, KEY, REGION, SECRET, Mode, Way, environment, object_store
from bus.test_process_life import readiness, says
from bus.test_restoring import archived_world, log_of
from nodepool.cli.app import run
from nodepool.local.server import NatsServer
from support.clocks import wrong_clock
from support.constants import CLUSTER, ORG

ARCHIVE = f"s3://{BUCKET}/cell-1"
PATIENCE_S = 2
"""How long the archiver waits for an answer here."""
FAILING: dict[Mode, str] = {
    "fail": "503",
    "hang": f"no answer within {PATIENCE_S} s",
    "cut": "error sending request",
}
"""What the archiver says in each mode."""


def bucket_behind(way: Way) -> S3Store:
    """The archive in the server itself, whatever becomes of the archiver's connections."""
    return S3Store(
        BUCKET,
        prefix="cell-1",
        endpoint=way.server,
        access_key_id=KEY,
        secret_access_key=SECRET,
        region=REGION,
        client_options={"allow_http": True},
    )


def download(store: S3Store, folder: Path) -> Path:
    """The archive as a folder, read without the code that wrote it."""
    for chunk in store.list(chunk_size=1_000):
        for each in chunk:
            path = folder / each["path"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(bytes(store.get(each["path"]).bytes()))
    return folder


def upload(folder: Path, store: S3Store) -> None:
    """Put an archive in a folder into a bucket."""
    for path in folder.rglob("*"):
        if path.is_file():
            store.put(str(path.relative_to(folder)), path.read_bytes())


def end_of(store: S3Store) -> int:
    """Up to which position the archive goes."""
    names = [each["path"] for chunk in store.list("manifests") for each in chunk]
    if not names:
        return 0
    return int(json.loads(bytes(store.get(max(names)).bytes()))["last"])


async def archived_to(store: S3Store, position: int) -> None:
    """Returns once the archive goes up to a position."""

    async def is_there() -> bool:
        try:
            return await asyncio.to_thread(end_of, store) >= position
        except GenericError:
            return False  # A busy server ended the connection; obstore does not try that again.

    await until(is_there, 60)


async def fails_and_heals(archiver: ReplicaProcess, said: str) -> None:
    """Returns once an archiver says in its readiness and in its metrics that its store fails."""
    await until(lambda: said in readiness(archiver))
    assert archiver.metric("nodepool_archive_store_failures_total") >= 1
    assert archiver.metric("nodepool_ready") == 0


async def test_a_store_that_fails_delays_the_archive_and_loses_nothing(
    server: NatsServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with (
        connected(server.url) as connection,
        object_store(tmp_path) as (way, given),
    ):
        for name, value in given.items():
            monkeypatch.setenv(name, value)
        store = bucket_behind(way)

        # given an archive in a bucket
        with launched_archiver(
            server, ARCHIVE, tmp_path, given, patience_seconds=PATIENCE_S
        ) as archiver:
            await fill_with_messages(connection, PART)
            await archived_to(store, PART)

            # when the store fails in each way, while messages arrive
            count = PART
            for mode, said in FAILING.items():
                way.change(mode)
                await fill_with_messages(connection, PART, start=count)
                await fails_and_heals(archiver, said)
                # then nothing is lost, and the archiver goes on by itself
                way.change("pass")
                count += PART
                await archived_to(store, count)
                await says(archiver, "ok")

        # and when it is killed during an upload, and two others go on
        way.change("cut")
        with launched_archiver(server, ARCHIVE, tmp_path, given) as archiver:
            await fill_with_messages(connection, PART, start=count)
            asked = way.asked
            await until(lambda: way.asked > asked + 2)
            archiver.process.kill()
        way.change("pass")
        with (
            launched_archiver(server, ARCHIVE, tmp_path, given),
            launched_archiver(server, ARCHIVE, tmp_path, given, segment_bytes=SMALL // 3),
        ):
            count += PART
            await archived_to(store, count)

        # then the bucket holds each message exactly once
        folder = await asyncio.to_thread(download, store, tmp_path / "copy")
        assert await audit(connection, folder) == count
        assert await asyncio.to_thread(run, ["log", "verify", "--archive", ARCHIVE]) == 0
        capsys.readouterr()
        # and answers questions
        question = ["log", "query", "SELECT count(DISTINCT position) FROM log", "--only-archived"]
        words = [*question, "--archive", ARCHIVE, "-o", "csv", "--no-headers"]
        assert await asyncio.to_thread(run, words) == 0
        assert capsys.readouterr().out == f"{count}\n"


async def test_wrong_credentials_are_named_and_not_shown(
    server: NatsServer, tmp_path: Path
) -> None:
    async with connected(server.url), object_store(tmp_path) as (_, given):
        # given an archiver with a secret that the store does not know
        wrong = environment(given["AWS_ENDPOINT_URL"], "not-the-secret")
        with launched_archiver(server, ARCHIVE, tmp_path, wrong) as archiver:
            # then it says what the store answers, and the secret is nowhere
            await until(
                lambda: "cannot write log.json: SignatureDoesNotMatch" in readiness(archiver)
            )
            assert "not-the-secret" not in readiness(archiver) + archiver.log.read_text()


async def test_a_clock_that_is_an_hour_off_is_named_and_another_archiver_archives_all(
    server: NatsServer, tmp_path: Path
) -> None:
    async with (
        connected(server.url) as connection,
        object_store(tmp_path) as (way, given),
    ):
        # given an archiver on a host whose clock is an hour ahead, which S3 refuses
        wrong = {**given, **wrong_clock("+1h")}
        with (
            launched_archiver(server, ARCHIVE, tmp_path, wrong) as late,
            launched_archiver(server, ARCHIVE, tmp_path, given),
        ):
            await until(lambda: "RequestTimeTooSkewed" in readiness(late))

            # when another one archives the log
            await fill_with_messages(connection, PART)
            await archived_to(bucket_behind(way), PART)

        # then the bucket holds each message exactly once
        folder = await asyncio.to_thread(download, bucket_behind(way), tmp_path / "copy")
        assert await audit(connection, folder) == PART


async def test_the_past_is_shown_and_the_log_restored_from_a_bucket(
    server: NatsServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def nodepool(*words: str) -> int:
        mine = ("--url", server.url, "--org", ORG, "--cluster", CLUSTER)
        return await asyncio.to_thread(run, [*mine, *words])

    async with object_store(tmp_path) as (way, given):
        for name, value in given.items():
            monkeypatch.setenv(name, value)
        # given the archive of a world in a bucket
        world = await asyncio.to_thread(archived_world, tmp_path / "local")
        store = bucket_behind(way)
        await asyncio.to_thread(upload, tmp_path / "local", store)
        entries = world.world.log.entries

        # then a moment of the past is shown
        at = ("--at", str(len(entries) - 1), "--archive", ARCHIVE)
        assert await nodepool("get", "np", "-o", "name", *at) == 0
        assert capsys.readouterr().out.count("nodepool.") == len(world.documents("nodepools"))

        # and a store that fails is named, with the place
        way.change("fail")
        assert await nodepool("get", "np", *at) == 4
        assert f"archive {ARCHIVE}: cannot" in capsys.readouterr().err
        way.change("pass")

        # and the log is restored
        assert await nodepool("restore", "--from", ARCHIVE) == 0
        assert await log_of(server.url) == entries
