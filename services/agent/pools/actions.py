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
    bus: WantedPool | None,
    cluster: PoolObject | None,
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
    item = cluster or facts.removed or PoolObject(name, "", 0, "", {})
    sides = Sides(bus, item, cluster is not None, attempt, log, place, facts)
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
    bus, cluster = sides.bus, sides.cluster
    if bus is None or not sides.has_object or sides.is_behind:
        return ()
    if bus.deleting and not (cluster.deleting or sides.agreed_uid):
        return ()
    spec = sides.spec
    is_same = isinstance(spec, NodePoolSpec) and spec_document(spec) == bus.spec
    generation = sides.agreement.generation
    return status_patches(cluster, shown_status(bus, cluster, generation, is_same_spec=is_same))


def _agreement(sides: Sides) -> Sequence[Action]:
    """Return the record that both sides are equal, or the status if the object has the record."""
    bus, cluster, agreement = sides.bus, sides.cluster, sides.agreement
    assert bus is not None, "both sides have it"
    is_written = AGREED in cluster.annotations and FINALIZER in cluster.finalizers
    is_same = (agreement.object, agreement.uid) == (cluster.uid, bus.uid)
    # The record of a command that may still arrive tells later that it came from here.
    is_same = is_same and (not agreement.sent or sides.may_arrive)
    if is_written and is_same and agreement.fields == digests(sides.bus_fields):
        return _status(sides)
    return (_agree(sides, bus),)


def _command(sides: Sides) -> Iterator[Action]:
    """Yield the record of a command, and the command."""
    bus, cluster, place = sides.bus, sides.cluster, sides.place
    if cluster.deleting or not sides.has_object:
        uid = sides.agreed_uid or (bus.uid if bus is not None else None)
        deletion = DeleteNodePool(org=place.org, cluster=place.cluster, pool=cluster.name, uid=uid)
        yield Send(sides.deletion_id, deletion)
        return
    spec, record = sides.spec, sides.next_agreement
    assert isinstance(spec, NodePoolSpec), "what is invalid is not sent"
    if FINALIZER not in cluster.finalizers or agreement_of(cluster) != record:
        # The object must outlive its commands, and must have no newer version.
        yield _patch(cluster, {**_finalizers(cluster), "annotations": {AGREED: record.text()}})
    yield Send(record.sent[-1].id, _apply(sides, spec))


def _apply(sides: Sides, spec: NodePoolSpec) -> ApplyNodePool:
    """Return the command that gives the bus the state of the cluster, if the bus is unchanged.

    Annotations are not shared: the bus keeps its own.
    """
    bus, cluster, place = sides.bus, sides.cluster, sides.place
    metadata = ManifestMetadata(name=cluster.name, labels=dict(cluster.labels))
    if bus is not None:
        metadata = metadata.model_copy(
            update={
                "annotations": dict(bus.annotations),
                "uid": bus.uid,
                "generation": bus.generation,
                "resource_version": bus.version,
            }
        )
    return ApplyNodePool(
        org=place.org,
        cluster=place.cluster,
        pool=cluster.name,
        metadata=metadata,
        spec=spec,
        create_only=bus is None,
    )


def _following(sides: Sides, decision: Merge) -> Iterator[Action]:
    """Yield the actions that make the object follow the bus."""
    bus, cluster = sides.bus, sides.cluster
    if bus is not None and not sides.has_object:
        yield _create(bus, sides.log)
    elif cluster.deleting:
        yield _release(cluster)
    elif bus is None:
        yield _deletion_event(cluster, sorted(sides.edited))
        yield _remove(cluster)
    elif bus.deleting:
        if sides.edited:
            yield _deletion_event(cluster, sorted(sides.edited))
        # While the object has the finalizer, its deletion only begins.
        yield Delete("NodePool", cluster.name, cluster.uid)
    else:
        yield _set(sides, bus, decision.fields)


def _setting_back(sides: Sides, decision: Merge) -> Iterator[Action]:
    """Yield an Event with what is lost, and the actions that undo it or record the refusal."""
    bus, cluster, refusal = sides.bus, sides.cluster, sides.refusal
    if bus is not None and not cluster.deleting:
        if isinstance(sides.spec, SpecFault):
            yield _event(cluster, "Warning", CWNodePoolNodesRequestFailed.reason, decision.why)
        yield from _lost_events(sides, decision)
        yield _set(sides, bus, decision.fields)
        return
    recorded = refusal_of(cluster)
    if refusal is not None and (recorded is None or recorded.id != refusal.id):
        if cluster.deleting:
            yield _event(cluster, "Warning", CWNodePoolNodesRequestFailed.reason, decision.why)
        names = ("id", "reason", "field", "message")
        why = json.dumps({name: getattr(refusal, name) for name in names}, separators=(",", ":"))
        yield _patch(cluster, {"annotations": {REFUSED: why}})
    elif cluster.deleting:
        yield from _status(sides)
    else:
        yield from status_patches(cluster, invalid_status(cluster, decision.why))


def _create(bus: WantedPool, log: Log) -> Create:
    """Return the creation of the object of a NodePool that has no object."""
    metadata: dict[str, object] = {
        "name": bus.name,
        "finalizers": [FINALIZER],
        "annotations": {AGREED: agree(bus, None, log).text()},
    }
    if bus.labels:
        metadata["labels"] = dict(bus.labels)
    document = {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": bus.spec}
    return Create("NodePool", document)


def _finalizers(cluster: PoolObject) -> Document:
    is_there = FINALIZER in cluster.finalizers
    return {} if is_there else {"finalizers": [*cluster.finalizers, FINALIZER]}


def _release(cluster: PoolObject) -> Patch:
    """Return the patch that removes the finalizer; an object that is being deleted is then gone."""
    others = [name for name in cluster.finalizers if name != FINALIZER]
    return _patch(cluster, {"finalizers": others or None})


def _remove(cluster: PoolObject) -> Action:
    """Return one step of deleting only the object: the bus hears nothing of the deletion.

    The first step removes the finalizer. The second deletes the object if it is unchanged.
    """
    if FINALIZER in cluster.finalizers:
        return _release(cluster)
    return Delete("NodePool", cluster.name, cluster.uid, version=cluster.version)


def _set(sides: Sides, bus: WantedPool, names: frozenset[str]) -> Action:
    """Return the action that sets fields to what the bus says; a new object if it must be new."""
    if any(_is_other(sides.cluster, bus, name) for name in names & IMMUTABLE):
        return _remove(sides.cluster)  # The agent creates it again later.
    return _agree(sides, bus, names)


def _is_other(cluster: PoolObject, bus: WantedPool, name: str) -> bool:
    aliases = {"Spot": "spot", "default": None}
    value = cluster.spec.get(name)
    value = aliases.get(value, value) if isinstance(value, str) else value
    return value != bus.spec.get(name)


def _agree(sides: Sides, bus: WantedPool, names: frozenset[str] = frozenset()) -> Patch:
    """Return the patch that sets fields to what the bus says, and records the agreement."""
    cluster = sides.cluster
    refused = {REFUSED: None} if REFUSED in cluster.annotations else {}
    annotations = {AGREED: agree(bus, cluster, sides.log).text(), **refused}
    metadata: dict[str, object] = {"annotations": annotations, **_finalizers(cluster)}
    if LABELS in names:
        metadata["labels"] = merge_patch(cluster.labels, bus.labels)
    spec = merge_patch(cluster.spec, take_fields(cluster.spec, bus.spec, names - {LABELS}))
    return _patch(cluster, metadata, spec)


def _patch(cluster: PoolObject, metadata: Document, spec: Document | None = None) -> Patch:
    """Return a patch of an object; the API server refuses it if the object has changed."""
    patch: dict[str, object] = {"metadata": {"resourceVersion": cluster.version, **metadata}}
    if spec:
        patch["spec"] = spec
    return Patch("NodePool", cluster.name, patch)


def _lost_events(sides: Sides, decision: Merge) -> Iterator[RecordEvent]:
    """Yield an Event per field, with the value that is not taken and the value that holds."""
    for name in sorted(decision.lost):
        value, other = _different(sides.cluster_fields.get(name), sides.bus_fields.get(name))
        holds = f"{_format_value(value)} is not taken, {_format_value(other)} holds"
        message = f"{_field(name)}: {holds}: {decision.why}"
        yield _event(sides.cluster, "Warning", CWNodePoolNodesRequestFailed.reason, message)


def _deletion_event(cluster: PoolObject, names: Sequence[str]) -> RecordEvent:
    """Return the Event that the NodePool was deleted on the bus, with the changes that are lost."""
    message = f"NodePool {cluster.name} was deleted on the bus"
    if not names:
        return _event(cluster, "Normal", CWNodePoolDeleted.reason, message)
    message = f"{', '.join(map(_field, names))}: the change is not taken: {message}"
    return _event(cluster, "Warning", CWNodePoolNodesRequestFailed.reason, message)


def _field(name: str) -> str:
    return name if name == LABELS else f"spec.{name}"


def _event(cluster: PoolObject, severity: Severity, reason: str, message: str) -> RecordEvent:
    # The uid gives an object that is created again under the same name Events of its own.
    key = f"{cluster.generation}.{digest([cluster.uid, reason, message])}"
    return RecordEvent("NodePool", cluster.name, cluster.uid, severity, reason, message, key)


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
