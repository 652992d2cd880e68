"""What is missing for a NodePool whose object is being deleted or was deleted?"""

from collections.abc import Sequence
from typing import Final

from agent.actions import Action, Attempt, Place, Send
from agent.pools.actions import (
    deletion_id,
    failure_event,
    record_refusal,
    recorded_refusal,
    release,
    send_deletion,
)
from agent.pools.agreement import agreement_of
from agent.pools.objects import Log, PoolObject, WantedPool
from agent.pools.view import PoolView
from nodepool.contract.model import FINALIZER

GONE: Final = ("NotFound", "Conflict")
"""The reasons of a refused deletion that mean that no NodePool has its uid any more."""


def deletion(view: PoolView) -> Sequence[Action]:
    """Return the actions that first delete the NodePool on the bus, and then release the object.

    The command that was sent last has an outcome, and the read model shows it.
    """
    wanted, found, attempt = view.wanted, view.found, view.attempt
    if FINALIZER not in found.finalizers:
        return ()
    if view.facts.is_leaving:
        return (release(found),)
    if wanted is not None and wanted.deleting:
        return ()
    uid = view.agreement.uid if view.agreement is not None else None
    is_another = wanted is not None and uid not in (None, wanted.uid)
    if view.was_deleted or is_another:
        return (release(found),)
    id = deletion_id(found, uid)
    if attempt is None or attempt.id != id:
        recorded = recorded_refusal(found)
        if recorded is not None and recorded.id == id:
            return ()
        uid = uid or (wanted.uid if wanted is not None else None)
        return (send_deletion(found, uid, view.place, id),)
    if attempt.outcome == "accepted" or attempt.reason in GONE:
        # If there is a NodePool of its name now, it is another NodePool that was created since.
        return (release(found),)
    return _refused(found, attempt)


def _refused(found: PoolObject, attempt: Attempt) -> Sequence[Action]:
    """Return an Event that says why the bus does not delete the NodePool, once per refusal."""
    recorded = recorded_refusal(found)
    if recorded is not None and recorded.id == attempt.id:
        return ()
    why = f"{attempt.field}: {attempt.message}".removeprefix(": ")
    return failure_event(found, why), record_refusal(found, attempt)


def removal(
    wanted: WantedPool, removed: PoolObject, attempt: Attempt | None, log: Log, place: Place
) -> Send | None:
    """Return the command to delete a NodePool whose object was deleted without the agent; or None.

    A NodePool of another uid has never had this object, and gets one of its own.
    """
    agreement = agreement_of(removed)
    if agreement is None or (agreement.log, agreement.uid) != (log.id, wanted.uid):
        return None
    id = deletion_id(removed, wanted.uid)
    is_sent = attempt is not None and attempt.id == id
    return None if is_sent else send_deletion(removed, wanted.uid, place, id)
