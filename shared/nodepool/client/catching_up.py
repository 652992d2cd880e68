"""Waiting until the read model shows the changes that the log has accepted."""

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from nodepool.client.accepted import DELETED, DELETING, VALIDATED
from nodepool.client.session import Session
from nodepool.contract.buckets import Bucket
from nodepool.contract.keys import name_at
from nodepool.contract.log import Entry
from nodepool.nats.stored_objects import NOTHING, key_fault, stored_object, subject_of_object
from nodepool.nats.streams import STREAM

CATCH_UP_S: Final = 2.0
"""How long the read model may take to show what the log has accepted, in seconds."""
PAUSE_S: Final = 0.01
"""The pause before the read model is read again, in seconds."""


class _Changes(NamedTuple):
    """The events with which commands change the objects of a bucket.

    events: the events, each by its service and name.
    place: the part of their subjects that names the owner; contains {org} and {cluster}.
    key: returns the parts of the object's key, from the parts of the event's subject and the
        event's fields.
    """

    events: tuple[tuple[str, str], ...]
    place: str
    key: Callable[[list[str], Mapping[str, str]], tuple[str, ...]]


_CHANGES: Final[Mapping[Bucket, _Changes]] = {
    "nodepools": _Changes(
        (VALIDATED, DELETING, DELETED), "{org}.{cluster}.*", lambda path, _: tuple(path)
    ),
    "nodes": _Changes(
        (
            ("allocator", "CWNodeAssigned"),
            ("lifecycle", "NodeUpdated"),
            ("lifecycle", "CWNodeDeleted"),
        ),
        "{org}.{cluster}.*",
        lambda path, fields: (path[0], path[1], fields["node"]),
    ),
    "quotas": _Changes(
        (("quota", "QuotaSet"), ("quota", "QuotaDeleted")),
        "{org}.*.*",
        lambda path, fields: (path[0], fields["zone"], fields["instanceType"]),
    ),
    "capacity": _Changes(
        (("allocator", "CapacityReclaimed"),),
        "fleet.*.*",
        lambda path, fields: (path[1], fields["instanceType"]),
    ),
    "clusters": _Changes(
        (("validator", "ClusterRegistered"),), "{org}.*.*", lambda path, _: (path[0], path[1])
    ),
}
_DELETIONS: Final = frozenset({"CWNodePoolDeleted", "CWNodeDeleted", "QuotaDeleted"})


async def catch_up(session: Session, bucket: Bucket, *, everywhere: bool) -> bool:
    """Wait until the read model shows what the log has accepted about the objects of a bucket.

    The objects are written in the order in which they change, so it is enough to check the object
    that changed last. Machines change by what is observed of them, so the function does not wait
    for machines.

    Returns False if the read model is still behind after `CATCH_UP_S` seconds.
    """
    changes = _CHANGES.get(bucket)
    if changes is None:
        return True
    org, cluster = ("*", "*") if everywhere else (session.org, session.cluster)
    place = changes.place.format(org=org, cluster=cluster)
    await session.last_position()  # Waits if the control plane is still starting.
    last = await asyncio.gather(
        *(
            session.last_message(STREAM, f"np.evt.{service}.{place}.{name}", from_leader=True)
            for service, name in changes.events
        )
    )
    newest = max(filter(None, last), key=lambda entry: entry.position, default=None)
    subject = _object_of(newest, bucket, changes) if newest is not None else None
    if newest is None or subject is None:
        return True
    clock = asyncio.get_running_loop().time
    ends = clock() + CATCH_UP_S
    while not await _shows(session, bucket, subject, newest):
        if clock() >= ends:
            return False
        await asyncio.sleep(PAUSE_S)
    return True


async def _shows(session: Session, bucket: Bucket, subject: str, change: Entry) -> bool:
    """Return whether the object on this subject is as new as this event about it."""
    entry = await session.last_message(f"KV_{bucket}", subject, from_leader=True)
    stored = NOTHING if entry is None else stored_object(entry.headers, entry.position)
    is_deletion = change.subject.rpartition(".")[2] in _DELETIONS
    return stored.version >= change.position or (stored.deleted and is_deletion)


def _object_of(change: Entry, bucket: Bucket, changes: _Changes) -> str | None:
    """Return the subject of the object of an event; None if services cannot read the event.

    Never raises because of the content: any client that may publish can have written it.
    """
    *_, first, second, third, _name = change.subject.split(".")
    try:
        fields = json.loads(change.content)["data"]
        parts = changes.key([name_at(each) for each in (first, second, third)], fields)
        key = (bucket, "/".join(parts))
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    return subject_of_object(key) if key_fault(key) is None else None
