"""Whether each service is at work."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from datetime import UTC, datetime, timedelta

from nodepool.client.contents import attributes_of
from nodepool.client.doctor.finding import FAULTS, Finding, fault_of, note, ok, problem
from nodepool.contract.log import Entry
from nodepool.contract.services import OPTIONAL, REPLACEABLE
from nodepool.nats.log import api
from nodepool.nats.log.reader import Reader
from nodepool.nats.log.replicas import Replicas, replicas
from nodepool.nats.log.streams import STREAM
from nodepool.nats.wire.connection import Connection
from nodepool.service import AnyService, commit_subject

PATIENCE = timedelta(seconds=10)
"""How long a command may wait for its outcome before the service is reported."""
READ_S = 5.0
LOOKED_AT_MAX = 10_000
"""How many commands after a service's last commit are searched for a waiting command."""


async def services(
    connection: Connection, known: Sequence[AnyService], own: str
) -> AsyncGenerator[Finding, None]:
    """Yield a finding for each service; `own` is the version of this program."""
    readers = await replicas(connection)
    at_work = {each.service for each in readers.at_work}
    checked = [
        service
        for service in known
        if service.name in at_work or await is_needed(connection, service.name)
    ]
    for finding in await asyncio.gather(
        *(_guard_check(connection, service, readers, own) for service in checked)
    ):
        yield finding


async def is_needed(connection: Connection, name: str) -> bool:
    """Return whether a service has to be at work: an optional one only if it once was."""
    if name not in OPTIONAL:
        return True
    return await api.last_message(connection, STREAM, commit_subject(name)) is not None


async def _guard_check(
    connection: Connection, service: AnyService, readers: Replicas, own: str
) -> Finding:
    """Return the finding of a service, or the fault of its check, so that other checks go on."""
    try:
        return await _service(connection, service, readers, own)
    except FAULTS as error:
        return fault_of(f"service {service.name}", error)


async def _service(
    connection: Connection, service: AnyService, readers: Replicas, own: str
) -> Finding:
    check = f"service {service.name}"
    versions = {
        each.version: count
        for each, count in readers.at_work.items()
        if each.service == service.name
    }
    record = await api.last_message(connection, STREAM, commit_subject(service.name))
    committed = _read_position(record)
    is_unused = not versions and record is None and service.name in REPLACEABLE
    if is_unused and await _waiting(connection, service, committed) is None:
        text = "not at work, and has never been: something else is in its place, or is to be"
        return note(check, text, f"to simulate machines: python -m {service.name}")
    if not versions:
        return _report_absence(
            check, service.name, record, is_silent=bool(readers.silent[service.name])
        )
    waiting = await _waiting(connection, service, committed)
    if waiting is not None:
        age = (datetime.now(UTC) - waiting.time).total_seconds()
        name = waiting.subject.rpartition(".")[2]
        text = f"{name} at position {waiting.position} waits for {age:.0f} s"
        fix = (
            f"see its log, and what 'nodepool skip {service.name}' shows; "
            "kill the process (SIGKILL) if its /livez does not respond"
        )
        return problem(check, text, fix)
    count = sum(versions.values())
    text = f"{count} replica{'s' * (count > 1)}, committed to {committed}"
    others = ", ".join(sorted(version for version in versions if version != own))
    if others:
        return note(
            check, f"{text}; version {others}, and this command is {own}", "update the rest"
        )
    return ok(check, text)


def _report_absence(check: str, name: str, record: Entry | None, *, is_silent: bool) -> Finding:
    """Return the problem that no replica reads the log, whether or not one still has a consumer."""
    since = f"it committed last at {record.time:%Y-%m-%dT%H:%M:%SZ}" if record else "nothing yet"
    if is_silent:
        text = f"a replica has stopped reading the log: it hangs, or has just ended; {since}"
        fix = "look at its /livez; kill the process (SIGKILL) if it is there, then"
    else:
        text = f"no replica reads the log; {since}"
        fix = "kill the process if it is there, because it hangs; then start it"
    return problem(check, text, f"{fix}: python -m {name}")


def _read_position(record: Entry | None) -> int:
    """Return the position in a commit record; 0 if no record can be read."""
    position = attributes_of(record).get("position") if record is not None else None
    return position if isinstance(position, int) and position > 0 else 0


async def _waiting(connection: Connection, service: AnyService, committed: int) -> Entry | None:
    """Return the first command that has waited too long for the service to process it.

    Raises TimeoutError if stored messages do not arrive in time.
    """
    filters = [subject for subject in service.filters() if subject.startswith("np.cmd.")]
    if not filters:
        return None
    reader = Reader(connection, STREAM, filters, start=committed + 1)
    late, seen = datetime.now(UTC) - PATIENCE, 0
    try:
        async with asyncio.timeout(READ_S):
            await reader.open()
        while reader.pending and seen < LOOKED_AT_MAX:
            entries = await reader.next(READ_S)
            if not entries:
                raise TimeoutError
            seen += len(entries)
            for entry in entries:
                if entry.time > late:
                    return None
                if service.is_input(entry.subject):
                    return entry
    finally:
        await reader.close()
    return None
