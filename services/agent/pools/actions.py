"""Returns the actions that are missing for a NodePool: what a decision of `merge` leads to."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, assert_never

from agent.actions import Action, Attempt, Create, Delete, Patch, Place, RecordEvent, Send
from agent.pools.agreement import AGREED, REFUSED, agree, agreement_of, digests, refusal_of
from agent.pools.merge import Merge, Outcome, merge
from agent.pools.objects import (
    LABELS,
    Log,
    PoolObject,
    SpecFault,
    WantedPool,
    merge_patch,
    take_fields,
)
from agent.pools.sides import Facts, Sides
from agent.pools.status import invalid_status, shown_status, status_patches
from agent.reading import Document, digest
from nodepool.contract.commands import ApplyNodePool, DeleteNodePool
from nodepool.contract.events import CWNodePoolDeleted, CWNodePoolNodesRequestFailed, Severity
from nodepool.contract.model import (
    API_VERSION,
    FINALIZER,
    KIND,
    ManifestMetadata,
    NodePoolSpec,
    spec_document,
)

IMMUTABLE: Final = frozenset(("instanceType", "computeClass"))
"""The fields that the API server refuses to change: a change of them needs a new object."""
SHOWN_MAX: Final = 200
"""The maximum length of a value in a message, in characters."""
NO_FACTS: Final = Facts()


def missing_for_pool(
    name: str,
    wanted: WantedPool | None,
    found: PoolObject | None,
    attempt: Attempt | None,
    log: Log,
    place: Place,
    facts: Facts = NO_FACTS,
) -> Sequence[Action]:
    """Return the next few actions that bring both sides of a NodePool together, in their order.

    The caller carries them out one after the other up to the first that fails, and compares again
    when anything has changed. An empty result means that nothing is missing, or that a change is
    awaited.

    attempt: the command that was sent last for this NodePool.
    """
    item = found or facts.removed or PoolObject(name, "", 0, "", {})
    sides = Sides(wanted, item, found is not None, attempt, log, place, facts)
    return tuple(_actions(sides, merge(sides)))


def _actions(sides: Sides, decision: Merge) -> Iterator[Action]:
    match decision.outcome:
        case Outcome.WAIT:
            yield from _status(sides)
        case Outcome.AGREE:
            yield from _agreement(sides)
        case Outcome.SEND:
            yield from _command(sides)
        case Outcome.FOLLOW:
            yield from _following(sides, decision)
        case Outcome.SET_BACK:
            yield from _setting_back(sides, decision)
        case never:
            assert_never(never)


def _status(sides: Sides) -> Sequence[Action]:
    """Return the status of the bus, unless the bus has another NodePool or an older state."""
    wanted, found = sides.wanted, sides.found
    if wanted is None or not sides.has_object or sides.is_behind:
        return ()
    if wanted.deleting and not (found.deleting or sides.agreed_uid):
        return ()
    spec = sides.spec
    is_same = isinstance(spec, NodePoolSpec) and spec_document(spec) == wanted.spec
    generation = sides.agreement.generation
    return status_patches(found, shown_status(wanted, found, generation, is_same_spec=is_same))


def _agreement(sides: Sides) -> Sequence[Action]:
    """Return the record that both sides are equal, or the status if the object has the record."""
    wanted, found, agreement = sides.wanted, sides.found, sides.agreement
    assert wanted is not None, "both sides have it"
    is_written = AGREED in found.annotations and FINALIZER in found.finalizers
    is_same = (agreement.object, agreement.uid) == (found.uid, wanted.uid)
    # The record of a command that may still arrive tells later that it came from here.
    is_same = is_same and (not agreement.sent or sides.may_arrive)
    if is_written and is_same and agreement.fields == digests(sides.theirs):
        return _status(sides)
    return (_agree(sides, wanted),)


def _command(sides: Sides) -> Iterator[Action]:
    """Yield the record of a command, and the command."""
    wanted, found, place = sides.wanted, sides.found, sides.place
    if found.deleting or not sides.has_object:
        uid = sides.agreed_uid or (wanted.uid if wanted is not None else None)
        deletion = DeleteNodePool(org=place.org, cluster=place.cluster, pool=found.name, uid=uid)
        yield Send(sides.deletion_id, deletion)
        return
    spec, record = sides.spec, sides.next_agreement
    assert isinstance(spec, NodePoolSpec), "what is invalid is not sent"
    if FINALIZER not in found.finalizers or agreement_of(found) != record:
        # The object must outlive its commands, and must have no newer version.
        yield _patch(found, {**_finalizers(found), "annotations": {AGREED: record.text()}})
    yield Send(record.sent[-1].id, _apply(sides, spec))


def _apply(sides: Sides, spec: NodePoolSpec) -> ApplyNodePool:
    """Return the command that gives the bus the state of the cluster, if the bus is unchanged.

    Annotations are not shared: the bus keeps its own.
    """
    wanted, found, place = sides.wanted, sides.found, sides.place
    metadata = ManifestMetadata(name=found.name, labels=dict(found.labels))
    if wanted is not None:
        metadata = metadata.model_copy(
            update={
                "annotations": dict(wanted.annotations),
                "uid": wanted.uid,
                "generation": wanted.generation,
                "resource_version": wanted.version,
            }
        )
    return ApplyNodePool(
        org=place.org,
        cluster=place.cluster,
        pool=found.name,
        metadata=metadata,
        spec=spec,
        create_only=wanted is None,
    )


def _following(sides: Sides, decision: Merge) -> Iterator[Action]:
    """Yield the actions that make the object follow the bus."""
    wanted, found = sides.wanted, sides.found
    if wanted is not None and not sides.has_object:
        yield _create(wanted, sides.log)
    elif found.deleting:
        yield _release(found)
    elif wanted is None:
        yield _deletion_event(found, sorted(sides.edited))
        yield _remove(found)
    elif wanted.deleting:
        if sides.edited:
            yield _deletion_event(found, sorted(sides.edited))
        # While the object has the finalizer, its deletion only begins.
        yield Delete("NodePool", found.name, found.uid)
    else:
        yield _set(sides, wanted, decision.fields)


def _setting_back(sides: Sides, decision: Merge) -> Iterator[Action]:
    """Yield an Event with what is lost, and the actions that undo it or record the refusal."""
    wanted, found, refusal = sides.wanted, sides.found, sides.refusal
    if wanted is not None and not found.deleting:
        if isinstance(sides.spec, SpecFault):
            yield _event(found, "Warning", CWNodePoolNodesRequestFailed.reason, decision.why)
        yield from _lost_events(sides, decision)
        yield _set(sides, wanted, decision.fields)
        return
    recorded = refusal_of(found)
    if refusal is not None and (recorded is None or recorded.id != refusal.id):
        if found.deleting:
            yield _event(found, "Warning", CWNodePoolNodesRequestFailed.reason, decision.why)
        names = ("id", "reason", "field", "message")
        why = json.dumps({name: getattr(refusal, name) for name in names}, separators=(",", ":"))
        yield _patch(found, {"annotations": {REFUSED: why}})
    elif found.deleting:
        yield from _status(sides)
    else:
        yield from status_patches(found, invalid_status(found, decision.why))


def _create(wanted: WantedPool, log: Log) -> Create:
    """Return the creation of the object of a NodePool that has no object."""
    metadata: dict[str, object] = {
        "name": wanted.name,
        "finalizers": [FINALIZER],
        "annotations": {AGREED: agree(wanted, None, log).text()},
    }
    if wanted.labels:
        metadata["labels"] = dict(wanted.labels)
    document = {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": wanted.spec}
    return Create("NodePool", document)


def _finalizers(found: PoolObject) -> Document:
    is_there = FINALIZER in found.finalizers
    return {} if is_there else {"finalizers": [*found.finalizers, FINALIZER]}


def _release(found: PoolObject) -> Patch:
    """Return the patch that removes the finalizer; an object that is being deleted is then gone."""
    others = [name for name in found.finalizers if name != FINALIZER]
    return _patch(found, {"finalizers": others or None})


def _remove(found: PoolObject) -> Action:
    """Return one step of deleting only the object: the bus hears nothing of the deletion.

    The first step removes the finalizer. The second deletes the object if it is unchanged.
    """
    if FINALIZER in found.finalizers:
        return _release(found)
    return Delete("NodePool", found.name, found.uid, version=found.version)


def _set(sides: Sides, wanted: WantedPool, names: frozenset[str]) -> Action:
    """Return the action that sets fields to what the bus says; a new object if it must be new."""
    if any(_is_other(sides.found, wanted, name) for name in names & IMMUTABLE):
        return _remove(sides.found)  # The agent creates it again later.
    return _agree(sides, wanted, names)


def _is_other(found: PoolObject, wanted: WantedPool, name: str) -> bool:
    aliases = {"Spot": "spot", "default": None}
    value = found.spec.get(name)
    value = aliases.get(value, value) if isinstance(value, str) else value
    return value != wanted.spec.get(name)


def _agree(sides: Sides, wanted: WantedPool, names: frozenset[str] = frozenset()) -> Patch:
    """Return the patch that sets fields to what the bus says, and records the agreement."""
    found = sides.found
    refused = {REFUSED: None} if REFUSED in found.annotations else {}
    annotations = {AGREED: agree(wanted, found, sides.log).text(), **refused}
    metadata: dict[str, object] = {"annotations": annotations, **_finalizers(found)}
    if LABELS in names:
        metadata["labels"] = merge_patch(found.labels, wanted.labels)
    spec = merge_patch(found.spec, take_fields(found.spec, wanted.spec, names - {LABELS}))
    return _patch(found, metadata, spec)


def _patch(found: PoolObject, metadata: Document, spec: Document | None = None) -> Patch:
    """Return a patch of an object; the API server refuses it if the object has changed."""
    patch: dict[str, object] = {"metadata": {"resourceVersion": found.version, **metadata}}
    if spec:
        patch["spec"] = spec
    return Patch("NodePool", found.name, patch)


def _lost_events(sides: Sides, decision: Merge) -> Iterator[RecordEvent]:
    """Yield an Event per field, with the value that is not taken and the value that holds."""
    for name in sorted(decision.lost):
        value, other = _different(sides.ours.get(name), sides.theirs.get(name))
        holds = f"{_format_value(value)} is not taken, {_format_value(other)} holds"
        message = f"{_field(name)}: {holds}: {decision.why}"
        yield _event(sides.found, "Warning", CWNodePoolNodesRequestFailed.reason, message)


def _deletion_event(found: PoolObject, names: Sequence[str]) -> RecordEvent:
    """Return the Event that the NodePool was deleted on the bus, with the changes that are lost."""
    message = f"NodePool {found.name} was deleted on the bus"
    if not names:
        return _event(found, "Normal", CWNodePoolDeleted.reason, message)
    message = f"{', '.join(map(_field, names))}: the change is not taken: {message}"
    return _event(found, "Warning", CWNodePoolNodesRequestFailed.reason, message)


def _field(name: str) -> str:
    return name if name == LABELS else f"spec.{name}"


def _event(found: PoolObject, severity: Severity, reason: str, message: str) -> RecordEvent:
    # The uid gives an object that is created again under the same name Events of its own.
    key = f"{found.generation}.{digest([found.uid, reason, message])}"
    return RecordEvent("NodePool", found.name, found.uid, severity, reason, message, key)


def _different(one: object, other: object) -> tuple[object, object]:
    """Return two values, of objects only the differing keys, so that a message stays readable."""
    if not isinstance(one, Mapping) or not isinstance(other, Mapping):
        return one, other
    first = {key: value for key, value in one.items() if key not in other or other[key] != value}
    second = {key: value for key, value in other.items() if key not in one or one[key] != value}
    return first or None, second or None


def _format_value(value: object) -> str:
    if value is None:
        return "nothing"
    text = json.dumps(value, sort_keys=True)
    return text if len(text) <= SHOWN_MAX else f"{text[: SHOWN_MAX - 1]}…"
