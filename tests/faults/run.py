"""One run: a cluster, two replicas of each service, commands, faults, then quiet, then an audit."""

import asyncio
import json
import os
import tempfile
import traceback
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from faults.chaos import Chaos
from faults.cluster import SIZE, Cluster
from faults.copies import FAULTS, copies, lost
from faults.load import LiveLog, Load
from faults.processes import Process, service_processes
from faults.progress import behind
from faults.redecide import differences
from faults.replay import faults_at_rest, replayed
from faults.report import Report, keep
from nodepool.contract.buckets import BUCKETS
from nodepool.contract.log import Entry, LogId
from nodepool.local.binary import find_server
from nodepool.nats.log import api
from nodepool.nats.log.reader import Reader
from nodepool.nats.log.streams import STREAM, provision
from nodepool.nats.wire.connection import Connection, connect
from support.audit.auditor import Auditor
from support.audit.facts import Violation
from support.documents import documents_of
from support.services import services

START_S = 60.0
"""How long everything may take to start."""
QUIET_S = 4.0
"""All is quiet once nothing has been stored for so long, commit records left out."""
CALM_S = 120.0
"""How long it may take until all is quiet after the faults."""
SHOWN_S = 60.0
"""How long it may take after that until the read model shows all: longer than its writers wait
before they try again."""
MEMORY_MAX_BYTES = 4 << 30
"""What all processes may hold together."""
ACTS_PER_S = 25.0
"""How many commands are sent in a second, about."""

Plan = Callable[[Cluster], Coroutine[None, None, None]]
"""What happens to a cluster while there is load."""


async def run(seed: int, seconds: float, plan: Plan | None = None) -> Report:
    """Runs for so long, then waits for quiet and audits; ends every process it has started.

    plan: what happens instead of faults at random; the run lasts as long as it does.
    """
    async with asyncio.timeout(seconds + START_S + CALM_S + 120):
        with tempfile.TemporaryDirectory(prefix="nodepool-faults-") as folder:
            cluster = Cluster(Path(folder), find_server(os.environ.get("NODEPOOL_NATS_SERVER")))
            processes = service_processes(Path(folder), cluster.url, SIZE)
            try:
                return await _Run(seed, cluster, processes, Path(folder), plan).run(seconds)
            finally:
                for process in (*processes, *cluster.servers):
                    await process.kill()


class _Run:
    def __init__(
        self,
        seed: int,
        cluster: Cluster,
        processes: Sequence[Process],
        folder: Path,
        plan: Plan | None,
    ) -> None:
        self._plan = plan
        self._folder = folder
        self._cluster = cluster
        self._services = processes
        self._report = Report(seed)
        self._auditor = Auditor()
        self._log = LiveLog()
        self._load = Load(seed, self._auditor.facts, self._log)
        self._chaos = Chaos(seed, processes, cluster.servers)

    async def run(self, seconds: float) -> Report:
        async with self._started() as (connection, reader):
            self._load.begin()
            background = [
                asyncio.create_task(self._load.publish(connection)),
                asyncio.create_task(self._read(reader)),
                asyncio.create_task(self._plan(self._cluster) if self._plan else self._chaos.run()),
            ]
            try:
                await self._act(seconds, background[2])
                await _cancelled(background[2])
                await self._mend()
                await self._judge(connection)
                self._note_errors(background)
            finally:
                for task in background:
                    await _cancelled(task)
            # Time passes in the replay then, so it comes last.
            rest = faults_at_rest(self._replay, self._load.sent)
            self._report.violations += rest
        return self._complete()

    @asynccontextmanager
    async def _started(self) -> AsyncIterator[tuple[Connection, Reader]]:
        for server in self._cluster.servers:
            await server.start()
        connection = await connect(self._cluster.url, "faults", patience_s=START_S)
        try:
            self._log.id = await provisioned(connection)
            for process in self._services:
                await process.start()
            reader = Reader(connection, STREAM, [])
            await reader.open()
            yield connection, reader
            await reader.close()
        finally:
            await connection.close()

    async def _act(self, seconds: float, plan: "asyncio.Task[None]") -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while loop.time() < end and not plan.done():
            await asyncio.sleep(1 / ACTS_PER_S)
            if len(self._log.waiting) < 100:  # More would only wait while the bus is away.
                self._load.act()
            self._watch()

    def _watch(self) -> None:
        every = (*self._services, *self._cluster.servers)
        memory = sum(process.rss_bytes() for process in every)
        self._report.memory_mb = max(self._report.memory_mb, memory >> 20)
        assert memory < MEMORY_MAX_BYTES, f"the processes hold {memory >> 20} MiB"

    async def _read(self, reader: Reader) -> None:
        while True:
            for entry in await reader.next():
                self._log.note(entry)
                try:
                    self._auditor.read(entry)
                except Violation as violation:
                    self._report.violations.append(str(violation))

    async def _mend(self) -> None:
        for process in (*self._cluster.servers, *self._services):
            if process.is_stopped:
                process.go_on()
            await process.start()

    async def _calm(self, connection: Connection) -> None:
        """Returns when all is stored and processed, and nothing has happened for a while.

        A service that is late, and will say nothing, is not to be taken for a quiet one.
        """
        loop = asyncio.get_running_loop()
        began = loop.time()
        async with asyncio.timeout(CALM_S):
            while True:
                before = self._progress()
                await asyncio.sleep(QUIET_S)
                if self._log.waiting or behind(services(), self._log.entries):
                    continue
                if self._progress() == before:
                    with suppress(*FAULTS):
                        if await api.last_position(connection, STREAM) == self._auditor.position:
                            break
        took = round(loop.time() - began - QUIET_S, 1)
        self._report.quiet_after_s = self._report.quiet_after_s or took

    def _progress(self) -> int:
        """How many messages were read, commit records left out."""
        return sum(not entry.subject.startswith("np.commit.") for entry in self._log.entries)

    def _note_errors(self, tasks: Sequence["asyncio.Task[None]"]) -> None:
        for task in tasks:
            if task.done() and not task.cancelled() and task.exception() is not None:
                lines = traceback.format_exception(task.exception())
                self._report.violations.append(f"the run itself failed: {''.join(lines)}")
        for process in self._services:
            text = process.errors.read_text(encoding="utf-8", errors="replace")
            if text:
                self._report.violations.append(f"{process.name} wrote: {text[-2000:]}")

    async def _judge(self, connection: Connection) -> None:
        """Note what is wrong once all is quiet; judge again if time has passed for some deadline.

        On a slow machine the judgement takes so long that machines have failed to boot meanwhile.
        """
        await self._calm(connection)
        while True:
            known = self._progress()
            copy, found = await self._reread(connection)
            found += self._audit(copy)
            found += await self._compare(connection)
            if not found:
                return
            await self._calm(connection)
            if self._progress() == known:
                self._report.violations += found
                return

    async def _reread(self, connection: Connection) -> tuple[Sequence[Entry], list[str]]:
        """Return what the log holds, and what is wrong if a server holds something else."""
        live = tuple(self._log.entries)
        every = await copies(connection)
        wrong = [(number, lost(live, copy)) for number, copy in enumerate(every)]
        return every[-1], [f"the copy of server {number}: {each}" for number, each in wrong if each]

    def _audit(self, entries: Sequence[Entry]) -> list[str]:
        """Return what is wrong with the log, which is replayed for what follows."""
        missing = [n for n, entry in enumerate(entries, 1) if entry.position != n][:1]
        wrong = [f"the log has a gap at {missing}"] if missing else []
        self._replay = replayed(services(), entries, self._log.id)
        for service in services():
            wrong += list(differences(service, entries, self._log.id))[:3]
        return wrong

    async def _compare(self, connection: Connection) -> list[str]:
        """Return what the read model shows otherwise than the replayed state, object by object.

        A writer that was refused while there was no leader tries again after a pause.
        """
        end = asyncio.get_running_loop().time() + SHOWN_S
        while wrong := await self._wrong(connection):
            if asyncio.get_running_loop().time() > end:
                break
            await asyncio.sleep(1)
        return wrong

    async def _wrong(self, connection: Connection) -> list[str]:
        """What the read model shows otherwise than the replayed state says it."""
        wrong: list[str] = []
        for bucket in BUCKETS:
            expected = {
                key: json.loads(json.dumps(document, default=str))
                for key, document in documents_of(self._replay, bucket).items()
            }
            stored = await _stored(connection, bucket)
            for key in sorted(expected.keys() | stored.keys()):
                if expected.get(key) != stored.get(key):
                    shown = f"{stored.get(key)} instead of {expected.get(key)}"
                    wrong.append(f"{bucket} {key} shows {shown}"[:2000])
        return wrong

    def _complete(self) -> Report:
        report = self._report
        report.messages = len(self._log.entries)
        report.commands, report.retries = len(self._load.sent), self._load.retries
        report.faults = dict(self._chaos.counts)
        every = (*self._services, *self._cluster.servers)
        report.restarts = sum(process.starts - 1 for process in every)
        if report.violations:
            report.kept = keep(self._log.entries, self._folder)
        return report


async def provisioned(connection: Connection, copies: int = SIZE) -> LogId:
    """Makes the streams; a cluster that has just begun has no leader for a while."""
    async with asyncio.timeout(START_S):
        while True:
            try:
                return await provision(connection, copies)
            except FAULTS:
                await asyncio.sleep(0.2)


async def _stored(connection: Connection, bucket: str) -> dict[str, object]:
    prefix = f"$KV.{bucket}."
    reader = Reader(connection, f"KV_{bucket}", [f"{prefix}>"], newest=True)
    await reader.open()
    documents: dict[str, object] = {}
    while reader.pending:
        for entry in await reader.next(timeout_s=5):
            if entry.content:
                key = "/".join(entry.subject.removeprefix(prefix).split(".", 2))
                documents[key] = json.loads(entry.content)
    await reader.close()
    return documents


async def _cancelled(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.wait([task])
