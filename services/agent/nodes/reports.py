"""The reports to the bus about a Node: its state, the Pods that run there, its conditions."""

from collections.abc import Iterator, Sequence
from typing import Final, Literal, TypedDict, cast

from agent.actions import Place, Report
from agent.nodes.conditions import READY, status_of
from agent.nodes.marks import lock_of
from agent.nodes.objects import NodeObject, Reported, WantedNode
from agent.nodes.record import Managed
from agent.pods.objects import PodObject
from agent.reading import Document
from nodepool.contract.events import NodeConditionReported, NodeReported
from nodepool.contract.model import LOCK_TAINT
from nodepool.contract.pods import PODS_MAX, Pod, PodClass

TEXT_MAX: Final = 1_024
"""The maximum length of the reason and of the message of a reported condition, in characters."""
TYPE_MAX: Final = 316


class _NodeFields(TypedDict):
    org: str
    cluster: str
    pool: str
    node: str
    zone: str
    assignment: int


def node_report(
    wanted: WantedNode,
    found: NodeObject,
    state: Managed,
    pods: Sequence[PodObject],
    place: Place,
) -> NodeReported:
    """How a Node is found, with the number of the cordon and of the lock that it has received."""
    return NodeReported(
        **_fields(wanted, place),
        unschedulable=found.unschedulable,
        cordon=state.cordon,
        lock=lock_of(found, state),
        pods=_pods(pods, wanted),
    )


def is_minor(report: NodeReported, reported: Reported) -> bool:
    """Return whether a report says only that other Pods run on a Node in use, and may come later.

    Nothing waits for that: the Node is as active as before, neither cordoned nor locked.
    """
    last = reported.node
    if last is None or report.unschedulable or report.lock:
        return False
    is_active = any(pod.counts_as_work for pod in report.pods)
    was_active = any(pod.counts_as_work for pod in last.pods)
    is_same = report.model_copy(update={"pods": last.pods}) == last
    return is_same and is_active is was_active


def without_more(report: NodeReported, reported: Reported) -> NodeReported | None:
    """Return a report with the numbers of the last report, which prove nothing new; else None."""
    last = reported.node
    if last is None or last.assignment != report.assignment:
        return None
    return report.model_copy(update={"cordon": last.cordon, "lock": last.lock})


def proves_more(report: NodeReported, reported: Reported) -> bool:
    """Return whether a report says that a cordon or a lock has come that the last one did not.

    The Pods in such a report must have been read after the scheduler has seen the cordon: one that
    was bound just before would be missed otherwise, and the Node taken for idle.
    """
    last = reported.node
    if last is None or last.assignment != report.assignment:
        return (report.unschedulable and report.cordon > 0) or report.lock > 0
    is_new = last.cordon != report.cordon or not last.unschedulable
    return (report.unschedulable and report.cordon > 0 and is_new) or (
        report.lock > 0 and last.lock != report.lock
    )


def condition_reports(
    wanted: WantedNode, conditions: Sequence[Document], reported: Reported, place: Place
) -> Iterator[Report]:
    """Yield the reports of these conditions, except reports that were made already."""
    for each in conditions:
        type_ = str(each.get("type"))
        event = NodeConditionReported(
            **_fields(wanted, place),
            type=type_[:TYPE_MAX],
            status=cast("Literal['True', 'False', 'Unknown']", status_of(each)),
            reason=_text(each.get("reason")),
            message=_text(each.get("message")),
            request=wanted.request if type_ == READY else 0,
        )
        if reported.conditions.get(type_) != event:
            yield Report(event)


def _pods(pods: Sequence[PodObject], wanted: WantedNode) -> tuple[Pod, ...]:
    """Return the Pods that matter to a Node; if there are too many, the Pods that it waits for.

    A drain does not wait for the grace period of a Pod that may be interrupted; a lock does. While
    the Node is cordoned, such a Pod stays left out after the drain, or the drain would begin again.
    """
    leaves_out = (bool(wanted.drain) or wanted.unschedulable) and not wanted.lock
    shown = [
        _as_blocking(each) if wanted.drain == "safe" and each.blocked_by else each.pod
        for each in pods
        if not (leaves_out and _is_interrupted(each.pod))
    ]
    shown.sort(key=lambda pod: (not pod.counts_as_work, pod.tolerates(LOCK_TAINT), pod.name))
    return tuple(shown[:PODS_MAX])


def _is_interrupted(pod: Pod) -> bool:
    return pod.terminating and pod.interruption is PodClass.INTERRUPTABLE


def _as_blocking(pod: PodObject) -> Pod:
    """Return a Pod as a Pod that blocks a drain, because a budget refuses its eviction."""
    if pod.pod.terminating:
        return pod.pod
    return pod.pod.model_copy(update={"interruption": PodClass.BLOCKING})


def _text(value: object) -> str:
    return value[:TEXT_MAX] if isinstance(value, str) else ""


def _fields(wanted: WantedNode, place: Place) -> _NodeFields:
    return {
        "org": place.org,
        "cluster": place.cluster,
        "pool": wanted.pool,
        "node": wanted.name,
        "zone": wanted.zone,
        "assignment": wanted.assignment,
    }
