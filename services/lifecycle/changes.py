"""How each message about a Node changes it."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import assert_never

from lifecycle import HealthChange, Observed, health, lock
from lifecycle.health import Health
from lifecycle.lock import USUALLY
from lifecycle.node import Node, Workload
from nodepool.contract import events as on
from nodepool.contract.model import NodePhase, RemovalReason
from nodepool.contract.pods import Pod
from nodepool.contract.timetable import GONE_AFTER

NodeChange = (
    on.MachineBooted
    | on.MachineFailed
    | on.NodeVerified
    | HealthChange
    | on.CWNodeRegistered
    | on.NodeUpdated
    | Observed
    | on.NodeActivityChanged
    | on.NodeReservationChanged
    | on.AnswerAwaited
    | on.CWDrainNode
    | on.CWNodeDeletionRequestSuccess
    | on.NodeRemovalCancelled
    | on.NodeKept
    | on.NodeLockChanged
    | on.NodePreempted
    | on.PreemptionPending
    | on.PreemptionInProgress
)
"""The messages that change a Node while it stays."""


def is_expected(node: Node, message: on.MachineBooted | on.MachineFailed | on.NodeVerified) -> bool:
    """Whether a report of a machine is about what its Node is doing; another one is ignored."""
    if message.boot != node.health.boot:
        return False
    if isinstance(message, on.NodeVerified):
        return node.phase is NodePhase.VERIFYING
    return node.phase is (NodePhase.REBOOTING if message.boot else NodePhase.BOOTING)


def changed(  # noqa: C901, PLR0912  # It lists the messages.
    node: Node, message: NodeChange, now: datetime
) -> Node:
    """The Node after a message about it that the log stored at `now`."""
    match message:
        case on.MachineBooted() | on.MachineFailed() | on.NodeVerified():
            return _reported(node, message, now) if is_expected(node, message) else node
        case (on.NodeConditionChanged() | on.NodeConditionReported() | on.NodeActionRequested()) | (
            on.CWNodeCordoned() | on.CWNodeUncordoned() | on.NodeSilent() | on.NodeReportRequested()
        ):
            return _with_health(node, health.changed(node.health, message, now), now)
        case on.CWNodeRegistered(phase=phase):
            return replace(node, phase=phase).begin_restart(now)
        case on.NodeUpdated():
            return _updated(node, message, now)
        case on.AnswerAwaited():
            return _awaited(node, message)
        case on.NodeObserved() | on.NodeReported():
            return _observed(node, message, now)
        case on.NodeActivityChanged():
            return replace(node, published=node.work)
        case on.NodeReservationChanged(usable=usable):
            return replace(node, usable=usable)
        case on.NodeLockChanged():
            return replace(node, lock=lock.changed(node.lock, message, now))
        case on.CWDrainNode(force=force):
            return _draining(replace(node, phase=NodePhase.DRAINING, forced=force), now)
        case on.CWNodeDeletionRequestSuccess() | on.NodeRemovalCancelled() | on.NodeKept():
            return _requested(node, message)
        case on.NodePreempted() | on.PreemptionPending() | on.PreemptionInProgress():
            return _preempted(node, message, now)
        case _:
            assert_never(message)


def _awaited(node: Node, event: on.AnswerAwaited) -> Node:
    if event.lock:
        return replace(node, lock=lock.awaited(node.lock, event))
    if event.is_final:
        return replace(node, ask_after=None, answer_by=event.answer_by)
    return replace(node, ask_after=event.answer_by)


def _with_health(node: Node, after: Health, now: datetime) -> Node:
    """The Node with this health; what it reported before it fell silent is no answer any more.

    An agent reports only what changes: what it reported counts again with the end of the silence.
    """
    was_silent = node.health.is_silent
    node = replace(node, health=after)
    if after.is_silent is was_silent or not node.cordoned:
        return node
    if after.is_silent:
        node = replace(node, observed=node.observed if node.reported else 0)
        return _asked(node, now) if node.is_given_up_in_silence and not node.is_asked else node
    if not (node.reported and node.has_answered):
        return node
    if node.phase is NodePhase.DRAINING:
        return _draining(node, now)
    return replace(node, ask_after=None, answer_by=None)


def _reported(
    node: Node, message: on.MachineBooted | on.MachineFailed | on.NodeVerified, now: datetime
) -> Node:
    match message:
        case on.MachineBooted(boot=boot):
            after = health.booted(node.health, message, now)
            return replace(node, booted=node.booted or not boot, health=after)
        case on.MachineFailed(cause=cause, boot=0):
            return replace(node, boot_fault=cause)
        case on.MachineFailed(cause=cause):
            return replace(node, health=replace(node.health, boot_fault=cause))
        case on.NodeVerified():
            return replace(node, health=health.verified(node.health, message))
        case _:
            assert_never(message)


def _updated(node: Node, event: on.NodeUpdated, now: datetime) -> Node:
    begins, before = event.cordon > node.cordon, node
    node = replace(
        node,
        phase=event.phase,
        removal=event.removal,
        shown=event.removal,
        cordon=event.cordon,
        health=health.updated(node.health, event),
    )
    if node.phase is NodePhase.REBOOTING:
        # In a cluster of Kubernetes, Pods stay bound to their Node and go on after its reboot.
        node = replace(node, workloads=node.workloads if node.reported else (), lock=None)
    if node.restarts:
        return node if node.phase is before.phase else node.begin_restart(now)
    is_ended = before.is_given_up_in_silence and not node.is_given_up_in_silence
    if not node.cordoned or not node.is_awaited or (is_ended and not begins):
        return replace(node, forced=False, ask_after=None, answer_by=None)
    if before.restarts or (node.phase is NodePhase.CORDONED and node.has_answered):
        # The time that is left was for its reboot or its drain, which is over.
        node = replace(node, ask_after=None, answer_by=None)
    is_due = node.is_given_up_in_silence or before.restarts
    lacks_time = is_due and not (node.has_answered or node.is_asked)
    return _asked(node, now) if begins or lacks_time else node


def _asked(node: Node, now: datetime, grace_s: int = 0, *, is_observed: bool = False) -> Node:
    """Return the Node whose machine has to do something now, or to end Pods in `grace_s` seconds.

    When that is stored, and the machine can hear of it, is not known here: the replica may be late.
    So its time begins at the `Wake` for this very moment, which is stored after that.
    is_observed: whether a report shows that the machine ends all these Pods.
    """
    if node.removal is RemovalReason.PREEMPTED:
        return replace(node, ask_after=None, answer_by=None)
    after = now + USUALLY + timedelta(seconds=grace_s)
    return replace(node, ask_after=after, answer_by=None, has_grace=is_observed)


def _draining(node: Node, now: datetime) -> Node:
    """The Node whose drain begins, or goes on after a silence; see `_asked`.

    An agent reports only changes: it reports nothing if every Pod blocks, or only a lock does.
    """
    if not node.reported or not node.work:
        return _asked(node, now)
    if node.is_blocked and not (node.is_forced or node.forced):
        return replace(node, ask_after=None, answer_by=None)
    return _asked(node, now, max((workload.grace_s for workload in node.workloads), default=0))


def _ending(node: Node, now: datetime, pods: Sequence[Pod]) -> Node:
    """Return the Node after a report of the Pods that its drain ends.

    Their grace periods count from the first report in which all of them end: the replica that began
    the drain may have been late. No later report prolongs that time.
    """
    is_observed = all(pod.terminating for pod in pods)
    asked = _asked(node, now, max(pod.grace_s for pod in pods), is_observed=is_observed)
    if not node.is_asked:
        return asked
    if not node.has_grace:
        return asked if is_observed else node
    is_sooner = node.ask_after and asked.ask_after and asked.ask_after < node.ask_after
    return asked if is_sooner else node


def _observed(node: Node, report: Observed, now: datetime) -> Node:
    known = {workload.name: workload.since for workload in node.workloads}
    working = sorted((pod for pod in report.pods if pod.counts_as_work), key=lambda pod: pod.name)
    if node.phase is NodePhase.REBOOTING and isinstance(report, on.NodeObserved):
        working = []  # Reported before the machine knew of its reboot.
    node = replace(
        node,
        workloads=tuple(Workload.of(pod, known.get(pod.name, now)) for pod in working),
        observed=report.cordon if report.unschedulable else 0,
        reported=node.reported or isinstance(report, on.NodeReported),
        lock=lock.observed(node.lock, report),
    )
    is_blocked = node.is_blocked and not (node.is_forced or node.forced)
    if node.phase is NodePhase.DRAINING and node.workloads and not is_blocked:
        return _ending(node, now, working)
    # Nothing more is awaited of its machine: the next step is not its own, or a Pod is awaited.
    return replace(node, ask_after=None, answer_by=None) if node.has_answered else node


def _requested(
    node: Node, event: on.CWNodeDeletionRequestSuccess | on.NodeRemovalCancelled | on.NodeKept
) -> Node:
    """The Node as one that is to leave, or to stay after all."""
    # A preemption has its own timetable, which neither a scale-down nor a deletion shortens.
    reason = event.removal if isinstance(event, on.CWNodeDeletionRequestSuccess) else None
    goes_with_pool = reason is RemovalReason.POOL_DELETED and not node.has_timetable
    if node.removal is RemovalReason.PREEMPTED and not goes_with_pool:
        return node
    match event:
        case on.CWNodeDeletionRequestSuccess(removal=removal, idle_only=idle_only, request=request):
            return replace(
                node, removal=removal, idle_only=idle_only, request=request, cancelled=False
            )
        case on.NodeRemovalCancelled():
            return replace(node, cancelled=True)
        case on.NodeKept(request=request):
            is_kept = node.is_kept and request == node.request
            return replace(node, removal=None, cancelled=False) if is_kept else node
        case _:
            assert_never(event)


def _preempted(
    node: Node,
    event: on.NodePreempted | on.PreemptionPending | on.PreemptionInProgress,
    now: datetime,
) -> Node:
    """The Node as one that leaves for certain; one that goes with its pool does so anyway."""
    match event:
        case on.NodePreempted():
            if node.removal is None and not node.booting:  # It was kept; a timetable follows.
                return node
            node = replace(node, gone_by=now + GONE_AFTER)
            is_spareable = node.cordoned and node.removal is RemovalReason.SCALE_DOWN
            if not node.booting and not is_spareable:
                return node
            node = replace(node, removal=RemovalReason.PREEMPTED, idle_only=False)
            return replace(node, ask_after=None, answer_by=None)
        case on.PreemptionPending(since=since):
            node = replace(node, gone_by=since + GONE_AFTER)
            if node.removal is RemovalReason.POOL_DELETED:
                return node
            return replace(
                node,
                removal=RemovalReason.PREEMPTED,
                idle_only=False,
                has_timetable=True,
                ask_after=None,
                answer_by=None,
            )
        case on.PreemptionInProgress(evicted_at=moment):
            # Its drain says so whatever a drain before said.
            is_drained_anew = node.removal is RemovalReason.PREEMPTED
            return replace(node, evicted_at=moment, forced=node.forced and not is_drained_anew)
        case _:
            assert_never(event)
