"""Finds Nodes that are set back repeatedly because something else keeps changing them; pure."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from agent.actions import Action, Kind, Patch, RecordEvent
from agent.nodes.objects import NodeObject, WantedNode
from agent.reading import digest
from nodepool.contract.well_known import MANAGED

SET_BACKS_MAX: Final = 10
WITHIN_S: Final = 60.0
"""More than `SET_BACKS_MAX` patches of a Node for the same state in this time are no accident."""
PAUSE_S: Final = 30.0
"""How long the labels, annotations, taints and cordon of such a Node are then left alone."""


@dataclass(slots=True)
class _Kept:
    """The state that a Node must have, when it was patched for it, and until when patches pause."""

    state: tuple[object, ...]
    moments: deque[float] = field(default_factory=lambda: deque(maxlen=SET_BACKS_MAX + 1))
    until: float = 0.0


class SetBacks:
    """The patches of each Node; every `now` is in seconds of one monotonic clock.

    A pause applies only to the state that was set back: a new state from the bus is set at once.
    """

    def __init__(self) -> None:
        self._kept: dict[str, _Kept] = {}

    def held_until(self, wanted: WantedNode, now: float) -> float:
        """Return until when a Node is not patched for its state; 0 if it may be patched."""
        kept = self._kept.get(wanted.name)
        is_held = kept is not None and kept.state == _state(wanted) and now < kept.until
        return kept.until if kept is not None and is_held else 0.0

    def note_patch(self, wanted: WantedNode, now: float) -> bool:
        """Note that a Node was patched for its state; return whether a pause begins with that."""
        kept = self._kept.get(wanted.name)
        if kept is None or kept.state != _state(wanted):
            kept = self._kept[wanted.name] = _Kept(_state(wanted))
        kept.moments.append(now)
        if len(kept.moments) <= SET_BACKS_MAX or now - kept.moments[0] > WITHIN_S:
            return False
        kept.until = now + PAUSE_S
        return True

    def forget(self, name: str) -> None:
        """Forget a Node that is gone."""
        self._kept.pop(name, None)


def _state(wanted: WantedNode) -> tuple[object, ...]:
    marks = (wanted.labels, wanted.annotations, wanted.taints)
    return (wanted.assignment, wanted.unschedulable, wanted.cordon, wanted.lock, *marks)


def set_back_fields(action: Action, found: NodeObject | None) -> Sequence[str]:
    """Return the fields of a Node that a patch changes in its spec and marks; else no field."""
    if found is None or not isinstance(action, Patch) or action.kind != "Node":
        return ()
    if action.subresource:
        return ()
    metadata, spec = (_mapping(action.patch.get(part)) for part in ("metadata", "spec"))
    fields = [
        f"metadata.{part}[{key}]"
        for part in ("labels", "annotations")
        for key in _mapping(metadata.get(part))
        if key != MANAGED
    ]
    if "taints" in spec:
        fields += (f"spec.taints[{each}]" for each in _other_taints(spec["taints"], found))
    if "unschedulable" in spec:
        fields.append("spec.unschedulable")
    return sorted(fields)


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _other_taints(patched: object, found: NodeObject) -> set[str]:
    """Return the taints, as `key:effect`, that one side lacks or has with another value."""
    after = {
        (each.get("key"), each.get("effect"), each.get("value") or "")
        for each in (patched if isinstance(patched, list) else ())
        if isinstance(each, Mapping)
    }
    before = {(each.key, each.effect, each.value) for each in found.taints}
    return {f"{key}:{effect}" for key, effect, _ in after ^ before}


def set_back_event(
    regarding: tuple[Kind, str, str], node: str, fields: Sequence[str]
) -> RecordEvent:
    """Return the Event with the fields and a Node; the Nodes of a NodePool share the Event.

    regarding: kind, name and uid of the object that it is recorded about.
    """
    kind, name, uid = regarding
    message = (
        f"Node {node} was set back more than {SET_BACKS_MAX} times in a minute in"
        f" {', '.join(fields)}: something else changes it as often. It is left alone for"
        f" {PAUSE_S:.0f} seconds at a time; take it out of the NodePool, or end the other writer"
    )
    key = f"set-back.{digest([uid, list(fields)])}"
    return RecordEvent(kind, name, uid, "Warning", "SetBackRepeatedly", message, key)
