"""Whether all streams are configured as services create them, and all their copies complete."""

from collections.abc import AsyncGenerator, Mapping, Sequence

from nodepool.archive.floor import ABSENT, list_services
from nodepool.client.doctor.finding import Finding, note, ok, problem
from nodepool.client.doctor.services import is_needed
from nodepool.nats.log.api import Json
from nodepool.nats.log.figures import followers
from nodepool.nats.log.streams import STREAM, stream_info, streams, whole_stream_info
from nodepool.nats.objects.floor_facts import find_standings
from nodepool.nats.objects.snapshots import stored_position
from nodepool.nats.wire.connection import Connection
from nodepool.service import AnyService

FULL = 0.9
TRIMMING = "trimming"
PAGE = "deploy/RETENTION.md"
_SEALED = "it is sealed: it takes no messages any more, and cannot be unsealed"
_AGAIN = "while the services are at work: they make it again, and fill it"
MISSING = "it is missing"
_COPIES = "num_replicas"
_ASYNC = "persist_mode"
"""How a stream with one copy is written; a stream that had several copies keeps its old value."""
_LOSING: Mapping[str, object] = {
    "retention": "limits",
    "max_age": 0,
    "max_msgs": -1,
    "max_msgs_per_subject": -1,
    "max_msg_size": -1,
    "no_ack": False,
    "sealed": False,
}
"""Settings with the values that they must have; with other values, a stream loses messages."""


async def check_streams(connection: Connection, replicas: int) -> AsyncGenerator[Finding, None]:
    """Yield a finding for each stream that is not stored as expected, and for the log.

    replicas: the expected number of copies; 0 for the number that the log has.
    """
    log = await whole_stream_info(connection, STREAM)
    if log is None:
        yield problem("log", "there is none", "start the services, which create it")
        return
    copies = replicas or int(str(_object(log, "config").get(_COPIES, 1)))
    whole = True
    for name, config in streams(copies).items():
        info = log if name == STREAM else await whole_stream_info(connection, name)
        async for finding in _stream(name, info, config):
            whole = False
            yield finding
    if copies == 1 and "cluster" in connection._server_info:
        text = "1 copy of each stream, in a cluster: what one server alone has is gone with it"
        yield note("copies", text, "set NODEPOOL_REPLICAS=3 for the services, and restart them")
    state = _object(log, "state")
    size = int(str(state.get("bytes", 0)))
    if whole:
        text = f"{state.get('messages')} messages, {size >> 20} MiB, {_copies(copies)} each"
        yield ok("log", text)
    most = int(str(_object(log, "config").get("max_bytes", -1)))
    if most > 0 and size > FULL * most:
        text = f"{size >> 20} of {most >> 20} MiB are used"
        fix = "raise max_bytes of the stream NODEPOOL, or have the archiver trim it"
        yield problem("log size", text, fix)
    if _object(log, "config").get("deny_purge"):
        text = "the log can never be trimmed: an early release has made it"
        yield note(TRIMMING, text, f"back it up and restore it: see {PAGE}")


async def _stream(
    name: str, info: Json | None, config: Mapping[str, object]
) -> AsyncGenerator[Finding, None]:
    check = f"stream {name}"
    if info is None:
        yield problem(check, MISSING, "restart a service, which creates it")
        return
    there = _object(info, "config")
    if there.get("sealed"):
        yield problem(check, _SEALED, _remedy_of_a_sealed(name))
        return
    wanted = {**_LOSING, **config}
    wrong = [key for key, value in wanted.items() if _differs(key, there.get(key), value)]
    if _COPIES in wrong:
        text = f"{_copies(int(str(there.get(_COPIES, 1))))} instead of {config[_COPIES]}"
        yield problem(check, text, "set NODEPOOL_REPLICAS for the services, and restart one")
    others = [key for key in wrong if key != _COPIES]
    if others:
        are = "are not as the services set them" if others[1:] else "is not as the services set it"
        text = f"{', '.join(others)} {are}"
        yield problem(check, text, "restart a service, which sets it again")
    for text in _lagging(_object(info, "cluster")):
        yield problem(check, text, "start that server, or see why it cannot follow")


def _remedy_of_a_sealed(name: str) -> str:
    if name != STREAM:
        return f"nats stream rm {name}, {_AGAIN}"
    return "stop the services; nodepool backup FOLDER; nodepool restore FOLDER --force; start them"


async def beginning(
    connection: Connection, known: Sequence[AnyService]
) -> AsyncGenerator[Finding, None]:
    """Yield a finding if the log lost its head: whether each service has a snapshot beyond it."""
    check = "beginning of the log"
    log = await stream_info(connection, STREAM)
    if log is None or log.first <= 1:
        return
    stored = {
        service.name: await stored_position(connection, service.name, log.log)
        for service in known
        if await is_needed(connection, service.name)
    }
    without = sorted(name for name, position in stored.items() if position < log.first - 1)
    if not without:
        text = f"it begins at position {log.first}, and each service has a snapshot beyond it"
        yield note(check, text, f"let nothing but the archiver trim it: see {PAGE}")
        return
    text = f"it begins at position {log.first}, without a snapshot of {', '.join(without)}"
    fix = "a service that is ready saves one itself; else nodepool restore FOLDER --force"
    yield problem(check, text, fix)


async def floor(
    connection: Connection, known: Sequence[AnyService]
) -> AsyncGenerator[Finding, None]:
    """Yield a finding if a service needs so much of the log that little can be trimmed."""
    log = await stream_info(connection, STREAM)
    if log is None:
        return
    standings = await find_standings(connection, log, [service.name for service in known])
    for holder in list_services(standings, log.last):
        needed = log.last - max(holder.first, log.first)
        if needed > ABSENT:
            text = f"{holder.name} needs the last {needed} positions: {holder.why}"
            fix = f"start {holder.name}, or see why it saves no snapshot: python -m {holder.name}"
            yield note(TRIMMING, text, fix)


def _differs(key: str, there: object, wanted: object) -> bool:
    if key in ("metadata", _ASYNC):
        return False
    if isinstance(there, list) and isinstance(wanted, list):
        return sorted(there) != sorted(wanted)
    return there != wanted and not (there is None and not wanted)


def _lagging(cluster: Json) -> list[str]:
    """Return what is wrong with the copies of a stream, per server that holds a copy."""
    faults = [] if cluster.get("leader") or not cluster else ["it has no leader"]
    for copy in followers(cluster):
        match copy.state:
            case "offline":
                faults.append(f"its copy on {copy.server} is offline")
            case "lagging" if copy.lag == 0:
                faults.append(f"its copy on {copy.server} does not follow")
            case "lagging":
                faults.append(f"its copy on {copy.server} is {copy.lag} behind")
    return faults


def _object(info: Json, name: str) -> Json:
    part = info.get(name)
    return part if isinstance(part, dict) else {}


def _copies(number: int) -> str:
    return "1 copy" if number == 1 else f"{number} copies"
