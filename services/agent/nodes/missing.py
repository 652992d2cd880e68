"""What is missing for one Node, in its cluster and on the bus."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from agent.actions import Action, Attempt, Delete, ListPods, Patch, Place, RecordEvent, Report
from agent.nodes.conditions import compare_conditions, is_ready
from agent.nodes.cordons import Cordon, cordon_of
from agent.nodes.creation import build_creation
from agent.nodes.drains import drain_node, end_pods
from agent.nodes.marks import (
    STARTUP_TAINTS,
    adopt_record,
    build_record,
    claim,
    has_startup_taint,
    is_of_earlier_stay,
    is_of_stay,
    loses_reservation,
    metadata_patch,
    missing_taints,
    spec_marks,
    without_foreign,
)
from agent.nodes.objects import NOTHING_REPORTED, NodeObject, Reported, WantedNode
from agent.nodes.record import Managed, read_record
from agent.nodes.reports import condition_reports, node_report, proves_more, without_more
from agent.nodes.reservations import withhold_taint
from agent.pods.objects import PodObject
from agent.reading import SKEW_MAX, Document
from nodepool.contract.log import LogId
from nodepool.contract.model import NodePhase
from nodepool.contract.well_known import MANAGED

ABANDONED_S: Final = 1_800.0
"""How long to keep a Node that a kubelet of the control plane registered and nobody wants."""


@dataclass(frozen=True, slots=True)
class NodeView:
    """Both sides of a Node.

    wanted: the Node in the read model, which has caught up with the log; None if it has no Node.
    found: the Node object; None if there is no object.
    pods: the Pods that are bound to it.
    reported: what this process last reported about it.
    attempt: the last command that was sent about it.
    pool_uid: the uid of the object of its NodePool; empty if there is no object.
    is_gone: whether the log, or a deletion mark in the read model, says that the stay of the object
      has ended. The absence of the Node from the read model does not prove that.
    claimed: what this process remembers of a new object that has no record yet.
    last_seen: the object as it was before its deletion, if that is remembered.
    proven: the key of the last `ListPods` that was carried out; `pods` includes its Pods.
    unwanted_s: for how long the read model has lacked it, by the clock of this process.
    no_toleration: why new Pods get no toleration of the taint of Nodes in production; empty if
      they get it, None if that is not known.
    """

    wanted: WantedNode | None
    found: NodeObject | None
    pods: Sequence[PodObject] = ()
    reported: Reported = NOTHING_REPORTED
    attempt: Attempt | None = None
    pool_uid: str = ""
    is_gone: bool = False
    claimed: Managed | None = None
    last_seen: NodeObject | None = None
    proven: str = ""
    unwanted_s: float = 0.0
    no_toleration: str | None = ""


class _Both(NamedTuple):
    """A Node that both sides have, and what is remembered of it."""

    wanted: WantedNode
    found: NodeObject
    state: Managed | None


def missing_for_node(view: NodeView, place: Place, log: LogId, now: datetime) -> Sequence[Action]:
    """Return the missing actions in their order; a crash between any two does no harm.

    log: the log of the read model; a Node that was made for another one is not deleted.
    now: the time of the Events.
    """
    wanted, found = view.wanted, view.found
    state = (read_record(found) or view.claimed) if found is not None else None
    if wanted is None or wanted.phase is NodePhase.DELETED:
        return () if found is None else tuple(_remove_departed_node(view, found, state, log))
    reserved = withhold_taint(wanted, found, view.pods, view.no_toleration, place)
    wanted = wanted if reserved is None else reserved.wanted
    if found is None:
        if not wanted.registered:
            return ()
        return (build_creation(wanted, view.pool_uid, log, view.last_seen),)
    if state is not None and is_of_earlier_stay(state, wanted, log):
        return (*_remove_node(found, view.pods), build_creation(wanted, view.pool_uid, log, None))
    both = _Both(wanted, found, state)
    if not wanted.registered:
        return tuple(_joining(view, both, place, log))
    events = () if reserved is None or reserved.event is None else (reserved.event,)
    return (*_reconcile_node(view, both, place, log, now), *events)


def _remove_departed_node(
    view: NodeView, found: NodeObject, state: Managed | None, log: LogId
) -> Iterator[Action]:
    """Yield the removal of a Node that has left; of an unclaimed Node, the removal or an Event."""
    if state is None:
        if view.unwanted_s < ABANDONED_S or not has_startup_taint(found):
            return
        if is_ready(found):
            yield _report_unclaimed(found)
        else:
            yield from _remove_node(found, view.pods)
        return
    is_gone = view.is_gone or view.wanted is not None
    if is_gone and state.log in ("", log):
        yield from _remove_node(found, view.pods)


def _report_unclaimed(found: NodeObject) -> RecordEvent:
    """Tell that a Node keeps its startup taint, since no NodePool has its machine."""
    taint = next(each for each in found.taints if each in STARTUP_TAINTS)
    message = (
        f"Node {found.name} is ready, and Pods are kept from it by the taint"
        f" {taint.key}={taint.value}:{taint.effect}: no NodePool of this cluster has its machine."
        " Find it with 'nodepool get machines', or delete the Node and stop its kubelet"
    )
    key = f"unclaimed.{found.uid}"
    return RecordEvent("Node", found.name, found.uid, "Warning", "NodeNotClaimed", message, key)


def _remove_node(found: NodeObject, pods: Sequence[PodObject]) -> Iterator[Action]:
    yield from end_pods(pods)
    if not found.deleting:
        yield Delete("Node", found.name, found.uid)


def _joining(view: NodeView, both: _Both, place: Place, log: LogId) -> Iterator[Action]:
    """Yield the claim of a joining Node, so that it goes even if never ready; then its report.

    Pods that are older than the object remain from an earlier stay of the machine. Pods of
    DaemonSets start as soon as the Node exists: such a Pod is of this stay if only the clock of
    another API server makes it look older.
    """
    wanted, found, state = both
    if found.deleting:
        return
    claimed = claim(wanted, log)
    if state is None or not is_of_stay(state, wanted, log):
        first = adopt_record(state, wanted, log)
        if state is None:
            # On a Node that is new to the control plane, any cordon was set by hand.
            first = replace(first, unschedulable=False)
        metadata = {
            "annotations": {MANAGED: first.text()},
            "uid": found.uid,
            "resourceVersion": found.version,
        }
        yield Patch("Node", found.name, {"metadata": metadata})
    old = [pod for pod in view.pods if found.created is not None and _is_older(pod, found.created)]
    if old:
        yield from end_pods(old)
    elif is_ready(found):
        event = node_report(wanted, found, claimed, view.pods, place)
        if event != view.reported.node:
            yield Report(event)


def _is_older(pod: PodObject, node_created: datetime) -> bool:
    return pod.created < node_created - (SKEW_MAX if pod.pod.daemon_set else timedelta(0))


def _reconcile_node(
    view: NodeView, both: _Both, place: Place, log: LogId, now: datetime
) -> Iterator[Action]:
    """Yield the reports first, then the changes; end Pods only if no other Pod can begin.

    By force they end at once: a Node whose cordon is refused is as much at its end.
    """
    wanted, found, state = both
    before = adopt_record(state, wanted, log)
    conditions = compare_conditions(wanted, found, before.conditions)
    yield from _report_observation(view, both, before, place)
    yield from condition_reports(wanted, conditions.reported, view.reported, place)
    cordon = cordon_of(wanted, found, None if state is None else before, view.attempt, place, now)
    yield from cordon.actions
    claimed = claim(wanted, log, before, conditions.agreed)
    after = build_record(wanted, view.pool_uid, claimed, cordon.remembered, cordon.number)
    after = replace(after, asked=cordon.asked)
    if state is not None and state.log:  # Otherwise the owner of each mark is unknown.
        after = without_foreign(after, before, found, wanted)
    change = _change(both, before, after, view.pool_uid, cordon)
    if change:
        yield Patch("Node", found.name, change)
    if conditions.written:
        status = {"status": {"conditions": list(conditions.written)}}
        yield Patch("Node", found.name, status, "status")
    if found.unschedulable or not wanted.unschedulable or wanted.drain == "forced":
        yield from drain_node(wanted, found, view.pods, now)


def _report_observation(
    view: NodeView, both: _Both, before: Managed, place: Place
) -> Iterator[Action]:
    """Yield the report of a Node; report a new cordon or lock only with the Pods that prove it.

    A Node that is not ready does not answer: what its cluster knows is not what runs there.
    """
    wanted, found, _ = both
    report = node_report(wanted, found, before, view.pods, place)
    key = f"{found.uid}.{report.assignment}.{report.cordon}.{report.lock}"
    is_certain = not proves_more(report, view.reported) or (is_ready(found) and view.proven == key)
    if not is_certain and is_ready(found):
        yield ListPods(found.name, key)
    event = report if is_certain else without_more(report, view.reported)
    if event is None:
        return
    # Answer a drain even if nothing changes: there may be no Pod on the Node to end.
    if event != view.reported.node or wanted.drain != view.reported.drain:
        yield Report(event, wanted.drain)


def _change(
    both: _Both, before: Managed, after: Managed, pool_uid: str, cordon: Cordon
) -> Document:
    """Return what the object lacks first, as one merge patch that fails if the object has changed.

    Its taints and its cordon come before its labels and annotations: the API server may refuse a
    label or an annotation, and that must not stop a drain. A Node that is reserved until it has
    joined gets everything at once, so that no Pod is placed there before it has its labels.
    """
    wanted, found, _ = both
    spec: dict[str, object] = {}
    taints = missing_taints(found, before, wanted)
    if taints is not None:
        spec["taints"] = taints
    if cordon.unschedulable is not None and cordon.unschedulable is not found.unschedulable:
        spec["unschedulable"] = cordon.unschedulable or None
    is_cordoned = wanted.unschedulable and after.cordon != before.cordon
    has_first = bool(spec) or is_cordoned or after.asked is not before.asked
    if has_first and not loses_reservation(found, wanted):
        metadata = spec_marks(found, before, after)
    else:
        metadata = metadata_patch(found, before, wanted, pool_uid, after)
    if metadata or spec:
        # The API server refuses it if another object has the name, or if the object has changed.
        metadata["uid"] = found.uid
        if spec or "annotations" in metadata:
            metadata["resourceVersion"] = found.version
    return {**({"metadata": metadata} if metadata else {}), **({"spec": spec} if spec else {})}
