"""What the tests on the real bus share: connections, filled logs, services at work, and waiting."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TypeVar
from urllib.request import urlopen

from nodepool.contract.log import Entry
from nodepool.contract.messages import Command, address_of, envelope_of, subject_of
from nodepool.host.runtime import Runtime
from nodepool.host.settings import Settings
from nodepool.host.snapshots import SNAPSHOT_AFTER
from nodepool.local.server import NatsServer, find_server
from nodepool.nats import api
from nodepool.nats.connection import Connection, connect
from nodepool.nats.errors import InDoubt
from nodepool.nats.reader import Reader
from nodepool.nats.streams import STREAM, provision
from nodepool.service import Service

S = TypeVar("S")
BINARY = find_server(os.environ.get("NODEPOOL_NATS_SERVER"))
PATIENCE_S = 30.0
"""How long anything may take on a machine that has much else to do."""
PAUSE_S = 0.01
"""How often a condition is looked at."""
BATCH = 900
ROUNDS = 3
"""So often is a promise in seconds tried on a machine that may be busy; the best round counts."""
OUTCOMES = ("CommandAccepted", "CommandRefused")


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Connection]:
    """A connection to a bus on which everything is set up."""
    connection = await connect(url, "test", patience_s=PATIENCE_S)
    try:
        await provision(connection)
        yield connection
    finally:
        await connection.close()


async def until(
    true: Callable[[], bool] | Callable[[], Awaitable[bool]], within_s: float = PATIENCE_S
) -> None:
    """Returns as soon as it is true; raises TimeoutError where it does not come true in time."""
    async with asyncio.timeout(within_s):
        while True:
            found = true()
            if found if isinstance(found, bool) else await found:
                return
            await asyncio.sleep(PAUSE_S)


async def restart(server: NatsServer) -> float:
    """SIGKILL for the server, and a new one on its data; the moment at which that one was there."""
    await asyncio.to_thread(server.kill)
    await asyncio.to_thread(server.start)
    return asyncio.get_running_loop().time()


async def fill(connection: Connection, said: Sequence[tuple[str, bytes]]) -> None:
    """Stores many messages quickly: subjects and contents."""
    for first in range(0, len(said), BATCH):
        batch = said[first : first + BATCH]
        id = os.urandom(6).hex()
        for number, (subject, content) in enumerate(batch, 1):
            headers = {"Nats-Batch-Id": id, "Nats-Batch-Sequence": str(number)}
            if number < len(batch):
                await connection.publish(subject, content, headers=headers)
            else:
                headers["Nats-Batch-Commit"] = "1"
                await api.publish(connection, subject, content, headers=headers)


async def read(reader: Reader, count: int) -> list[Entry]:
    """So many messages from a reader, or more where the last of them came with others."""
    found: list[Entry] = []
    async with asyncio.timeout(PATIENCE_S):
        while len(found) < count:
            found += await reader.next()
    return found


async def whole(connection: Connection, stream: str = STREAM) -> list[Entry]:
    """Everything that lies in a stream now."""
    last = await api.last_position(connection, stream)
    reader = Reader(connection, stream, [">"])
    await reader.open()
    found: list[Entry] = []
    async with asyncio.timeout(PATIENCE_S):
        while reader.pending or reader.last < last:
            found += await reader.next(timeout_s=1)
    await reader.close()
    return found


# Commands and their outcomes.


async def send(connection: Connection, command: Command, id: str, trace: str | None = None) -> None:
    """Publishes a command until it is stored; its id makes that once."""
    envelope = envelope_of(type(command)).model_construct(
        id=id, type=type(command).__name__, source="test", traceparent=trace, data=command
    )
    while True:
        try:
            await api.publish(
                connection, subject_of(command, ""), envelope.encode(), id=id, timeout_s=2
            )
            return
        except InDoubt:
            await asyncio.sleep(PAUSE_S)


async def outcomes(connection: Connection) -> dict[str, list[str]]:
    """Every outcome in the log by the id of its command: its subject's last word."""
    found: dict[str, list[str]] = {}
    for entry in await whole(connection):
        address = address_of(entry.subject)
        if address is not None and address.name in OUTCOMES:
            id = json.loads(entry.content)["correlationid"]
            found.setdefault(id, []).append(address.name)
    return found


async def outcome(connection: Connection, id: str) -> dict[str, object]:
    """The envelope of the outcome of a command, as soon as there is one."""
    reader = Reader(connection, STREAM, [f"np.evt.*.*.*.*.{name}" for name in OUTCOMES])
    await reader.open()
    try:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                for entry in await reader.next():
                    envelope: dict[str, object] = json.loads(entry.content)
                    if envelope["correlationid"] == id:
                        return envelope
    finally:
        await reader.close()


# Services at work, in this process and in others.


@asynccontextmanager
async def serving(
    service: Service[S],
    server: NatsServer,
    log: Path,
    *,
    snapshot_after: int = SNAPSHOT_AFTER,
    wait: bool = True,
) -> AsyncIterator[Runtime[S]]:
    """A replica at work in this process; it ends gracefully unless `crash` was called on it.

    `wait` is for it to be ready.
    """
    settings = Settings(url=server.url, log_file=str(log))
    runtime = Runtime(service, settings, snapshot_after=snapshot_after)
    stop = asyncio.Event()
    task = asyncio.create_task(runtime.run(stop), name=service.name)
    _TASKS[id(runtime)] = task
    try:
        await until(lambda: not wait or runtime.ready.is_set() or task.done())
        yield runtime
    finally:
        stop.set()
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.wait([task])
        del _TASKS[id(runtime)]
    if not task.cancelled():
        task.result()


_TASKS: dict[int, asyncio.Task[None]] = {}


async def crash(runtime: Runtime[S]) -> None:
    """Ends a replica of this process in the middle of whatever it does."""
    task = _TASKS[id(runtime)]
    task.cancel()
    await asyncio.wait([task])


class Replica:
    """A replica of a service as a process of its own."""

    def __init__(
        self, process: "subprocess.Popen[str]", log: Path, errors: Path, port: int
    ) -> None:
        self.process = process
        self.log = log
        self._errors = errors
        self._port = port

    @property
    def pid(self) -> int:
        """The process id."""
        return self.process.pid

    def lines(self) -> list[dict[str, object]]:
        """What it has logged."""
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def errors(self) -> str:
        """What it has written to standard error."""
        return self._errors.read_text()

    def page(self, path: str) -> str:
        """A page that it serves."""
        with urlopen(f"http://127.0.0.1:{self._port}{path}", timeout=5) as output:
            content: bytes = output.read()
        return content.decode()

    def metric(self, name: str) -> float:
        """A metric's value, summed up where it has several labels; 0 where there is none."""
        lines = (line for line in self.page("/metrics").splitlines() if line.startswith(name))
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


@contextmanager
def launched(
    name: str, server: NatsServer, folder: Path, port: int, **settings: str
) -> Iterator[Replica]:
    """A replica of a service as a process; it is killed if it is left at the end."""
    label = f"{name}-{port}"
    log, errors = folder / f"{label}.log", folder / f"{label}.err"
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join(sys.path),
        "NODEPOOL_URL": server.url,
        "NODEPOOL_LOG_FILE": str(log),
        "NODEPOOL_METRICS_PORT": str(port),
        **{f"NODEPOOL_{key.upper()}": value for key, value in settings.items()},
    }
    with (
        errors.open("ab") as sink,
        subprocess.Popen(
            [sys.executable, "-m", name], env=environment, stderr=sink, text=True
        ) as process,
    ):
        try:
            yield Replica(process, log, errors, port)
        finally:
            process.kill()
