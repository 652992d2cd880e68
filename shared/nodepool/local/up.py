"""The whole control plane on one machine: a nats-server, every service, a simulated data centre."""

import asyncio
import contextlib
import shutil
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from urllib.parse import urlsplit

from nodepool.auth.accounts import ARCHIVER, GATEWAY, OPERATOR, PROVISIONER
from nodepool.auth.plain import nats_options, nats_py_call
from nodepool.client import Client, ClientError, Document
from nodepool.client.session import URL
from nodepool.contract.real_machines import PROVIDER
from nodepool.contract.services import PROCESSES, SERVICES
from nodepool.host.protection import Protection
from nodepool.local.binary import find_server
from nodepool.local.console import report
from nodepool.local.disk import storage_limit
from nodepool.local.errors import ServerError, UpError
from nodepool.local.identities import has_members, linked_operator, make_streams
from nodepool.local.listening import LOCAL_NAMES
from nodepool.local.monitoring import OPEN, write_prometheus_config
from nodepool.local.pages import (
    CONSOLE,
    PORT,
    console_settings,
    describe_console,
    ensure_person,
    links_folder,
)
from nodepool.local.planning import plan_programs
from nodepool.local.ports import HOST, claimed_ports
from nodepool.local.server import NatsServer
from nodepool.local.supervisor import Program, keep_running, keep_server, keep_storing
from nodepool.nats.wire.errors import InDoubt

METRICS_PORT = 9464
"""The first port on which services serve metrics; ports that are in use are skipped."""
LOOK_S = 1.0
"""How often the file of members is read until an organisation has users, in seconds."""
OUTCOME_S = 30.0
"""How long the outcome of a command may take, in seconds."""


@dataclass(frozen=True, slots=True)
class Options:
    """What to run, and where.

    data_dir: the folder of the log and of the services' own log files.
    port: the port on which the nats-server listens.
    binary: the nats-server program; None to find one.
    examples: a folder of manifests to apply at the start; None for none.
    org, cluster: the organisation and cluster that are set up.
    show: returns the text to print about the NodePools once they are at their targets.
    once: whether to stop as soon as everything runs.
    processes: in how many processes the services run; a key of PROCESSES.
    listen: the address on which the nats-server listens.
    protection: who may read the metrics of the services.
    archive: where to archive the log; empty for nowhere.
    inventory: the inventory of real machines; None for no service for them.
    console: whether to serve the console; its first user is added if the organisation has none.
    page_port: the first port to try for it.
    """

    data_dir: Path
    port: int
    binary: str | None
    examples: Path | None
    org: str
    cluster: str
    show: Callable[[Sequence[Document]], str]
    once: bool
    processes: int
    listen: str = HOST
    protection: Protection = OPEN
    archive: str = ""
    inventory: Path | None = None
    console: bool = False
    page_port: int = PORT


def run(options: Options) -> int:
    """Run until SIGINT or SIGTERM and return the exit code; raise `UpError` if the start fails."""
    try:
        binary = find_server(options.binary)
        server = NatsServer(
            options.data_dir, options.port, binary, has_accounts=True, listen=options.listen
        )
        server.start()
    except ServerError as error:
        raise UpError(str(error)) from error
    try:
        groups = PROCESSES[options.processes]
        groups = (*groups, (ARCHIVER,)) if options.archive else groups
        groups = (*groups, (PROVIDER,)) if options.inventory is not None else groups
        if options.console:
            groups = (*groups, (CONSOLE,))
            ensure_person(server.data_dir, server.auth, options.org)
            # Remove the links of a killed start: they no longer sign in.
            shutil.rmtree(links_folder(server.data_dir), ignore_errors=True)
        logs = _log_folder(options.data_dir, groups)
        with (
            claimed_ports(len(groups) + 1, METRICS_PORT) as ports,
            claimed_ports(1, options.page_port) as pages,
            linked_operator(options.port, server.auth, server.authority),
        ):
            limit = storage_limit(server.data_dir)
            programs = plan_programs(
                groups,
                server,
                logs,
                ports,
                limit,
                archive=options.archive,
                own=_own_settings(options, server, pages[0]),
            )
            return asyncio.run(_run_services(options, server, programs))
    finally:
        server.stop()


def _own_settings(options: Options, server: NatsServer, page: int) -> dict[str, Mapping[str, str]]:
    """Return the settings that only one program has, by its name."""
    found = {CONSOLE: console_settings(server.data_dir, server.auth, page)}
    if options.inventory is not None:
        found[PROVIDER] = {"NODEPOOL_INVENTORY": str(options.inventory.absolute())}
    return found


def _log_folder(data_dir: Path, groups: Sequence[Sequence[str]]) -> Path:
    """Return the folder of the services' logs; raise UpError if the logs cannot be written."""
    logs = data_dir / "logs"
    names = [f"{name}.log" for name in (*SERVICES, GATEWAY, ARCHIVER, PROVIDER)]
    names += [f"{first}.err" for first, *_ in (*groups, (GATEWAY,))]
    try:
        logs.mkdir(parents=True, exist_ok=True)
        for name in names:
            with (logs / name).open("ab"):
                pass
    except OSError as error:
        raise UpError(
            f"cannot write the logs of the services: {error.filename}: {error.strerror}: "
            "fix that, or choose another directory"
        ) from error
    return logs


async def _run_services(options: Options, server: NatsServer, programs: Sequence[Program]) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop.set)
    await make_streams(server.url, server.access(PROVISIONER))
    async with _services(options, server, programs):
        setting_up = asyncio.create_task(_set_up(options, server))
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait((setting_up, stopping), return_when=asyncio.FIRST_COMPLETED)
        if setting_up.done():
            setting_up.result()
            if not options.once:
                await stopping
        for task in (setting_up, stopping):
            task.cancel()
        if stop.is_set():
            report("\nstopping; everything is kept in the log for the next start")
    return 0


@contextlib.asynccontextmanager
async def _services(
    options: Options, server: NatsServer, programs: Sequence[Program]
) -> AsyncIterator[None]:
    """Keep the server and every service running inside the context."""
    report(f"the bus listens on {server.url}; data and logs are in {options.data_dir}")
    *services, gateway = programs
    started = programs if has_members(server.auth) else services
    watching = _watch(options, started)
    keepers = [asyncio.create_task(keep_running(program)) for program in started]
    keepers += [asyncio.create_task(keep(server)) for keep in (keep_server, keep_storing)]
    if started is services:
        opening = _keep_gateway(gateway, server, lambda: _watch(options, programs))
        keepers.append(asyncio.create_task(opening))
    report(f"to watch them all: {watching}")
    try:
        yield
    finally:
        for keeper in keepers:
            keeper.cancel()
        await asyncio.gather(*keepers, return_exceptions=True)


def _watch(options: Options, programs: Sequence[Program]) -> str:
    """Report where metrics are; return the command that starts a Prometheus for them."""
    ports = {each.name: int(each.environment["NODEPOOL_METRICS_PORT"]) for each in programs}
    scheme = "https" if options.protection.cert_file else "http"
    for name, port in ports.items():
        report(f"metrics of {name} are on {scheme}://{HOST}:{port}/metrics")
    return write_prometheus_config(options.data_dir, ports, options.protection)


async def _keep_gateway(program: Program, server: NatsServer, watch: Callable[[], str]) -> None:
    """Keep the gateway running once somebody may use it: until then it takes no memory."""
    while not has_members(server.auth):  # noqa: ASYNC110  # Another program writes the file.
        await asyncio.sleep(LOOK_S)
    report("an organisation has users: starting the gateway")
    watch()
    await keep_running(program)


async def _set_up(options: Options, server: NatsServer) -> None:
    """Seed the demo, apply the examples, and print the NodePools and what to try."""
    # Imported here, because it loads the models of all messages: meanwhile, the services start.
    from nodepool.local.demo import apply_examples, seed_demo

    client = Client(
        server.url,
        org=options.org,
        cluster=options.cluster,
        timeout_s=OUTCOME_S,
        access=server.access(OPERATOR),
    )
    async with client:
        try:
            await seed_demo(client)
            if options.examples is not None:
                await apply_examples(client, options.examples)
        except (ClientError, InDoubt) as error:
            raise UpError(str(error)) from error
        await client.nodepools.catch_up()
        pools = [pool.document for pool in await client.nodepools.list()]
        report("\n" + options.show([document for document in pools if document is not None]))
    key = options.data_dir / server.auth.key_file(OPERATOR).relative_to(server.data_dir)
    if server.authority is not None:
        report(_advice_outside(options.port, server.authority))
    if options.console:
        person = ensure_person(server.data_dir, server.auth, options.org)
        report(await describe_console(server.data_dir, options.org, person))
    report(advice(server.url, options.org, options.cluster, key, server.authority))


def advice(url: str, org: str, cluster: str, key: Path, authority: Path | None = None) -> str:
    """Return what to try on the control plane that runs; `authority` is None without TLS."""
    settings = [("URL", url, URL), ("ORG", org, "demo"), ("CLUSTER", cluster, "demo")]
    if authority is not None and urlsplit(url).hostname not in LOCAL_NAMES:
        # Its key is not found by the address.
        settings += [("NKEY_FILE", quote(str(key.absolute())), "")]
        settings += [("CA_FILE", quote(str(authority)), "")]
    unusual = [f"NODEPOOL_{name}={value}" for name, value, usual in settings if value != usual]
    where = f", after 'export {' '.join(unusual)}'," if unusual else ","
    shown = url, OPERATOR, str(key), str(authority or "")
    subject = f"np.cmd.{org}.{cluster}.training.ScaleNodePool"
    return f"""
The server lets in only clients with a key; 'nodepool' finds the operator's by itself. For nats,
  nats context save nodepool {nats_options(*shown)} --select
  nats pub {subject} '{{"targetNodes": 12}}'
  nats sub 'np.evt.*.{org}.{cluster}.*.*'
and for nats-py, with 'pip install nats-py[nkeys]',
  await {nats_py_call(*shown)}
In another terminal{where} try
  .venv/bin/nodepool get nodepools -w
  .venv/bin/nodepool describe nodepool training
  .venv/bin/nodepool scale nodepool training --target 12
  .venv/bin/nodepool events -w
Ctrl-C stops everything and keeps the data."""


def _advice_outside(port: int, authority: Path) -> str:
    """Return how programs of other machines connect."""
    shown = f"NODEPOOL_URL=tls://HOST:{port} NODEPOOL_CA_FILE=ca.pem NODEPOOL_NKEY_FILE=NAME.nk"
    return f"""\
From other machines, with a copy of {authority} and a key of 'nodepool auth add-user':
  {shown} nodepool get nodepools"""
