"""The whole control plane on one machine: a nats-server, every service, and a small data centre."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nodepool.client import Client, ClientError, Document
from nodepool.local.server import NatsServer, ServerError, find_server
from nodepool.nats.errors import InDoubt

SERVICES = (
    "validator",
    "quota",
    "capacity",
    "allocator",
    "lifecycle",
    "preemption",
    "aggregator",
    "fleet",
)
METRICS_PORT = 9464
"""The first of the ports on which the services serve metrics; a taken one is passed over."""
STOP_S = 10.0
RESTART_S = (0.1, 5.0)
WATCH_S = 0.2
TARGET_S = 90.0


@dataclass(frozen=True, slots=True)
class Machines:
    """So many simulated machines of a type, and the quota the demo organisation has of them."""

    instance_type: str
    count: int
    boot_s: float


ZONE = "US-EAST-04A"
SITE = (
    Machines("gd-8xh100ib-i128", 64, 2),
    Machines("gd-8xa100-i128", 32, 2),
    Machines("cd-gp-i64-erapids", 2_000, 1),
)
BATCH = 500
"""How many machines one command may add."""


class UpError(Exception):
    """Why it cannot run; the message is one line for the user."""


@dataclass(frozen=True, slots=True)
class Options:
    """Where data lie, which port the bus takes, and what to apply at the start.

    `show` makes the text that is printed about the NodePools once they are at their targets.
    """

    data_dir: Path
    port: int
    binary: str | None
    examples: Path | None
    org: str
    cluster: str
    show: Callable[[Sequence[Document]], str]
    once: bool = False


def run(options: Options) -> int:
    """Runs until SIGINT or SIGTERM; the exit code. Raises UpError with one line for the user."""
    try:
        server = NatsServer(options.data_dir, options.port, find_server(options.binary))
        server.start()
    except ServerError as error:
        raise UpError(str(error)) from error
    try:
        return asyncio.run(_up(options, server))
    finally:
        server.stop()


async def _up(options: Options, server: NatsServer) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop.set)
    async with _services(options, server):
        serving = asyncio.create_task(_serve(options, server.url, stop))
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait((serving, stopping), return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            serving.result()
            if not options.once:
                await stopping
        for task in (serving, stopping):
            task.cancel()
        if stop.is_set():
            _say("\nstopping; everything is kept in the log for the next start")
    return 0


@contextlib.asynccontextmanager
async def _services(options: Options, server: NatsServer) -> AsyncIterator[None]:
    logs = options.data_dir / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    ports = _free_ports(len(SERVICES))
    keepers = [
        asyncio.create_task(_keep(name, _environment(server.url, logs / f"{name}.log", port)))
        for name, port in zip(SERVICES, ports, strict=True)
    ]
    keepers.append(asyncio.create_task(_keep_server(server)))
    _say(f"the bus listens on {server.url}; data and logs are in {options.data_dir}")
    _say(f"metrics of {SERVICES[0]} are on http://127.0.0.1:{ports[0]}/metrics, and so on")
    try:
        yield
    finally:
        for keeper in keepers:
            keeper.cancel()
        await asyncio.gather(*keepers, return_exceptions=True)


def _environment(url: str, log: Path, port: int) -> dict[str, str]:
    return {
        **os.environ,
        "NODEPOOL_URL": url,
        "NODEPOOL_LOG_FILE": str(log),
        "NODEPOOL_METRICS_PORT": str(port),
    }


def _free_ports(count: int) -> list[int]:
    found: list[int] = []
    port = METRICS_PORT
    while len(found) < count and port < 65_000:
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            found.append(port)
        port += 1
    return found


async def _keep(name: str, environment: Mapping[str, str]) -> None:
    """Runs a service, and again whenever it ends; ends it when cancelled."""
    pause = RESTART_S[0]
    while True:
        # A session of its own keeps Ctrl-C from it; the pipe tells it when we are gone.
        with Path(environment["NODEPOOL_LOG_FILE"]).with_suffix(".err").open("ab") as errors:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                name,
                stdin=asyncio.subprocess.PIPE,
                stderr=errors,
                env={**environment, "NODEPOOL_STOP_WITH_PARENT": "yes"},
                start_new_session=True,
            )
        began = asyncio.get_running_loop().time()
        try:
            code = await process.wait()
        except asyncio.CancelledError:
            await _end(process)
            raise
        lasted = asyncio.get_running_loop().time() - began
        pause = RESTART_S[0] if lasted > RESTART_S[1] else min(pause * 2, RESTART_S[1])
        _say(f"{name} ended with {code}; it starts again in {pause:.1f} s")
        await asyncio.sleep(pause)


async def _end(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), STOP_S)
        except TimeoutError:
            process.kill()
            await process.wait()


async def _keep_server(server: NatsServer) -> None:
    while True:
        await asyncio.sleep(WATCH_S)
        if not server.running:
            _say("nats-server ended; it starts again")
            try:
                await asyncio.to_thread(server.start)
            except ServerError as error:
                _say(f"{error}; trying again")
                await asyncio.sleep(RESTART_S[1])


async def _serve(options: Options, url: str, stop: asyncio.Event) -> None:
    async with Client(url, org=options.org, cluster=options.cluster, timeout_s=30) as client:
        try:
            await _furnish(client)
            if options.examples is not None:
                await _apply(client, options.examples)
        except (ClientError, InDoubt) as error:
            raise UpError(str(error)) from error
        rows = [row.document for row in await client.list("nodepools") if row.document is not None]
        _say("\n" + options.show(rows))
    _say(_advice(options, url))


async def _furnish(client: Client) -> None:
    """The demo cluster, its machines and quotas; what is there already stays."""
    await client.register_cluster(client.cluster, ZONE)
    there = {row.key for row in await client.list("capacity")}
    limited = {row.key for row in await client.list("quotas")}
    for kind in SITE:
        if f"{ZONE}.{kind.instance_type}" not in limited:
            await client.set_quota(ZONE, kind.instance_type, kind.count)
        if f"{ZONE}.{kind.instance_type}" in there:
            continue
        for first in range(0, kind.count, BATCH):
            await client.add_machines(
                ZONE,
                kind.instance_type,
                min(BATCH, kind.count - first),
                boot_seconds=kind.boot_s,
            )


async def _apply(client: Client, examples: Path) -> None:
    from nodepool.client.manifests import read_manifests

    manifests = [client.addressed(manifest) for manifest in read_manifests([str(examples)])]
    _say(f"applying {len(manifests)} NodePools from {examples}")
    for manifest, outcome in zip(manifests, await client.send_many(manifests), strict=True):
        if isinstance(outcome, ClientError):
            raise UpError(f"{manifest.metadata.name}: {outcome}")
    for manifest in manifests:
        await client.wait(manifest.metadata.name, "AtTarget", timeout_s=TARGET_S)


def _advice(options: Options, url: str) -> str:
    first = "np.cmd.{org}.{cluster}.training.ScaleNodePool"
    subject = first.format(org=options.org, cluster=options.cluster)
    return f"""
Publish commands to {url} on np.cmd.{options.org}.{options.cluster}.<pool>.<Command>, for example
  nats pub {subject} '{{"targetNodes": 12}}'
and see what happens with
  nats sub 'np.evt.*.{options.org}.{options.cluster}.>'
In another terminal, try
  .venv/bin/nodepool get nodepools -w
  .venv/bin/nodepool describe nodepool training
  .venv/bin/nodepool scale nodepool training --target 12
  .venv/bin/nodepool events -w
Ctrl-C stops everything and keeps the data."""


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
