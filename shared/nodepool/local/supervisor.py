"""Keeping processes alive: each service, and the nats-server, is started again when it ends."""

import asyncio
import contextlib
import sys
from collections.abc import Mapping
from pathlib import Path

from nodepool.local.console import report
from nodepool.local.errors import ServerError
from nodepool.local.server import NatsServer

STOP_S = 10.0
"""How long a service may take to end after SIGTERM, in seconds, before it is killed."""
RESTART_MIN_S, RESTART_MAX_S = 0.1, 5.0
"""The pause before a restart, in seconds: it doubles with each service that ends early."""
WATCH_S = 0.2
"""How often the server's process is looked at, in seconds."""


async def keep_service(name: str, environment: Mapping[str, str]) -> None:
    """Runs a service, again whenever it ends; stops it when this task is cancelled.

    Its standard error goes beside its log, to a file that ends in `.err`.
    """
    pause = RESTART_MIN_S
    loop = asyncio.get_running_loop()
    while True:
        process = await _start(name, environment)
        started = loop.time()
        try:
            code = await process.wait()
        except asyncio.CancelledError:
            await _stop(process)
            raise
        ran_long = loop.time() - started > RESTART_MAX_S
        pause = RESTART_MIN_S if ran_long else min(pause * 2, RESTART_MAX_S)
        report(f"{name} ended with exit code {code}; starting it again in {pause:.1f} s")
        await asyncio.sleep(pause)


async def _start(name: str, environment: Mapping[str, str]) -> asyncio.subprocess.Process:
    with Path(environment["NODEPOOL_LOG_FILE"]).with_suffix(".err").open("ab") as errors:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            name,
            # The service stops when this pipe closes, which the kernel does if we are killed.
            stdin=asyncio.subprocess.PIPE,
            stderr=errors,
            env={**environment, "NODEPOOL_STOP_WITH_PARENT": "yes"},
            # Ctrl-C at the terminal is for this process, which then stops the services itself.
            start_new_session=True,
        )


async def _stop(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), STOP_S)
        except TimeoutError:
            process.kill()
            await process.wait()


async def keep_server(server: NatsServer) -> None:
    """Starts the server again whenever its process has ended, until this task is cancelled."""
    while True:
        await asyncio.sleep(WATCH_S)
        if not server.running:
            report("nats-server ended; starting it again")
            try:
                await asyncio.to_thread(server.start)
            except ServerError as error:
                report(f"{error}; trying again")
                await asyncio.sleep(RESTART_MAX_S)
