"""What the tests on a real bus share: connections, filled logs, services at work, and waiting."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

import pytest

from nodepool.contract.commands import SetQuota
from nodepool.contract.log import Entry
from nodepool.contract.messages import Command, envelope_of
from nodepool.contract.subjects import address_of, subject_of
from nodepool.host.runtime import Runtime
from nodepool.host.settings import Settings, Shown, Use
from nodepool.host.snapshots import SNAPSHOT_AFTER
from nodepool.local.binary import find_server
from nodepool.local.server import NatsServer
from nodepool.nats.log import api
from nodepool.nats.log.reader import Reader
from nodepool.nats.log.streams import STREAM, provision
from nodepool.nats.wire.access import NO_ACCESS, Access
from nodepool.nats.wire.connection import Connection, connect
from nodepool.nats.wire.errors import InDoubt, ServerUnreachable
from nodepool.service import I, O, S, Service
from support.constants import H100, ZONE
from testbed.pages import page

BINARY = find_server(os.environ.get("NODEPOOL_NATS_SERVER"))
PATIENCE_S = 30.0
"""How long anything may take on a machine that has much else to do."""
PAUSE_S, LONG_PAUSE_S = 0.01, 0.2
"""The pause between two checks of a condition, and the longest one between checks that are slow."""
BATCH = 900
"""How many messages one atomic batch of `fill` holds."""
ROUNDS = 6
"""How often a time limit is tried on a machine that may be busy; the best round counts."""
OUTCOMES = ("CommandAccepted", "CommandRefused")


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Connection]:
    """A connection to a bus with all its streams."""
    connection = await connect(url, "test", patience_s=PATIENCE_S)
    try:
        await provision(connection)
        yield connection
    finally:
        await connection.close()


async def unreachable(url: str, reason: str, access: Access = NO_ACCESS) -> ServerUnreachable:
    """What is raised where no server takes a connection, which is to be for this reason.

    Where it is another one, it is tried again with more patience: on a busy machine no attempt may
    be done before the first is up.
    """
    for patience_s in (1.0, 5.0, PATIENCE_S):
        with pytest.raises(ServerUnreachable) as error:
            await connect(url, "test", patience_s=patience_s, access=access)
        if reason in error.value.reason:
            break
    return error.value


async def until(
    condition: Callable[[], bool] | Callable[[], Awaitable[bool]],
    within_s: float = PATIENCE_S,
    pause_s: float = PAUSE_S,
) -> None:
    """Returns as soon as the condition holds; raises TimeoutError where it does not in time."""
    clock = asyncio.get_running_loop().time
    async with asyncio.timeout(within_s):
        while True:
            began, holds = clock(), condition()
            if holds if isinstance(holds, bool) else await holds:
                return
            # What is awaited needs the processors more than a check that asks for whole pages.
            await asyncio.sleep(max(pause_s, min(3 * (clock() - began), LONG_PAUSE_S)))


async def restart(server: NatsServer) -> float:
    """Kills the server and starts another one on its data; the loop's time when that one was up."""
    await asyncio.to_thread(server.kill)
    await asyncio.to_thread(server.start)
    return asyncio.get_running_loop().time()


async def fill(connection: Connection, messages: Sequence[tuple[str, bytes]]) -> None:
    """Stores many messages quickly; each is a subject and a content."""
    for first in range(0, len(messages), BATCH):
        batch = messages[first : first + BATCH]
        id = os.urandom(6).hex()
        for number, (subject, content) in enumerate(batch, 1):
            headers = {"Nats-Batch-Id": id, "Nats-Batch-Sequence": str(number)}
            if number < len(batch):
                await connection.publish(subject, content, headers=headers)
            else:
                headers["Nats-Batch-Commit"] = "1"
                await api.publish(connection, subject, content, headers=headers)


async def read(reader: Reader, count: int) -> list[Entry]:
    """So many messages from a reader; more where the last of them arrived with others."""
    entries: list[Entry] = []
    async with asyncio.timeout(PATIENCE_S):
        while len(entries) < count:
            entries += await reader.next()
    return entries


async def read_all(connection: Connection, stream: str = STREAM) -> list[Entry]:
    """Every message that lies in a stream now."""
    last = await api.last_position(connection, stream)
    reader = Reader(connection, stream, [">"])
    await reader.open()
    entries: list[Entry] = []
    async with asyncio.timeout(PATIENCE_S):
        while reader.pending or reader.last < last:
            entries += await reader.next(timeout_s=1)
    await reader.close()
    return entries


# Commands and their outcomes.


def limit(number: int, org: str = "acme") -> SetQuota:
    """The command that sets a limit of so many Nodes."""
    return SetQuota(org=org, zone=ZONE, instance_type=H100, limit=number)


async def send(connection: Connection, command: Command, id: str, trace: str | None = None) -> None:
    """Publishes a command until it is stored; its id keeps it from being done twice."""
    envelope = envelope_of(type(command)).model_construct(
        id=id, type=type(command).__name__, source="test", traceparent=trace, data=command
    )
    while True:
        try:
            await api.publish_event(
                connection, subject_of(command, ""), envelope.encode(), timeout_s=2
            )
            return
        except InDoubt:
            await asyncio.sleep(PAUSE_S)


async def outcomes(connection: Connection) -> dict[str, list[str]]:
    """The types of all outcomes in the log, by the id of their command."""
    by_command: dict[str, list[str]] = {}
    for entry in await read_all(connection):
        address = address_of(entry.subject)
        if address is not None and address.name in OUTCOMES:
            id = json.loads(entry.content)["correlationid"]
            by_command.setdefault(id, []).append(address.name)
    return by_command


async def outcome(connection: Connection, id: str) -> dict[str, object]:
    """The outcome of a command with its envelope, as soon as there is one."""
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


def freeze(server: NatsServer) -> None:
    """Stop a server of this process; return once no thread of it runs, and so replies, any more."""
    assert server.pid is not None
    os.kill(server.pid, signal.SIGSTOP)
    os.waitpid(server.pid, os.WUNTRACED)


class Addressed(Protocol):
    """A server, or one as some user sees it."""

    @property
    def url(self) -> str:
        """Where it is to be reached."""


@asynccontextmanager
async def serving(
    service: Service[S, I, O],
    server: Addressed,
    log: Path,
    *,
    snapshot_after: int = SNAPSHOT_AFTER,
    wait: bool = True,
    deprecated_conditions: Shown = "hide",
    snapshots: Use = "use",
    access: Access = NO_ACCESS,
) -> AsyncIterator[Runtime[S, I, O]]:
    """A replica at work in this process; it stops gracefully unless `crash` was called on it.

    wait: whether to wait until it is ready.
    deprecated_conditions, snapshots, access: the settings of these names.
    """
    settings = Settings(
        url=server.url,
        log_file=str(log),
        deprecated_conditions=deprecated_conditions,
        snapshots=snapshots,
        access=access,
    )
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


async def crash(runtime: Runtime[S, I, O]) -> None:
    """Ends a replica of this process without letting it finish anything."""
    task = _TASKS[id(runtime)]
    while not task.done():
        # Python 3.11's wait_for loses a cancellation that comes together with its result.
        task.cancel()
        await asyncio.wait([task], timeout=1)


async def ended(runtime: Runtime[S, I, O]) -> None:
    """Returns once a replica of this process has ended by itself."""
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.wait([_TASKS[id(runtime)]])


def lines_of(log: Path) -> list[dict[str, object]]:
    """Return the lines that a service has written to its log so far."""
    # The last line may be one of which the rest is still in a buffer of the service.
    whole, _, _ = log.read_text().rpartition("\n")
    return [json.loads(line) for line in whole.splitlines()]


class ReplicaProcess:
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
        return lines_of(self.log)

    def errors(self) -> str:
        """What it has written to standard error."""
        return self._errors.read_text()

    def page(self, path: str, within_s: float = PATIENCE_S) -> str:
        """An HTTP page that it serves."""
        url = f"http://127.0.0.1:{self._port}{path}"
        # It may itself wait for some seconds until the page is made.
        return page(url, within_s)

    def is_ready(self) -> bool:
        """Tells whether all services of the replica are ready."""
        with suppress(OSError):
            return self.page("/readyz") == "ok\n"
        return False

    def metric(self, name: str) -> float:
        """The sum of a metric over all its labels; 0 where there is none."""
        lines = (line for line in self.page("/metrics").splitlines() if line.startswith(name))
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


@contextmanager
def launched(
    name: str,
    server: Addressed,
    folder: Path,
    port: int,
    *,
    output: Path | None = None,
    others: Mapping[str, str] = MappingProxyType({}),
    **settings: str,
) -> Iterator[ReplicaProcess]:
    """A replica of a service as a process; killed at the end if it still runs.

    name: the module to run, with its arguments after spaces.
    output: where its log lines go by standard output, instead of to a file in `folder`.
    others: variables of its environment that are no settings of ours.
    """
    label = f"{name}-{port}".replace(" ", "-")
    log, errors = folder / f"{label}.log", folder / f"{label}.err"
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join(sys.path),
        "NODEPOOL_URL": server.url,
        "NODEPOOL_LOG_FILE": "" if output else str(log),
        "NODEPOOL_METRICS_PORT": str(port),
        **{f"NODEPOOL_{key.upper()}": value for key, value in settings.items()},
        **others,
    }
    with (
        errors.open("ab") as sink,
        output.open("ab") if output else nullcontext() as lines,
        subprocess.Popen(
            [sys.executable, "-m", *name.split()],
            env=environment,
            stdout=lines,
            stderr=sink,
            text=True,
        ) as process,
    ):
        try:
            yield ReplicaProcess(process, log, errors, port)
        finally:
            process.kill()
