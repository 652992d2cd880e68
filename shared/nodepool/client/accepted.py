"""What the log says about a NodePool, and whether an object of the read model is behind the log.

This module does not use the message models, which take longer to load than everything else that
a reading client needs.
"""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Literal, NamedTuple

from nodepool.contract.log import Entry

VALIDATED: Final = ("validator", "NodePoolValidated")
DELETING: Final = ("validator", "NodePoolDeleting")
DELETED: Final = ("validator", "CWNodePoolDeleted")
"""Events, each by its service and name."""
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
    """Return what the log says of a NodePool; None if the NodePool never existed.

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
    """Return what the newest events of a NodePool say of it; None if it never existed."""
    if stored is None:
        return None
    if deleted is not None and deleted.position > stored.position:
        return Accepted("", 0, deleted.position, "deleted")
    if deleting is not None and deleting.position > stored.position:
        return accepted_in(deleting, "deleting")
    return accepted_in(stored)


def accepted_in(entry: Entry, state: State = "stored") -> Accepted | None:
    """Return what an event says of its NodePool; None if the event cannot be read."""
    try:
        values = json.loads(entry.content)["data"]
        uid, generation = values["uid"], values["generation"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
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
