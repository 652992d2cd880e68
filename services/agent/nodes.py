"""What is missing of one Node: in its cluster, and on the bus."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from agent.actions import Action, Create, Delete, Patch, Report
from agent.bus import Attempt, Document, Reported, WantedNode
from agent.cluster import NodeObject, PodObject
from agent.cordons import Cordon, cordon_of
from agent.drains import drained, ended
from agent.marks import (
    MANAGED,
    STARTUP_TAINT,
    Managed,
    annotations_of,
    claim,
    labels_of,
    made,
    managed,
    metadata_patch,
    missing_taints,
    taint_documents,
    taints_of,
)
from agent.node_conditions import compared, is_ready
from agent.place import Place
from agent.reports import condition_reports, node_report
from nodepool.contract.log import LogId
from nodepool.contract.model import NodePhase

NOTHING_REPORTED: Final = Reported()
"""What a process that has just begun has reported of a Node."""


@dataclass(frozen=True, slots=True)
class NodeView:
    """Both sides of a Node.

    wanted: the Node of the read model, which has caught up with the log; None where it has none.
    found: its object; None where there is none.
    pods: the Pods that are bound to it.
    reported: what this process has reported of it last.
    attempt: the command that was sent last because of it.
    pool_uid: the uid of the object of its NodePool; empty where there is none.
    """

    wanted: WantedNode | None
    found: NodeObject | None
    pods: Sequence[PodObject] = ()
    reported: Reported = NOTHING_REPORTED
    attempt: Attempt | None = None
    pool_uid: str = ""


class _Both(NamedTuple):
    """A Node that both sides have, and what is remembered of it."""

    wanted: WantedNode
    found: NodeObject
    state: Managed | None


def missing_for_node(view: NodeView, place: Place, log: LogId, now: datetime) -> Sequence[Action]:
    """The actions that are missing, in their order; a crash between any two does no harm.

    log: the log of the read model; a Node that was made for another one is not deleted.
    now: the time of the Events that are told.
    """
    wanted, found = view.wanted, view.found
    state = managed(found) if found is not None else None
    if wanted is None or wanted.phase is NodePhase.DELETED:
        if found is None or state is None or state.log not in ("", log):
            return ()
        return tuple(_removed(found, view.pods))
    if found is None:
        return (_created(wanted, view.pool_uid, log),) if wanted.registered else ()
    if state is not None and not _is_of_stay(state, wanted, log):
        return (*_removed(found, view.pods), _created(wanted, view.pool_uid, log))
    both = _Both(wanted, found, state)
    if not wanted.registered:
        return tuple(_joining(view, both, place, log))
    return tuple(_joined(view, both, place, log, now))


def _is_of_stay(state: Managed, wanted: WantedNode, log: LogId) -> bool:
    """Whether an object is that of this stay of its machine, as far as it can be read."""
    return state.assignment in (0, wanted.assignment) and state.log in ("", log)


def _removed(found: NodeObject, pods: Sequence[PodObject]) -> Iterator[Action]:
    yield from ended(pods)
    if not found.deleting:
        yield Delete("Node", found.name, found.uid)


def _created(wanted: WantedNode, pool_uid: str, log: LogId) -> Create:
    """A Node where there is none, which its kubelet goes on with."""
    state, labels, taints = claim(wanted, log), {}, [STARTUP_TAINT]
    annotations: dict[str, str] = {}
    if wanted.registered:
        state = made(wanted, pool_uid, state, wanted.unschedulable, wanted.cordon)
        labels, annotations = dict(labels_of(wanted, pool_uid)), dict(annotations_of(wanted))
        taints = list(taints_of(wanted))
    annotations[MANAGED] = state.text()
    spec: dict[str, object] = {"taints": taint_documents(taints, {})}
    if wanted.registered and wanted.unschedulable:
        spec["unschedulable"] = True
    metadata = {"name": wanted.name, "labels": labels, "annotations": annotations}
    document = {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec}
    return Create("Node", document)


def _joining(view: NodeView, both: _Both, place: Place, log: LogId) -> Iterator[Action]:
    """A Node that joins is claimed, so that it goes even if it is never ready; then reported."""
    wanted, found, state = both
    if found.deleting:
        return
    claimed = claim(wanted, log)
    if state is None or (state.log, state.assignment) != (log, wanted.assignment):
        yield Patch("Node", found.name, {"metadata": {"annotations": {MANAGED: claimed.text()}}})
    if is_ready(found):
        event = node_report(wanted, found, claimed, view.pods, place)
        if event != view.reported.node:
            yield Report(event)


def _joined(
    view: NodeView, both: _Both, place: Place, log: LogId, now: datetime
) -> Iterator[Action]:
    """What is observed comes first, then what is made; Pods end only where no other can begin."""
    wanted, found, state = both
    before = state if state is not None else claim(wanted, log)
    conditions = compared(wanted, found, before.conditions)
    event = node_report(wanted, found, before, view.pods, place)
    # A drain is answered also where nothing changes: nothing may run there that is to end.
    if event != view.reported.node or wanted.drain != view.reported.drain:
        yield Report(event, wanted.drain)
    yield from condition_reports(wanted, conditions.reported, view.reported, place)
    cordon = cordon_of(wanted, found, state, view.attempt, place, now)
    yield from cordon.actions
    claimed = claim(wanted, log, conditions.agreed)
    after = made(wanted, view.pool_uid, claimed, cordon.remembered, cordon.number)
    change = _change(both, before, after, view.pool_uid, cordon)
    if change:
        yield Patch("Node", found.name, change)
    if conditions.written:
        status = {"status": {"conditions": list(conditions.written)}}
        yield Patch("Node", found.name, status, "status")
    if found.unschedulable or not wanted.unschedulable:
        yield from drained(wanted, found, view.pods, now)


def _change(
    both: _Both, before: Managed, after: Managed, pool_uid: str, cordon: Cordon
) -> Document:
    """What the object lacks, as one merge patch; its spec only if nobody has changed it since."""
    wanted, found, _ = both
    metadata = metadata_patch(found, before, wanted, pool_uid, after)
    spec: dict[str, object] = {}
    taints = missing_taints(found, before, wanted)
    if taints is not None:
        spec["taints"] = taints
    if cordon.unschedulable is not None and cordon.unschedulable is not found.unschedulable:
        spec["unschedulable"] = cordon.unschedulable or None
    if spec:
        metadata["resourceVersion"] = found.version
    return {**({"metadata": metadata} if metadata else {}), **({"spec": spec} if spec else {})}
