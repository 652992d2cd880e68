"""The Event for an action that the API server refuses because of its content."""

from collections.abc import Mapping, Sequence
from typing import Final

from agent.actions import Create, Delete, Evict, Kind, Patch, RecordEvent
from agent.reading import digest
from nodepool.contract.keys import pod_name

Refusable = Create | Patch | Delete | Evict
"""The actions that change an object of the cluster."""
_PRECONDITIONS: Final = ("uid", "resourceVersion")
_VERBS: Final[Mapping[type[Refusable], tuple[str, str]]] = {
    Create: ("Create", "created"),
    Patch: ("Update", "updated"),
    Delete: ("Delete", "deleted"),
    Evict: ("Eviction", "evicted"),
}


def refusal_event(
    regarding: tuple[Kind, str, str], action: Refusable, fields: Sequence[str], why: str
) -> RecordEvent:
    """Return the Event with the object, the fields and the reason; equal for equal refusals.

    regarding: kind, name and uid of the object that it is recorded about.
    fields: those that `why` names; where it names none, those that a patch sets are added.
    why: what the API server said.
    """
    kind, name, uid = regarding
    noun, done = _VERBS[type(action)]
    named = "" if fields else ", ".join(_fields(action))
    message = f"{_object(action)} cannot be {done}{f' ({named})' if named else ''}: {why}"
    reason = f"{noun}Refused"
    key = f"refused.{digest([uid, reason, message])}"
    return RecordEvent(kind, name, uid, "Warning", reason, message, key)


def _object(action: Refusable) -> str:
    match action:
        case Create(kind, document):
            metadata = document.get("metadata")
            return f"{kind} {metadata.get('name') if isinstance(metadata, Mapping) else ''}"
        case Evict(namespace, name):
            return f"Pod {pod_name(namespace, name)}"
        case Delete(kind, name, namespace=namespace) if namespace:
            return f"{kind} {pod_name(namespace, name)}"
        case Delete(kind, name) | Patch(kind, name):
            return f"{kind} {name}"


def _fields(action: Refusable) -> Sequence[str]:
    """Return the fields that a patch sets, two levels deep, without its preconditions."""
    if not isinstance(action, Patch):
        return ()
    return sorted(
        f"{part}.{name}"
        for part, values in action.patch.items()
        for name in (values if isinstance(values, Mapping) else ())
        if part != "metadata" or name not in _PRECONDITIONS
    )
