"""Runs a cell: load, random kills, a long absence of the archiver, then quiet and an audit."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random

from nats.aio.client import Client

from faults.cell.bus import Record, Sender, connected, end
from faults.cell.churn import Churn
from faults.cell.disk import Disk, disk
from faults.cell.judging import Judge
from faults.cell.parts import Parts, Sizes
from faults.cell.report import Report
from faults.copies import FAULTS
from nodepool.contract.log import LOG
from nodepool.nats.log.streams import StreamInfo, provision, stream_info
from nodepool.nats.wire.connection import Connection, connect
from testbed.pages import fetch

START_S = 60.0
"""How long a process may take to start."""
KILLS_MIN = 6
"""How many parts are killed at least; on a fast machine the load goes on until then."""
DOWN_S = (0.0, 0.5, 2.0)
"""How long a part that was killed stays down."""
ABSENT_FROM = 0.3
"""After which part of the messages the archiver is away for long."""
FULL_S = 5.0
"""How long the server is left without room."""
FILL_S = 600.0
"""How long it may take until the server has no room, and until it has room again."""
ALERT, SEEN_S = 0.9, 60.0
"""The share of the storage beyond which an alert fires, and within how long metrics show it."""
CALM_S = 300.0
"""How long it may take until the log is quiet and archived."""
QUIET_S = 8.0
"""How long the log must not grow to be quiet."""
SENDERS = 4
"""How many programs send large commands at once."""
MOMENTS = 20
"""How many moments of the past are compared."""
LOOK_S, SAID_S = 0.2, 10.0


def ignore(_line: str) -> None:
    """Print no progress."""


async def run(seed: int, sizes: Sizes, folder: Path, say: Callable[[str], None] = ignore) -> Report:
    """Run a cell in an empty folder, and end each process that it started."""
    with disk(folder / "disk", sizes.disk) as space:
        cell = _Cell(seed, sizes, folder, space, say)
        try:
            await cell.run()
        finally:
            for part in cell.parts.every:
                await part.kill()
            if cell.report.faults:
                cell.report.keep(folder)
        return cell.report


class _Cell:
    def __init__(
        self, seed: int, sizes: Sizes, folder: Path, space: Disk, say: Callable[[str], None]
    ) -> None:
        self.report = Report(seed)
        self.parts = Parts(folder, space.folder, sizes)
        self._folder, self._sizes, self._disk, self._say = folder, sizes, space, say
        self._seed, self._random = seed, Random(seed)
        self._record = Record()
        self._is_archiver_away = False
        self._kills = asyncio.Lock()  # Is held while a part is down, or must not be.
        self._said_at = 0.0

    async def run(self) -> None:
        for part in self.parts.every:
            await part.start()
        connection = await connect(self.parts.url, "cell", patience_s=START_S)
        await provision(connection)
        client = await connected(self.parts.url)
        try:
            await self._work(client, connection)
        finally:
            await client.close()
            await connection.close()

    async def _work(self, client: Client, connection: Connection) -> None:
        sender, began = Sender(client), time.monotonic()
        churn = Churn(self._seed, self._sizes.nodes)
        async with self._beside(self._disk.watch(), self._record.keep(client)):
            await churn.prepare(sender)
            async with self._beside(churn.run(sender), churn.watch(client), self._kill()):
                await self._reach(ABSENT_FROM)
                await self._be_full(churn, sender, connection)
                await self._reach(1.0, KILLS_MIN)
            self.report.figures["seconds of load"] = round(time.monotonic() - began)
            for part in self.parts.every:
                await part.start()
            log = await self._calm(connection)
        await self.parts.archiver.kill()  # No archiver changes the archive during the audit.
        self._count(churn, sender)
        log = log._replace(first=(await _look(connection)).first)
        moments = self._random.sample(range(1, log.last + 1), MOMENTS)
        judge = Judge(self.report, self.parts.archive, self.parts.url, frozenset(moments))
        await judge.judge(client, log, self._record, sender)
        self._find_errors()

    @asynccontextmanager
    async def _beside(self, *works: "asyncio._CoroutineLike[None]") -> AsyncIterator[None]:
        """Run tasks while the context lasts; an error of a task ends the context."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work) for work in works]
            try:
                yield
            finally:
                await end(tasks)

    async def _reach(self, share: float, kills: int = 0) -> None:
        """Wait until the log has this share of the messages, and so many parts were killed."""
        messages = share * self._sizes.messages
        while self._record.last < messages or sum(self.report.kills.values()) < kills:
            await self._pause("load")

    async def _pause(self, what: str) -> None:
        await asyncio.sleep(LOOK_S)
        if time.monotonic() - self._said_at > SAID_S:
            self._said_at = time.monotonic()
            kills, used = sum(self.report.kills.values()), self._disk.used()
            self._say(f"{what}: {self._record.last} messages, {used} bytes, {kills} kills")

    async def _kill(self) -> None:
        """Kill a part at random intervals, until cancelled."""
        while True:
            await asyncio.sleep(self._random.uniform(*self._sizes.between_s))
            part = self._random.choice(self.parts.every)
            if part is self.parts.archiver and self._is_archiver_away:
                continue
            async with self._kills:
                self.report.kills[part.name] += 1
                await part.kill()
                await asyncio.sleep(self._random.choice(DOWN_S))
                if part is not self.parts.archiver or not self._is_archiver_away:
                    await part.start()

    async def _be_full(self, churn: Churn, sender: Sender, connection: Connection) -> None:
        """Stop the archiver until the server has had no room for a while, and start it again."""
        clock = asyncio.get_running_loop().time
        self._is_archiver_away = True
        await self.parts.archiver.kill()
        pace = self._sizes.fill_per_s / SENDERS
        async with self._beside(*(churn.fill(sender, pace) for _ in range(SENDERS))):
            async with asyncio.timeout(FILL_S):
                while not sender.full_since or clock() - sender.full_since < FULL_S:
                    await self._pause("fills up")
            await self._see_alert()
            began = clock()
            self._is_archiver_away = False
            await self.parts.archiver.start()
            async with asyncio.timeout(FILL_S):
                while sender.full_since:
                    await self._pause("is full")
        self.report.figures["full until the archiver was back for, s"] = round(clock() - began, 1)
        self.report.figures["the log began then at"] = (await _look(connection)).first

    async def _see_alert(self) -> None:
        """Wait until metrics show that the alert on the storage fires.

        No part is killed meanwhile: services that end every few seconds, as here, may end each
        time before they have asked the server, and Prometheus would wait for the next figure.
        """
        used = 0.0
        async with self._kills:
            with suppress(TimeoutError):
                async with asyncio.timeout(SEEN_S):
                    while used <= ALERT:
                        await asyncio.sleep(1)
                        used = await asyncio.to_thread(_used, self.parts.metrics)
        self.report.figures["storage that the alert saw, %"] = round(100 * used, 1)
        if used <= ALERT:
            self.report.faults.append("no alert would have said that the storage is nearly full")

    async def _calm(self, connection: Connection) -> StreamInfo:
        """Return the log once it is quiet and archived."""
        async with asyncio.timeout(CALM_S):
            while True:
                before = (await _look(connection)).last
                await asyncio.sleep(QUIET_S)
                await self._pause("calms down")
                log = await _look(connection)
                if before == log.last == self._record.last == self._archived():
                    return log

    def _archived(self) -> int:
        """Return the last position in a segment."""
        segments = (self.parts.archive / "segments").rglob("*.parquet")
        return max((int(path.name.split("-")[1]) for path in segments), default=0)

    def _count(self, churn: Churn, sender: Sender) -> None:
        files = [path for path in self.parts.archive.rglob("*") if path.is_file()]
        sizes = {
            f"archive: {folder}, bytes": sum(p.stat().st_size for p in files if folder in p.parts)
            for folder in ("segments", "snapshots")
        }
        self.report.figures |= {
            "commands": churn.commands,
            "commands sent again": sender.retries,
            "large commands": churn.large,
            "NodePools at a target": churn.reached,
            "disk, bytes": self._disk.bytes,
            "disk, most bytes used": self._disk.most,
            "disk is a file system": int(self._disk.is_fixed),
            **sizes,
            "archive: snapshot sets": len(list((self.parts.archive / "sets").iterdir())),
        }
        if self._disk.most > self._disk.bytes:
            self.report.faults.append("more was stored than the disk has")

    def _find_errors(self) -> None:
        """Add unexpected output of processes, and a disk that was too small, to the faults."""
        for path in self._folder.glob("*.err"):
            if text := path.read_text(encoding="utf-8", errors="replace"):
                self.report.faults.append(f"{path.stem} wrote: {text[-2000:]}")
        if "no space left" in (self._folder / "server.log").read_text(encoding="utf-8"):
            self.report.faults.append("the server found no room on the disk")


async def _look(connection: Connection) -> StreamInfo:
    """Return the log, once the server answers; it may just have been killed."""
    async with asyncio.timeout(START_S):
        while True:
            with suppress(*FAULTS):
                info = await stream_info(connection, LOG)
                if info is not None:
                    return info
            await asyncio.sleep(LOOK_S)


def _used(url: str) -> float:
    """Return the used share of the storage from metrics; 0 if they lack it."""
    with suppress(OSError):
        lines = [line.rpartition(" ") for line in fetch(url)[1].splitlines()]
        of = {name.partition("{")[0]: float(value) for name, _, value in lines if name[:1] != "#"}
        limit = of.get("nodepool_storage_limit_bytes")
        return of.get("nodepool_storage_used_bytes", 0.0) / limit if limit else 0.0
    return 0.0
