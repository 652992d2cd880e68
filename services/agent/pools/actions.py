"""The actions on a NodePool object: set it to the state on the bus, send it, release it; Events."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from agent.actions import Action, Attempt, Create, Delete, Patch, Place, RecordEvent, Send
from agent.pools.agreement import AGREED, agreed, agreement_of, merge_patch, taken
from agent.pools.objects import LABELS, Log, PoolObject, WantedPool, fields_of
from agent.reading import Document, digest
from nodepool.contract.commands import ApplyNodePool, DeleteNodePool
from nodepool.contract.events import (
    CWNodePoolDeleted,
    CWNodePoolNodesRequestFailed,
    Severity,
)
from nodepool.contract.model import (
    API_VERSION,
    FINALIZER,
    KIND,
    ManifestMetadata,
    NodePoolSpec,
    spec_document,
)

REFUSED: Final = "compute.coreweave.com/refused"
"""The annotation of an object that the bus refuses: which command was refused, and why."""
SHOWN_MAX: Final = 200
"""The maximum length of a value in a message, in characters."""


def create(wanted: WantedPool, log: Log) -> Create:
    """Return the creation of the object of a NodePool that has no object."""
    metadata: dict[str, object] = {
        "name": wanted.name,
        "finalizers": [FINALIZER],
        "annotations": {AGREED: agreed(wanted, None, log).text()},
    }
    if wanted.labels:
        metadata["labels"] = dict(wanted.labels)
    document = {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": wanted.spec}
    return Create("NodePool", document)


def guard(found: PoolObject) -> Patch:
    """Return the patch that adds the finalizer, so that the object outlives its commands."""
    return _patch(found, {"finalizers": [*found.finalizers, FINALIZER]})


def release(found: PoolObject) -> Patch:
    """Return the patch that removes the finalizer; an object that is being deleted is then gone."""
    others = [name for name in found.finalizers if name != FINALIZER]
    return _patch(found, {"finalizers": others or None})


def remove(found: PoolObject) -> Action:
    """Return one step of deleting only the object: the bus hears nothing of the deletion.

    The first step removes the finalizer. The second deletes the object if it is unchanged.
    """
    if FINALIZER in found.finalizers:
        return release(found)
    return Delete("NodePool", found.name, found.uid, version=found.version)


def delete(found: PoolObject) -> Delete:
    """Return the deletion of an object; while the object has the finalizer, that only begins."""
    return Delete("NodePool", found.name, found.uid)


def agree(wanted: WantedPool, found: PoolObject, log: Log, names: Iterable[str] = ()) -> Patch:
    """Return the patch that sets fields to what the bus says, and records the agreement.

    names: the fields; empty if the object only records what the bus says.
    """
    metadata: dict[str, object] = {
        "annotations": {
            AGREED: agreed(wanted, found, log).text(),
            **({REFUSED: None} if REFUSED in found.annotations else {}),
        }
    }
    if FINALIZER not in found.finalizers:
        metadata["finalizers"] = [*found.finalizers, FINALIZER]
    names = frozenset(names)
    if LABELS in names:
        metadata["labels"] = merge_patch(found.labels, wanted.labels)
    spec = merge_patch(found.spec, taken(found.spec, wanted.spec, names - {LABELS}))
    return _patch(found, metadata, spec)


def record_refusal(found: PoolObject, attempt: Attempt) -> Patch:
    """Return the patch that records that the bus refused an object, and why."""
    why = {"id": attempt.id, "reason": attempt.reason, "field": attempt.field}
    text = json.dumps({**why, "message": attempt.message}, separators=(",", ":"))
    return _patch(found, {"annotations": {REFUSED: text}})


def recorded_refusal(found: PoolObject) -> Attempt | None:
    """Return the refusal that `record_refusal` has recorded; None without a recorded refusal."""
    try:
        value = json.loads(found.annotations.get(REFUSED, ""))
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    id, reason, field, message = (
        str(value.get(name, "")) for name in ("id", "reason", "field", "message")
    )
    return Attempt(id, "refused", is_shown=True, reason=reason, field=field, message=message)


def _patch(found: PoolObject, metadata: Document, spec: Document | None = None) -> Patch:
    """Return a patch of an object; the API server refuses it if the object has changed."""
    patch: dict[str, object] = {"metadata": {"resourceVersion": found.version, **metadata}}
    if spec:
        patch["spec"] = spec
    return Patch("NodePool", found.name, patch)


def apply_command(
    found: PoolObject, spec: NodePoolSpec, wanted: WantedPool | None, place: Place
) -> ApplyNodePool:
    """Return the command that gives the bus the state of the cluster, if the bus is unchanged.

    Annotations are not shared: the bus keeps its own.
    """
    metadata = ManifestMetadata(name=found.name, labels=dict(found.labels))
    if wanted is not None:
        metadata = ManifestMetadata(
            name=found.name,
            labels=dict(found.labels),
            annotations=dict(wanted.annotations),
            uid=wanted.uid,
            generation=wanted.generation,
            resource_version=wanted.version,
        )
    return ApplyNodePool(
        org=place.org,
        cluster=place.cluster,
        pool=found.name,
        metadata=metadata,
        spec=spec,
        create_only=wanted is None,
    )


def apply_id(found: PoolObject, spec: NodePoolSpec, wanted: WantedPool | None, log: Log) -> str:
    """Return the id of that command: the same for the same change of the same agreed state.

    The generation does not change with labels, and comes again where a backup of the cluster is
    restored, so the content counts as well.
    """
    agreement = agreement_of(found)
    is_shared = wanted is not None and agreement is not None and agreement.log == log.id
    base = agreement.version if agreement is not None and is_shared else "new"
    content = content_digest(spec_document(spec), found.labels, log)
    return f"{found.uid}.{found.generation}.{base}.{content}"


def content_digest(spec: Document, labels: Mapping[str, str], log: Log) -> str:
    """Return the digest that stands in that id for a spec and labels."""
    return digest([log.id, fields_of(spec, labels)])


class Sent(NamedTuple):
    """The parts of the id of a command.

    uid, generation: the uid and the generation of the object for which the command was sent.
    base: the position in the log of the agreement after which the command was sent; `new` without
      an agreement.
    content: the digest of the requested spec and labels, see `content_digest`.
    """

    uid: str
    generation: int
    base: str
    content: str


def sent_as(id: str) -> Sent | None:
    """Return the parts of an id that `apply_id` made; others may give commands any id."""
    words = id.split(".")
    if len(words) < 4 or not (words[1].isascii() and words[1].isdecimal() and len(words[1]) < 20):
        return None
    return Sent(words[0], int(words[1]), words[2], words[3])


def is_of_same_base(attempt: str, id: str) -> bool:
    """Whether a command was sent of the same object, as it was or before, after the same agreement.

    attempt, id: the ids of that command, and of the one for the object as it is now.

    One of a later generation was sent of what a restored backup of the cluster does not know.
    """
    sent, now = sent_as(attempt), sent_as(id)
    if sent is None or now is None or (sent.uid, sent.base) != (now.uid, now.base):
        return False
    return sent.generation <= now.generation


def next_id(sent: str, id: str) -> str:
    """Return the id after `sent`, which begins with `id`: `id` with the next number appended."""
    number = sent.removeprefix(id).removeprefix(".")
    return f"{id}.{int(number) + 1 if number.isdecimal() else 2}"


def deletion_id(found: PoolObject, uid: str | None) -> str:
    """Return the id of the command that deletes a NodePool because its object is deleted.

    uid: of the NodePool that both sides agreed on; None without an agreement.
    """
    return f"{found.uid}.delete.{uid or 'any'}"


def send_deletion(found: PoolObject, uid: str | None, place: Place, id: str) -> Send:
    """Return the command that deletes the NodePool of this uid; None deletes it by its name."""
    command = DeleteNodePool(org=place.org, cluster=place.cluster, pool=found.name, uid=uid)
    return Send(id, command)


def lost_events(
    found: PoolObject, lost: Document, holds: Document, names: Iterable[str], why: str
) -> Iterator[RecordEvent]:
    """Yield an Event per field, with the value that is not taken and the value that holds.

    why: the end of the sentence.
    """
    for name in sorted(names):
        field = name if name == LABELS else f"spec.{name}"
        value, other = _different(lost.get(name), holds.get(name))
        message = f"{field}: {_shown(value)} is not taken, {_shown(other)} holds: {why}"
        yield _event(found, "Warning", CWNodePoolNodesRequestFailed.reason, message)


def deletion_event(found: PoolObject, names: Sequence[str]) -> RecordEvent:
    """Return the Event that the NodePool was deleted on the bus, with the changes that are lost."""
    message = f"NodePool {found.name} was deleted on the bus"
    if not names:
        return _event(found, "Normal", CWNodePoolDeleted.reason, message)
    fields = ", ".join(name if name == LABELS else f"spec.{name}" for name in sorted(names))
    message = f"{fields}: the change is not taken: {message}"
    return _event(found, "Warning", CWNodePoolNodesRequestFailed.reason, message)


def failure_event(found: PoolObject, message: str) -> RecordEvent:
    """Return the Event that says why the bus does not carry out what the cluster says."""
    return _event(found, "Warning", CWNodePoolNodesRequestFailed.reason, message)


def _event(found: PoolObject, severity: Severity, reason: str, message: str) -> RecordEvent:
    # The uid gives an object that is created again under the same name Events of its own.
    key = f"{found.generation}.{digest([found.uid, reason, message])}"
    return RecordEvent("NodePool", found.name, found.uid, severity, reason, message, key)


def _different(one: object, other: object) -> tuple[object, object]:
    """Return two values, of objects only the differing keys, so that a message stays readable."""
    if not isinstance(one, Mapping) or not isinstance(other, Mapping):
        return one, other
    return (
        {key: value for key, value in one.items() if key not in other or other[key] != value}
        or None,
        {key: value for key, value in other.items() if key not in one or one[key] != value} or None,
    )


def _shown(value: object) -> str:
    if value is None:
        return "nothing"
    text = json.dumps(value, sort_keys=True)
    return text if len(text) <= SHOWN_MAX else f"{text[: SHOWN_MAX - 1]}…"
