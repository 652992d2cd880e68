"""All checks in order; a check is skipped if a check that it depends on has failed."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, suppress
from functools import partial

from nodepool.client.backend import Through
from nodepool.client.client import Client
from nodepool.client.doctor import agents, letters, log, objects, reaching, server, services
from nodepool.client.doctor.finding import FAULTS, Finding, fault_of, ok, problem
from nodepool.client.doctor.gateway import GATEWAY, gateway, gateway_replicas
from nodepool.client.doctor.log import MISSING
from nodepool.client.doctor.server import NOT_KNOWN, Storing
from nodepool.nats.log.streams import STREAM
from nodepool.nats.wire.access import NO_ACCESS, Access
from nodepool.nats.wire.connection import Connection, connect
from nodepool.nats.wire.errors import AccessError, ServerUnreachable
from nodepool.nats.wire.library import NatsError
from nodepool.service import AnyService

CONNECT_S = 5.0
REPLY_S = 2.0
"""How long a server may take to reply to a ping, in seconds."""
CHECK_S = 30.0
"""How long a check may take to return its next finding, in seconds."""

READ_MODEL = "read model"
Check = Callable[[], AsyncGenerator[Finding, None]]
Checks = Sequence[tuple[str, Check]]


async def examine(
    url: str,
    known: Sequence[AnyService],
    *,
    access: Access = NO_ACCESS,
    org: str = "demo",
    storing: Storing = NOT_KNOWN,
    version: str = "unknown",
    through: Through | None = None,
) -> AsyncIterator[Finding]:
    """Yield the findings about a set-up, in the order in which to fix them.

    known: the services that are expected to run.
    storing: how streams are expected to be stored.
    version: the version of this program.
    through: how clients work, as `Client` takes it.
    """
    addresses = await reaching.reachable(url)
    for finding in (*reaching.files(access), *addresses):
        yield finding
    if {finding.status for finding in addresses} == {"problem"}:
        return
    connection = await _connect(url, access)
    if isinstance(connection, Finding):
        yield connection
        return
    try:
        client = Client(url, org=org, access=access, timeout_s=CONNECT_S, through=through)
        checks = _checks(connection, known, org, storing, version)
        if client.session.through == "gateway":
            checks = (checks[0], (GATEWAY, partial(gateway, client)))
        else:
            at_gateway = (f"service {GATEWAY}", partial(gateway_replicas, client, access))
            checks = (*checks, at_gateway, *_checks_of_content(connection, url, access, version))
        async with aclosing(_run_checks(connection, checks)) as findings:
            async for finding in findings:
                yield finding
    finally:
        with suppress(NatsError, OSError):
            await connection.close()


async def _connect(url: str, access: Access) -> Connection | Finding:
    """Return a connection, or why there is none."""
    try:
        return await connect(url, "nodepool-doctor", patience_s=CONNECT_S, access=access)
    except ServerUnreachable as error:
        return reaching.unreachable(url, error.reason)
    except AccessError as error:
        return problem(f"NODEPOOL_{error.field.upper()}", str(error), "correct it")


def _checks(
    connection: Connection, known: Sequence[AnyService], org: str, storing: Storing, own: str
) -> Checks:
    """Return the checks to make on the connection, each with its name."""

    async def clock() -> AsyncGenerator[Finding, None]:
        yield await server.clock(connection, STREAM)

    async def permission() -> AsyncGenerator[Finding, None]:
        yield await server.may_publish(connection, org)

    return (
        ("connection", partial(_check_connection, connection)),
        ("server", partial(server.server, connection, storing)),
        ("log", partial(log.check_streams, connection, storing.replicas)),
        ("beginning of the log", partial(log.beginning, connection, known)),
        (log.TRIMMING, partial(log.floor, connection, known)),
        ("clock", clock),
        (f"commands of {org}", permission),
        ("services", partial(services.services, connection, known, own)),
    )


def _checks_of_content(connection: Connection, url: str, access: Access, own: str) -> Checks:
    """Return the checks of what is stored, each with its name."""
    return (
        ("dead letters", partial(_dead_letters, url, access)),
        (READ_MODEL, partial(_objects, connection, url, access, own)),
    )


async def _check_connection(connection: Connection) -> AsyncGenerator[Finding, None]:
    yield ok("connection", _encryption(connection))
    for finding in reaching.certificate_soon_over(connection):
        yield finding


async def _dead_letters(url: str, access: Access) -> AsyncGenerator[Finding, None]:
    async with Client(url, access=access, timeout_s=CONNECT_S) as client:
        yield await letters.dead_letters(client.admin)


async def _objects(
    connection: Connection, url: str, access: Access, own: str
) -> AsyncGenerator[Finding, None]:
    async with Client(url, access=access, timeout_s=CONNECT_S) as client:
        async for finding in objects.objects(client):
            yield finding
        async for finding in agents.agents(connection, client, own):
            yield finding


async def _run_checks(connection: Connection, checks: Checks) -> AsyncGenerator[Finding, None]:
    """Yield the findings of the checks, until the server no longer replies or lacks the log.

    A check that fails does not keep the next checks from running.
    """
    seen: list[Finding] = []
    for name, check in checks:
        lacks_buckets = any(
            each.check.startswith("stream KV_") and each.text == MISSING for each in seen
        )
        if name == READ_MODEL and lacks_buckets:
            return
        first = len(seen)
        async with aclosing(_guard_check(name, check)) as findings:
            async for finding in findings:
                seen.append(finding)
                yield finding
        problems = {each.check for each in seen[first:] if each.status == "problem"}
        if problems and not await _replies(connection):
            fix = "see whether it still runs, and look again"
            yield problem("server", "it does not reply any more", fix)
            return
        if problems & {"JetStream", "log"}:
            return


async def _guard_check(name: str, check: Check) -> AsyncGenerator[Finding, None]:
    """Yield the findings of a check, and the fault that ended the check early."""
    async with aclosing(check()) as findings:
        try:
            while True:
                async with asyncio.timeout(CHECK_S):
                    finding = await anext(findings, None)
                if finding is None:
                    return
                yield finding
        except FAULTS as error:
            yield fault_of(name, error)


async def _replies(connection: Connection) -> bool:
    """Return whether the server still replies to a ping."""
    try:
        await connection.flush(REPLY_S)  # type: ignore[arg-type]  # It takes floats too.
    except (NatsError, OSError):
        return False
    return True


def _encryption(connection: Connection) -> str:
    info = connection._server_info
    name, scheme = info.get("server_name") or info.get("server_id"), connection.address
    is_encrypted = bool(info.get("tls_required")) or scheme.startswith(("tls://", "wss://"))
    return f"{scheme} is {name}, {'encrypted' if is_encrypted else 'not encrypted'}"
