"""A provider on trial as a process on a real server, where time passes by itself."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from bus.harness import PATIENCE_S, ReplicaProcess, launched
from conformance.trial import Machines, Trial
from nodepool.contract.log import Entry
from nodepool.local.server import NatsServer
from nodepool.nats.log import api
from nodepool.nats.log.reader import Reader
from nodepool.nats.log.streams import STREAM, provision
from nodepool.nats.wire.connection import connect
from testbed.ports import free_port

PAUSE_S = 0.01
"""How long to wait for the next message of the log, at once."""


class ProcessTrial(Trial):
    """A trial of `python -m <provider>`; `close` ends all that it has started.

    settings: variables of its environment.
    module: what to run, if it is not the provider itself.
    """

    def __init__(
        self,
        name: str,
        machines: Machines,
        server: NatsServer,
        folder: Path,
        settings: Mapping[str, str],
        module: str = "",
    ) -> None:
        super().__init__(name, machines)
        self._server, self._folder, self._settings = server, folder, settings
        self._module = module or name
        self._runner = asyncio.Runner()
        self._entries: list[Entry] = []
        self._end = 0.0
        self._processes = ExitStack()
        self._process: ReplicaProcess | None = None
        self._runner.run(self._open())
        self.restart()

    async def _open(self) -> None:
        self._connection = await connect(self._server.url, "trial", patience_s=PATIENCE_S)
        await provision(self._connection)
        self._reader = Reader(self._connection, STREAM, ["np.>"])
        await self._reader.open()

    def close(self) -> None:
        """Ends the process, and leaves the server."""
        self._processes.close()
        self._runner.run(self._close())
        self._runner.close()

    async def _close(self) -> None:
        await self._reader.close()
        await self._connection.close()

    def restart(self) -> None:
        if self._process is not None:
            self._process.process.kill()
            self._process.process.wait(PATIENCE_S)
        process = launched(
            self._module, self._server, self._folder, free_port(), others=self._settings
        )
        self._process = self._processes.enter_context(process)
        self._end = time.monotonic() + PATIENCE_S

    def store(self, subject: str, content: bytes) -> None:
        self._runner.run(api.publish_event(self._connection, subject, content))
        self._end = time.monotonic() + PATIENCE_S

    def entries(self) -> Sequence[Entry]:
        self._runner.run(self._take())
        return self._entries

    async def _take(self) -> None:
        """Reads all that is stored now."""
        last = await api.last_position(self._connection, STREAM)
        async with asyncio.timeout(PATIENCE_S):
            while self._reader.last < last:
                self._entries += await self._reader.next(timeout_s=1)

    def may_go_on(self) -> bool:
        self._runner.run(self._await_next())
        return time.monotonic() < self._end

    async def _await_next(self) -> None:
        self._entries += await self._reader.next(timeout_s=PAUSE_S)
