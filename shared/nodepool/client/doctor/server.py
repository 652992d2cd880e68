"""Whether the server has what the control plane needs, and whether the user may use it."""

import asyncio
from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from nodepool.client.doctor.finding import Finding, note, ok, problem
from nodepool.contract.keys import token
from nodepool.contract.log import MESSAGE_BYTES_MAX, OLDEST_SERVER
from nodepool.nats.log import api
from nodepool.nats.log.figures import storage_of
from nodepool.nats.wire.connection import Connection
from nodepool.nats.wire.errors import Conflict, InDoubt, ServerRefusal
from nodepool.nats.wire.library import NatsError

SKEW_MAX = timedelta(seconds=1)
FULL = 0.9
"""The used fraction of the storage above which the storage is reported as nearly full."""
PERMISSION_S = 2.0
NEVER = {"Nats-Expected-Last-Sequence": str(1 << 60)}
"""Headers that make the stream refuse a message even if the user may publish it."""


class Storing(NamedTuple):
    """How streams must be stored.

    replicas: the expected number of copies of each stream; 0 for the number that the log has.
    limit: how many bytes all copies may take if the account has no limit; None if not known.
    """

    replicas: int = 0
    limit: int | None = None


NOT_KNOWN = Storing()


async def server(connection: Connection, storing: Storing) -> AsyncGenerator[Finding, None]:
    """Yield findings about the server; if the last finding is a problem, no other check can run."""
    info = connection._server_info
    version = str(info.get("version", "unknown"))
    known = tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
    if known < OLDEST_SERVER:
        oldest = ".".join(map(str, OLDEST_SERVER))
        text = f"{version}, and {oldest} or newer is needed"
        yield problem("server version", text, "update the server")
    else:
        yield ok("server version", version)
    if connection.max_payload < MESSAGE_BYTES_MAX:
        text = f"{connection.max_payload} bytes, and {MESSAGE_BYTES_MAX} are needed"
        yield problem("max_payload", text, "set max_payload to 1MB in the server's settings")
    yield await _storage(connection, storing)


async def _storage(connection: Connection, storing: Storing) -> Finding:
    check = "JetStream"
    try:
        account = await api.request(connection, "$JS.API.INFO")
    except InDoubt:
        return problem(check, "it is off, or has no leader", "turn it on in the server's settings")
    except ServerRefusal as refusal:
        fix = "turn it on in the server's settings, and for this account"
        return problem(check, refusal.description, fix)
    except (NatsError, OSError):
        text = "no answer: it is off, or this user may not publish to $JS.API.>, or hears no reply"
        fix = (
            "use the key of the operator, which 'nodepool auth init' makes, or give the user these"
        )
        return problem(check, text, f"{fix} rights and this program its NODEPOOL_INBOX_PREFIX")
    used, most = storage_of(account, storing.replicas or 1)
    fix = "give the account more storage; nothing is stored without"
    if most is None and storing.limit is not None:
        most, fix = (
            storing.limit,
            "raise max_file_store of the server, and NODEPOOL_MAX_FILE_STORE with it",
        )
    if most is None:
        return ok(check, f"{used >> 20} MiB stored")
    if used > FULL * most:
        return problem(check, f"{used >> 20} of {most >> 20} MiB are used", fix)
    return ok(check, f"{used >> 20} MiB stored of {most >> 20}")


async def clock(connection: Connection, stream: str) -> Finding:
    """Return a finding on how far the clock of this machine is from the clock of the server."""
    before = datetime.now(UTC)
    info = await api.request(connection, f"$JS.API.STREAM.INFO.{stream}")
    after = datetime.now(UTC)
    server = api.parse_time(str(info["ts"]))
    ahead = before - server if server < before else server - after
    if ahead <= SKEW_MAX:
        return ok("clock", "as the server's")
    which = "ahead of" if server < before else "behind"
    text = f"this machine is {ahead.total_seconds():.0f} s {which} the server"
    return problem("clock", text, "set both by NTP: a service whose clock is behind is late")


async def may_publish(connection: Connection, org: str) -> Finding:
    """Return a finding on whether this user may publish commands; no command is stored."""
    check, subject = f"commands of {org}", f"np.cmd.{token(org)}._._.SetQuota"
    denied = asyncio.Event()

    def note_error(error: Exception) -> None:
        if "permissions violation for publish" in str(error).lower():
            denied.set()

    connection.on_error.append(note_error)
    asking = asyncio.create_task(_fault(connection, subject))
    waiting = asyncio.create_task(denied.wait())
    try:
        tasks = (asking, waiting)
        await asyncio.wait(tasks, timeout=PERMISSION_S, return_when=asyncio.FIRST_COMPLETED)
        fault = asking.result() if asking.done() else "no reply in time"
    finally:
        connection.on_error.remove(note_error)
        for task in (asking, waiting):
            task.cancel()
        await asyncio.gather(asking, waiting, return_exceptions=True)
    if denied.is_set():
        text = "this user may not send them"
        return note(check, text, f"allow it to publish np.cmd.{org}.*.*.*")
    if fault:
        text = f"they do not reach the log: {fault}"
        return problem(check, text, "see what the server maps their subjects to")
    return ok(check, "this user may send them")


async def _fault(connection: Connection, subject: str) -> str:
    """Return why the log does not take a message on this subject; empty if it would."""
    try:
        await api.publish(connection, subject, b"{}", NEVER)
    except Conflict:
        return ""
    except (ServerRefusal, InDoubt) as error:
        return str(error)
    return "another stream takes them"
