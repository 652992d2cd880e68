"""Keeping processes alive: those of the services and the nats-server are started again."""

import asyncio
import contextlib
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from nodepool.local.console import report
from nodepool.local.disk import DiskWatch
from nodepool.local.errors import ServerError
from nodepool.local.ports import HOST
from nodepool.local.server import NatsServer

STOP_S = 10.0
"""How long a service may take to end after SIGTERM, in seconds, before it is killed."""
RESTART_MIN_S, RESTART_MAX_S = 0.1, 5.0
"""The shortest and the longest pause before a restart, in seconds.

The pause doubles each time the service ends early.
"""
REPORTED_ENDS = 3
"""After this many ends in a row, the last line of the error log is reported."""
READY_S = 1.0
"""How often a service is asked if it is ready, and how long the answer may take, in seconds."""
LINE_BYTES_MAX = 4_000
"""How many bytes are read from the end of an error log."""
DISK_S = 2.0
"""How often the server's log is read for signs of a full disk, in seconds."""
WATCH_S = 0.2
"""How often the server's process is checked, in seconds."""


@dataclass(frozen=True, slots=True)
class Restarts:
    """How often in a row a service has ended early: ready for at most `RESTART_MAX_S` seconds.

    pause_s: how long to wait before the service is started again, in seconds.
    """

    early: int = 0
    pause_s: float = RESTART_MIN_S

    def count_end(self, ready_s: float) -> "Restarts":
        """Return the count after the service ended, after it was ready for `ready_s` seconds.

        The time until the service became ready does not count: a slow start is no sign of health.
        """
        if ready_s > RESTART_MAX_S:
            return Restarts()
        return Restarts(self.early + 1, min(self.pause_s * 2, RESTART_MAX_S))


@dataclass(frozen=True, slots=True)
class Program:
    """A process of services that is kept alive.

    name: its services, as reports name them.
    arguments: the module to run, and its arguments.
    errors: the file of its standard error.
    """

    name: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    errors: Path


async def keep_running(program: Program) -> None:
    """Run a program, again whenever it ends; stop the program when this task is cancelled.

    The last line of its standard error is reported once the program has ended `REPORTED_ENDS` times
    in a row.
    """
    restarts = Restarts()
    loop = asyncio.get_running_loop()
    name, errors = program.name, program.errors
    while True:
        try:
            process = await _start(program)
        except OSError as error:
            report(f"cannot start {name}: {error.filename}: {error.strerror}; trying again")
            await asyncio.sleep(RESTART_MAX_S)
            continue
        readiness = asyncio.create_task(_ready_at(program.environment))
        try:
            code = await process.wait()
        except asyncio.CancelledError:
            await _stop(process)
            raise
        finally:
            readiness.cancel()
        is_ready = readiness.done() and not readiness.cancelled()
        restarts = restarts.count_end(loop.time() - readiness.result() if is_ready else 0)
        report(ending(name, code, restarts, last_line(errors), errors))
        await asyncio.sleep(restarts.pause_s)


def ending(name: str, code: int, restarts: Restarts, error: str, errors: Path) -> str:
    """Return the report of a service that ended; `error` is the last line of its error log."""
    reason = ""
    if restarts.early >= REPORTED_ENDS:
        reason = f", {restarts.early} times in a row: {error or 'without a word'} (see {errors})"
    return (
        f"{name} ended with exit code {code}{reason}; starting it again in {restarts.pause_s:.1f} s"
    )


def last_line(errors: Path) -> str:
    """Return the last line of an error log that says something, without control characters.

    The text is empty if there is no such line.
    """
    try:
        with errors.open("rb") as file:
            file.seek(max(errors.stat().st_size - LINE_BYTES_MAX, 0))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    line = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return "".join(character if character.isprintable() else "?" for character in line)


async def _ready_at(environment: Mapping[str, str]) -> float:
    """Wait until the service is ready, and return that time on the clock of the event loop."""
    port = int(environment.get("NODEPOOL_METRICS_PORT", "0"))
    while True:
        await asyncio.sleep(READY_S)
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(READY_S):
                if await _is_ready(port):
                    return asyncio.get_running_loop().time()


async def _is_ready(port: int) -> bool:
    reader, writer = await asyncio.open_connection(HOST, port)
    try:
        writer.write(b"GET /readyz HTTP/1.0\r\n\r\n")
        status = await reader.readline()
    finally:
        writer.close()
    return b" 200 " in status


async def _start(program: Program) -> asyncio.subprocess.Process:
    with program.errors.open("ab") as errors:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            *program.arguments,
            # The service stops when this pipe closes. The kernel closes it if we are killed.
            stdin=asyncio.subprocess.PIPE,
            stderr=errors,
            env={**os.environ, **program.environment, "NODEPOOL_STOP_WITH_PARENT": "yes"},
            # Ctrl-C at the terminal must reach only this process, which then stops the services.
            start_new_session=True,
        )


async def _stop(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
        try:
            async with asyncio.timeout(STOP_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


async def keep_server(server: NatsServer) -> None:
    """Start the server again whenever its process has ended, until this task is cancelled."""
    while True:
        await asyncio.sleep(WATCH_S)
        if not server.running:
            report("nats-server ended; starting it again")
            try:
                await asyncio.to_thread(server.start)
            except ServerError as error:
                report(f"{error}; trying again")
                await asyncio.sleep(RESTART_MAX_S)


async def keep_storing(server: NatsServer) -> None:
    """Make the server store again whenever its full disk has room again, until cancelled."""
    watch, was_full = DiskWatch(server.data_dir, server.log_file), False
    while True:
        await asyncio.sleep(DISK_S)
        has_room = await asyncio.to_thread(watch.check)
        if watch.is_full and not was_full:
            report(f"no space left for {server.data_dir}: nothing is stored until some is free")
        was_full = watch.is_full
        if not has_room:
            continue
        try:
            await asyncio.to_thread(server.restart_storage)
        except ServerError as error:
            report(f"{error}; trying again")
        else:
            watch.note_retry()
            report(f"there is space for {server.data_dir} again")
