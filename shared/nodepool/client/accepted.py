"""What the log says of a NodePool, and whether an object of the read model is behind it.

It is read without the models of messages, which take longer to load than all else that reading
needs.
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
"""Events by service and name."""
State = Literal["stored", "deleting", "deleted"]
_POSITION = re.compile("[0-9]{1,18}")


class Accepted(NamedTuple):
    """What the log says of a NodePool.

    uid: which one of its name it is.
    generation: its newest one.
    position: where that was accepted.
    state: what became of it there; of a deleted one, nothing but the position is known.
    """

    uid: str
    generation: int
    position: int
    state: State = "stored"


async def read_accepted(
    last_event: Callable[[tuple[str, str]], Awaitable[Entry | None]],
) -> Accepted | None:
    """What the log says of a NodePool; None where it never existed.

    last_event: reads the newest event about it, by service and name; None where there is none.
    """
    stored, deleting, deleted = await asyncio.gather(
        *(last_event(event) for event in (VALIDATED, DELETING, DELETED))
    )
    return accepted_by(stored, deleting, deleted)


def accepted_by(
    stored: Entry | None, deleting: Entry | None, deleted: Entry | None
) -> Accepted | None:
    """Return what the newest events of a NodePool say of it; None where it never existed."""
    if stored is None:
        return None
    if deleted is not None and deleted.position > stored.position:
        return Accepted("", 0, deleted.position, "deleted")
    if deleting is not None and deleting.position > stored.position:
        return accepted_in(deleting, "deleting")
    return accepted_in(stored)


def accepted_in(entry: Entry, state: State = "stored") -> Accepted | None:
    """What an event says of its NodePool; None where it cannot be read."""
    try:
        values = json.loads(entry.content)["data"]
        uid, generation = values["uid"], values["generation"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    if not (isinstance(uid, str) and isinstance(generation, int)):
        return None
    return Accepted(uid, generation, entry.position, state)


def is_outdated(document: Mapping[str, object], accepted: Accepted | None) -> bool:
    """Whether a NodePool of the read model is older than what the log has accepted.

    That is: one that is deleted, an earlier one of the same name, an earlier generation, or one
    that does not know that it is being deleted; and which was last changed before that.
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
