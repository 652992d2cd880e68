"""What the log has accepted, and whether the read model shows it yet.

This module does not use the message models, which take longer to load than everything else that
a reading client needs.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Literal, NamedTuple

from nodepool.client.contents import data_of
from nodepool.client.session import Session
from nodepool.contract.buckets import Bucket
from nodepool.contract.keys import name_at
from nodepool.contract.log import Entry
from nodepool.nats.log.streams import STREAM
from nodepool.nats.objects.stored_objects import (
    NOTHING,
    ObjectKey,
    key_fault,
    stored_object,
    subject_of_object,
)

VALIDATED: Final = ("validator", "NodePoolValidated")
DELETING: Final = ("validator", "NodePoolDeleting")
DELETED: Final = ("validator", "CWNodePoolDeleted")
"""Events, each by its service and name."""
CATCH_UP_S: Final = 2.0
"""How long the read model may take to show what the log has accepted, in seconds."""
PAUSE_S: Final = 0.01
"""The pause before the read model is read again, in seconds."""
State = Literal["stored", "deleting", "deleted"]
_POSITION = re.compile("[0-9]{1,18}")


class Accepted(NamedTuple):
    """What the log says about a NodePool.

    uid: the uid of the NodePool; empty if the NodePool is deleted.
    generation: the newest generation; 0 if the NodePool is deleted.
    position: the position of the newest accepted change in the log.
    state: the state of the NodePool after this change.
    """

    uid: str
    generation: int
    position: int
    state: State = "stored"


async def read_accepted(
    last_event: Callable[[tuple[str, str]], Awaitable[Entry | None]],
) -> Accepted | None:
    """Return what the log says of a NodePool; None if it says nothing.

    The NodePool never existed, or nothing was accepted about it since the log was trimmed: then the
    read model shows it as it is.

    last_event: reads the newest event of a service and name about the NodePool; None if the log
        has no such event.
    """
    stored, deleting, deleted = await asyncio.gather(
        *(last_event(event) for event in (VALIDATED, DELETING, DELETED))
    )
    return accepted_by(stored, deleting, deleted)


def accepted_by(
    stored: Entry | None, deleting: Entry | None, deleted: Entry | None
) -> Accepted | None:
    """Return what the newest events of a NodePool say of it; None if the log has none."""
    position = 0 if stored is None else stored.position  # It may have been trimmed.
    if deleted is not None and deleted.position > position:
        return Accepted("", 0, deleted.position, "deleted")
    if deleting is not None and deleting.position > position:
        return accepted_in(deleting, "deleting")
    return None if stored is None else accepted_in(stored)


def accepted_in(entry: Entry, state: State = "stored") -> Accepted | None:
    """Return what an event says of its NodePool; None if the event cannot be read."""
    data = data_of(entry)
    uid, generation = data.get("uid"), data.get("generation")
    if not (isinstance(uid, str) and isinstance(generation, int)):
        return None
    return Accepted(uid, generation, entry.position, state)


def is_outdated(document: Mapping[str, object], accepted: Accepted | None) -> bool:
    """Return whether a NodePool of the read model is older than what the log has accepted.

    An outdated NodePool was last changed before the accepted event. In addition, it is deleted in
    the log, or has an earlier generation or another uid than the log, or lacks the
    deletionTimestamp of a deletion that the log has accepted.
    """
    metadata = document.get("metadata")
    if accepted is None or not isinstance(metadata, Mapping):
        return False
    version, generation = str(metadata.get("resourceVersion", "")), metadata.get("generation")
    if _POSITION.fullmatch(version) and int(version) >= accepted.position:
        return False
    if accepted.state == "deleted":
        return True
    is_earlier = isinstance(generation, int) and generation < accepted.generation
    is_unaware = accepted.state == "deleting" and "deletionTimestamp" not in metadata
    return is_earlier or is_unaware or metadata.get("uid", accepted.uid) != accepted.uid


class BucketChanges(NamedTuple):
    """The events with which commands change the objects of a bucket.

    events: the events, each by its service and name.
    place: the part of their subjects that names the owner; contains {org} and {cluster}.
    key: returns the parts of the object's key, from the parts of the event's subject and the
        event's fields.
    """

    events: tuple[tuple[str, str], ...]
    place: str
    key: Callable[[list[str], Mapping[str, str]], tuple[str, ...]]


CHANGES: Final[Mapping[Bucket, BucketChanges]] = {
    "nodepools": BucketChanges(
        (VALIDATED, DELETING, DELETED), "{org}.{cluster}.*", lambda path, _: tuple(path)
    ),
    "nodes": BucketChanges(
        (
            ("allocator", "CWNodeAssigned"),
            ("lifecycle", "NodeUpdated"),
            ("lifecycle", "CWNodeDeleted"),
        ),
        "{org}.{cluster}.*",
        lambda path, fields: (path[0], path[1], fields["node"]),
    ),
    "quotas": BucketChanges(
        (("quota", "QuotaSet"), ("quota", "QuotaDeleted")),
        "{org}.*.*",
        lambda path, fields: (path[0], fields["zone"], fields["instanceType"]),
    ),
    "capacity": BucketChanges(
        (("allocator", "CapacityReclaimed"),),
        "fleet.*.*",
        lambda path, fields: (path[1], fields["instanceType"]),
    ),
    "clusters": BucketChanges(
        (("validator", "ClusterRegistered"),), "{org}.*.*", lambda path, _: (path[0], path[1])
    ),
}
_DELETIONS: Final = frozenset({"CWNodePoolDeleted", "CWNodeDeleted", "QuotaDeleted"})


async def catch_up(session: Session, bucket: Bucket, *, everywhere: bool = False) -> bool:
    """Wait until the read model shows what the log has accepted about the objects of a bucket.

    With `everywhere`, the objects of all organisations and clusters are included. The objects are
    written in the order in which they change, so it is enough to check the object that changed
    last. Machines change by what is observed of them, so the function does not wait for machines.

    Returns False if the read model is still behind after `CATCH_UP_S` seconds: nothing writes it
    now, or the object cannot be stored.
    """
    changes = CHANGES.get(bucket)
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
    key = key_of_change(newest, bucket) if newest is not None else None
    if newest is None or key is None:
        return True
    clock = asyncio.get_running_loop().time
    ends = clock() + CATCH_UP_S
    while not await _shows(session, key, newest):
        if clock() >= ends:
            return False
        await asyncio.sleep(PAUSE_S)
    return True


async def _shows(session: Session, key: ObjectKey, change: Entry) -> bool:
    """Return whether this object is as new as this event about it."""
    subject = subject_of_object(key)
    entry = await session.last_message(f"KV_{key[0]}", subject, from_leader=True)
    stored = NOTHING if entry is None else stored_object(entry.headers, entry.position)
    return shows(stored.version, change, deleted=stored.deleted)


def shows(version: int, change: Entry, *, deleted: bool) -> bool:
    """Return whether an object of this version is as new as an event about it.

    deleted: whether the object is deleted, or does not exist.
    """
    is_deletion = change.subject.rpartition(".")[2] in _DELETIONS
    return version >= change.position or (deleted and is_deletion)


def key_of_change(change: Entry, bucket: Bucket) -> ObjectKey | None:
    """Return the object that an event of `CHANGES` is about; None if services cannot read it.

    Never raises because of the content: any client that may publish can have written it.
    """
    *_, first, second, third, _name = change.subject.split(".")
    fields = {name: text for name, text in data_of(change).items() if isinstance(text, str)}
    try:
        parts = CHANGES[bucket].key([name_at(each) for each in (first, second, third)], fields)
    except LookupError:
        return None
    key = (bucket, "/".join(parts))
    return key if fields and key_fault(key) is None else None
