"""The child process that looks at the past, as the gateway sees it."""

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Mapping
from dataclasses import asdict
from typing import Final

from gateway.host.past.frames import BYTE_ORDER, FAULT, FRAME_BYTES_MAX, LENGTH_BYTES, Limits
from nodepool.host.settings import Settings

IDLE_S: Final = 60.0
"""After this many seconds without a job, the process ends; the next job starts another one."""
PER_TURN: Final = 64
"""After taking this many frames, other tasks get a turn."""
ENVIRONMENT: Final = {
    "MALLOC_ARENA_MAX": "2",
    "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
}
"""What the process has besides the environment of the gateway: little memory for each thread."""


class ChildGone(Exception):
    """The process has ended in the middle of a job: it took too long, or too much memory."""


class Faulted(Exception):
    """The process has not done a job. kind: `moment`, `unreachable`, `memory` or `fault`."""

    def __init__(self, kind: str, error: str) -> None:
        super().__init__(error)
        self.kind = kind


class Child:
    """Starts the process when there is a job for it; there is one job at a time.

    limits: those of a process that is started from now on.
    """

    def __init__(self, settings: Settings, archive: str) -> None:
        self.limits = Limits()
        self._given = {"url": settings.url, "archive": archive, "access": asdict(settings.access)}
        self._process: Process | None = None
        self._ending: set[asyncio.Task[int]] = set()
        self._idle: asyncio.TimerHandle | None = None

    async def do(self, job: Mapping[str, object]) -> AsyncGenerator[bytes, None]:
        """Yield the frames of the reply; raise Faulted or ChildGone if there is none.

        If the caller does not take all of them, the process ends.
        """
        self._forget_idle()
        is_done = False
        try:
            process = await self._running()
            assert process.stdin is not None
            process.stdin.write(_line(job))
            await process.stdin.drain()
            taken = 0
            while frame := await _read(process):
                if frame.startswith(FAULT):
                    fault = json.loads(frame)
                    is_done = not await _read(process)
                    raise Faulted(fault["fault"], fault["error"])
                yield frame
                taken += 1
                if taken % PER_TURN == 0:
                    await asyncio.sleep(0)
            is_done = True
        except (OSError, EOFError):
            raise ChildGone from None
        finally:
            if is_done:
                self._idle = asyncio.get_running_loop().call_later(IDLE_S, self.kill)
            else:
                self.kill()

    @property
    def pid(self) -> int | None:
        """Return the id of the process; None if there is none."""
        return self._process.pid if self._process is not None else None

    def kill(self) -> None:
        """End the process, if there is one."""
        process, self._process = self._process, None
        self._forget_idle()
        if process is not None:
            # Its pipes, too, also where a frame is still in one of them. Only the transport, which
            # the type does not show, closes them.
            process._transport.close()  # type: ignore[attr-defined]
            ending = asyncio.create_task(process.wait())
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        """End the process, and return once it is gone."""
        self.kill()
        if self._ending:
            await asyncio.wait(self._ending)

    def _forget_idle(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    async def _running(self) -> Process:
        if self._process is None or self._process.returncode is not None:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "gateway.host.past"),
                stdin=PIPE,
                stdout=PIPE,
                env={**os.environ, **ENVIRONMENT},
            )
            assert self._process.stdin is not None
            first = {"limits": self.limits._asdict(), "looker": self._given}
            self._process.stdin.write(_line(first))
        return self._process


async def _read(process: Process) -> bytes:
    """Return the next frame; empty at the end of a reply."""
    assert process.stdout is not None
    length = int.from_bytes(await process.stdout.readexactly(LENGTH_BYTES), BYTE_ORDER)
    if length > FRAME_BYTES_MAX:
        raise ChildGone
    return await process.stdout.readexactly(length)


def _line(value: Mapping[str, object]) -> bytes:
    return json.dumps(value).encode() + b"\n"
