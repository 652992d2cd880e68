"""What is missing for a NodePool whose object is being deleted?"""

from collections.abc import Sequence

from agent.actions import Action
from agent.agreement import agreement_of
from agent.bus import Attempt, Log, WantedPool
from agent.cluster import PoolObject
from agent.place import Place
from agent.pool_actions import release, send_deletion, tell_failure
from nodepool.contract.model import FINALIZER


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
    first = f"{found.uid}.delete"
    done = attempt if attempt is not None and attempt.id.startswith(first) else None
    if was_deleted or _is_another(wanted, found, log):
        return (release(found),)
    if done is None:
        return (send_deletion(found, wanted, place, first),)
    if done.outcome == "accepted" or wanted is None:
        # Where there is one now, it is another that was created since.
        return (release(found),)
    if done.reason == "NotFound":
        return ()  # The read model is about to show that.
    again = f"{first}.{wanted.version}"
    if done.id != again:
        return (send_deletion(found, wanted, place, again),)
    return (tell_failure(found, f"{done.field}: {done.message}".removeprefix(": ")),)


def _is_another(wanted: WantedPool | None, found: PoolObject, log: Log) -> bool:
    """Whether the NodePool on the bus is another than the one that the object stood for."""
    agreement = agreement_of(found)
    if wanted is None or agreement is None or agreement.log != log.id:
        return False
    return agreement.uid != wanted.uid
