"""What is missing for a NodePool whose object is being deleted?"""

from collections.abc import Sequence
from typing import Final

from agent.actions import Action
from agent.agreement import agreement_of
from agent.bus import Attempt, Log, WantedPool
from agent.cluster import PoolObject
from agent.place import Place
from agent.pool_actions import release, send_deletion, tell_failure
from nodepool.contract.model import FINALIZER

GONE: Final = ("NotFound", "Conflict")
"""Why a deletion is refused where there is no NodePool of its uid any more."""


def deletion(
    wanted: WantedPool | None,
    found: PoolObject,
    attempt: Attempt | None,
    log: Log,
    place: Place,
    was_deleted: bool,
) -> Sequence[Action]:
    """The actions that end the NodePool on the bus first, and then let the object go.

    attempt: the command that was sent last; it has an outcome, which the read model shows.
    was_deleted: whether the bus has deleted the NodePool that both sides agreed on.
    """
    if FINALIZER not in found.finalizers or (wanted is not None and wanted.deleting):
        return ()
    agreement = agreement_of(found)
    uid = agreement.uid if agreement is not None and agreement.log == log.id else None
    is_another = wanted is not None and uid not in (None, wanted.uid)
    if was_deleted or is_another:
        return (release(found),)
    id = f"{found.uid}.delete"
    if attempt is None or attempt.id != id:
        uid = uid or (wanted.uid if wanted is not None else None)
        return (send_deletion(found, uid, place, id),)
    if attempt.outcome == "accepted" or attempt.reason in GONE:
        # Where there is one of its name now, it is another that was created since.
        return (release(found),)
    return (tell_failure(found, f"{attempt.field}: {attempt.message}".removeprefix(": ")),)
