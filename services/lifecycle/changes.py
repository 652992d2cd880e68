"""How each message about a Node changes the Node."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import assert_never

from lifecycle.deadlines import USUALLY
from lifecycle.health import Asked
from lifecycle.lock import await_answer, change_lock, observe_pods
from lifecycle.node import NO_ANSWER, Answer, Boot, Node, Workload
from nodepool.contract import events as on
from nodepool.contract.model import NodePhase, RemovalReason
from nodepool.contract.observations import ConditionSeen, NodeSeen
from nodepool.contract.pods import Pod
from nodepool.contract.timetable import GONE_AFTER
from nodepool.state.values import replace

BootReport = on.MachineBooted | on.MachineFailed | on.NodeVerified
"""The reports of a machine about its boots."""
NodeChange = (
    BootReport
    | ConditionSeen
    | NodeSeen
    | on.NodeActionRequested
    | on.CWNodeCordoned
    | on.CWNodeUncordoned
    | on.NodeSilent
    | on.NodeReportRequested
    | on.CWNodeRegistered
    | on.NodeUpdated
    | on.NodeActivityChanged
    | on.NodeReservationChanged
    | on.AnswerAwaited
    | on.NodeAnswered
    | on.CWDrainNode
    | on.CWNodeDeletionRequestSuccess
    | on.NodeRemovalCancelled
    | on.NodeKept
    | on.NodeLockChanged
    | on.NodePreempted
    | on.PreemptionPending
    | on.PreemptionInProgress
)
"""The messages that change a Node during its stay."""


def is_expected(node: Node, report: BootReport) -> bool:
    """Return whether a report is about what the Node does now; any other report is ignored."""
    if report.boot != node.boot.number:
        return False
    if isinstance(report, on.NodeVerified):
        return node.phase is NodePhase.VERIFYING
    return node.phase is (NodePhase.REBOOTING if report.boot else NodePhase.BOOTING)


def change_node(  # noqa: C901, PLR0912  # It lists the messages.
    node: Node, message: NodeChange, now: datetime
) -> Node:
    """Return the Node after a message about it that the log stored at `now`."""
    match message:
        case on.MachineBooted() | on.MachineFailed() | on.NodeVerified():
            return _report_boot(node, message, now) if is_expected(node, message) else node
        case on.CWNodeRegistered(phase=phase):
            return _await_restart(replace(node, phase=phase), now)
        case on.NodeUpdated():
            return _update(node, message, now)
        case on.NodeObserved() | on.NodeReported():
            return _observe(node, message, now)
        case on.NodeActivityChanged():
            return replace(node, work=node.work._replace(published=node.work.all))
        case on.NodeLockChanged():
            lock = change_lock(node.work.lock, message, now)
            return replace(node, work=node.work._replace(lock=lock))
        case on.NodeReservationChanged(usable=usable):
            return replace(node, is_usable=usable)
        case on.NodeConditionChanged() | on.NodeConditionReported():
            return _report_condition(node, message, now)
        case on.NodeSilent() | on.NodeReportRequested():
            silence = node.health.silence and node.health.silence.follow(message)
            return replace(node, health=node.health._replace(silence=silence))
        case on.NodeActionRequested():
            asked = Asked(message.cordon, message.drain, message.reboot, message.reserved_desired)
            return replace(node, health=node.health._replace(asked=asked))
        case on.CWNodeCordoned(cause=causes, triage=is_for_triage):
            cordon = node.cordon._replace(causes=causes, is_for_triage=is_for_triage)
            return replace(node, cordon=cordon)
        case on.CWNodeUncordoned():
            return replace(node, cordon=node.cordon._replace(causes="", is_for_triage=False))
        case on.CWDrainNode(force=force):
            cordon = node.cordon._replace(is_drain_forced=force)
            return _await_drain(replace(node, phase=NodePhase.DRAINING, cordon=cordon), now)
        case on.AnswerAwaited():
            return _await_answer(node, message)
        case on.NodeAnswered():
            return replace(node, is_deadline_shown=False)
        case on.CWNodeDeletionRequestSuccess() | on.NodeRemovalCancelled() | on.NodeKept():
            return _follow_request(node, message, now)
        case on.NodePreempted() | on.PreemptionPending() | on.PreemptionInProgress():
            return _preempt(node, message, now)
        case _:
            assert_never(message)


def _report_boot(node: Node, report: BootReport, now: datetime) -> Node:
    match report:
        case on.MachineBooted(verifying=verifies):
            boot = node.boot._replace(is_done=True, verifies=verifies)
            return replace(node, boot=boot, health=node.health.end_reboot(now))
        case on.MachineFailed(cause=cause):
            return replace(node, boot=node.boot._replace(fault=cause))
        case on.NodeVerified(passed=passed, cause=cause):
            boot = node.boot._replace(passed=passed, verification_fault=cause)
            return replace(node, boot=boot, answer=NO_ANSWER)
        case _:
            assert_never(report)


def _update(node: Node, event: on.NodeUpdated, now: datetime) -> Node:
    before, health, boot = node, node.health.reserve(event.reserved), node.boot
    if event.boot > boot.number:
        health, boot = health.begin_reboot(), Boot(event.boot)
    node = replace(
        node,
        phase=event.phase,
        boot=boot,
        exit=node.exit._replace(reason=event.removal, shown=event.removal),
        cordon=node.cordon._replace(
            number=event.cordon,
            is_drained=node.cordon.is_drained and event.phase is NodePhase.CORDONED,
        ),
        health=health,
        action=event.action,
    )
    if node.phase is NodePhase.REBOOTING:
        # In a Kubernetes cluster, Pods stay bound to their Node and run again after its reboot.
        pods = node.work.pods if node.is_reported else ()
        node = replace(node, work=node.work._replace(pods=pods, lock=None))
    if node.restarts and node.phase is before.phase:
        return node
    if node.restarts:
        verified_again = node.boot._replace(passed=None, verification_fault="")
        return _await_restart(replace(node, boot=verified_again), now)
    return _await_cordon(before, node, now)


def _await_cordon(before: Node, node: Node, now: datetime) -> Node:
    """Return a Node that was updated, whose machine may have to answer a cordon.

    The time to answer begins with each cordon, and if a Node that has to answer lacks such a time;
    it ends once no plan for the Node needs the answer.
    """
    begins = node.cordon.number > before.cordon.number
    is_ended = before.is_given_up_in_silence and not node.is_given_up_in_silence
    is_awaited = node.is_given_up_in_silence or node.health.is_pending
    if not node.is_cordoned or not is_awaited or (is_ended and not begins):
        cordon = node.cordon._replace(is_drain_forced=False)
        return replace(node, cordon=cordon, answer=NO_ANSWER)
    if before.restarts or (node.phase is NodePhase.CORDONED and node.has_answered):
        # The remaining time was for the reboot or the drain, which is over.
        node = replace(node, answer=NO_ANSWER)
    is_due = node.is_given_up_in_silence or before.restarts
    lacks_time = is_due and not (node.has_answered or node.answer.is_awaited)
    return _ask(node, now) if begins or lacks_time else node


def _await_restart(node: Node, now: datetime) -> Node:
    """Return the Node, whose machine has to answer if it reboots or is verified from now on."""
    if not node.restarts:
        return node
    cordon = node.cordon._replace(is_drain_forced=False)
    return replace(node, cordon=cordon, answer=Answer(now + USUALLY))


def _ask(node: Node, now: datetime, grace_s: int = 0, *, is_observed: bool = False) -> Node:
    """Return the Node whose machine has to do something now, or to end Pods in `grace_s` seconds.

    The replica may be late: it cannot know when its output is stored, and the machine can hear of
    it. So the time begins at the `Wake` for this very moment, which is stored after the output.
    is_observed: whether a report shows that the machine ends all these Pods.
    """
    if node.exit.reason is RemovalReason.PREEMPTED:
        return replace(node, answer=NO_ANSWER)
    return replace(
        node, answer=Answer(now + USUALLY + timedelta(seconds=grace_s), None, is_observed)
    )


def _await_drain(node: Node, now: datetime) -> Node:
    """Return the Node whose drain begins, or goes on after a silence; see `_ask`.

    An agent reports only changes: it reports nothing if every Pod blocks, or only a lock does.
    """
    if not node.is_reported or not node.work.all:
        return _ask(node, now)
    if _is_blocked(node):
        return replace(node, answer=NO_ANSWER)
    return _ask(node, now, max((workload.grace_s for workload in node.work.pods), default=0))


def _await_end_of_pods(node: Node, now: datetime, pods: Sequence[Pod]) -> Node:
    """Return the Node after a report of the Pods that its drain ends.

    Their grace periods count from the first report in which all of them end: the replica that began
    the drain may have been late. No later report prolongs that time.
    """
    is_observed = all(pod.terminating for pod in pods)
    asked = _ask(node, now, max(pod.grace_s for pod in pods), is_observed=is_observed)
    if not node.answer.is_awaited:
        return asked
    if not node.answer.has_grace:
        return asked if is_observed else node
    before, after = node.answer.ask_after, asked.answer.ask_after
    return asked if before and after and after < before else node


def _await_answer(node: Node, event: on.AnswerAwaited) -> Node:
    if event.lock:
        lock = await_answer(node.work.lock, event)
        return replace(node, work=node.work._replace(lock=lock))
    if event.is_final:
        answer = node.answer._replace(ask_after=None, by=event.answer_by)
        return replace(node, answer=answer, is_deadline_shown=True)
    return replace(node, answer=node.answer._replace(ask_after=event.answer_by))


def _is_blocked(node: Node) -> bool:
    is_forced = node.exit.is_forced or node.cordon.is_drain_forced
    return node.work.is_blocking and not is_forced


def _observe(node: Node, report: NodeSeen, now: datetime) -> Node:
    known = {workload.name: workload.since for workload in node.work.pods}
    working = sorted((pod for pod in report.pods if pod.counts_as_work), key=lambda pod: pod.name)
    if node.phase is NodePhase.REBOOTING and isinstance(report, on.NodeObserved):
        working = []  # The machine sent this report before it knew of the reboot.
    pods = tuple(Workload.of(pod, known.get(pod.name, now)) for pod in working)
    lock = observe_pods(node.work.lock, report)
    observed = report.cordon if report.unschedulable else 0
    node = replace(
        node,
        is_reported=node.is_reported or isinstance(report, on.NodeReported),
        work=node.work._replace(pods=pods, lock=lock),
        cordon=node.cordon._replace(observed=observed),
    )
    if node.phase is NodePhase.DRAINING and pods and not _is_blocked(node):
        return _await_end_of_pods(node, now, working)
    # The machine owes no other answer: the next step is not its own, or waits for a Pod.
    return replace(node, answer=NO_ANSWER) if node.has_answered else node


def _report_condition(node: Node, event: ConditionSeen, now: datetime) -> Node:
    """Return the Node after one of its conditions changed.

    What a machine reported before its silence is no answer any more. An agent reports only what
    changes: its last report counts again after the silence.
    """
    was_silent, was_drained = node.health.is_silent, node.has_answered and not node.holding
    node = replace(node, health=node.health.report(event, now))
    if node.health.is_silent is was_silent or not node.is_cordoned:
        return node
    is_drained = was_drained and node.phase is NodePhase.CORDONED and node.health.is_silent
    node = replace(node, cordon=node.cordon._replace(is_drained=is_drained))
    if node.health.is_silent:
        observed = node.cordon.observed if node.is_reported else 0
        node = replace(node, cordon=node.cordon._replace(observed=observed))
        is_to_answer = node.is_given_up_in_silence and not node.answer.is_awaited
        return _ask(node, now) if is_to_answer else node
    if not (node.is_reported and node.has_answered):
        return node
    if node.phase is NodePhase.DRAINING:
        return _await_drain(node, now)
    return replace(node, answer=NO_ANSWER)


def _follow_request(
    node: Node,
    event: on.CWNodeDeletionRequestSuccess | on.NodeRemovalCancelled | on.NodeKept,
    now: datetime,
) -> Node:
    """Return the Node as a Node that leaves, or that stays after all."""
    # A preemption has its own timetable, which neither a scale-down nor a deletion shortens.
    reason = event.removal if isinstance(event, on.CWNodeDeletionRequestSuccess) else None
    goes_with_pool = reason is RemovalReason.POOL_DELETED and not node.exit.has_timetable
    if node.exit.reason is RemovalReason.PREEMPTED and not goes_with_pool:
        return node
    exit = node.exit
    match event:
        case on.CWNodeDeletionRequestSuccess(idle_only=idle_only, request=request):
            if exit.reason is None and exit.gone_by is not None:
                # Its preemption began without a warning while nothing removed the Node yet.
                exit = exit._replace(gone_by=now + GONE_AFTER)
            exit = exit._replace(
                reason=event.removal, idle_only=idle_only, request=request, is_cancelled=False
            )
        case on.NodeRemovalCancelled():
            exit = exit._replace(is_cancelled=True)
        case on.NodeKept(request=request):
            if exit.reason is RemovalReason.SCALE_DOWN and request == exit.request:
                exit = exit._replace(reason=None, is_cancelled=False)
        case _:
            assert_never(event)
    return replace(node, exit=exit)


def _preempt(
    node: Node,
    event: on.NodePreempted | on.PreemptionPending | on.PreemptionInProgress,
    now: datetime,
) -> Node:
    """Return the Node as a Node that certainly leaves, unless it goes with its NodePool anyway."""
    exit = node.exit
    match event:
        case on.NodePreempted():
            # If the Node stays, a timetable follows, or the deletion of its NodePool.
            exit = exit._replace(gone_by=now + GONE_AFTER)
            is_spareable = node.is_cordoned and exit.reason is RemovalReason.SCALE_DOWN
            if not node.is_booting and not is_spareable:
                return replace(node, exit=exit)
            exit = exit._replace(reason=RemovalReason.PREEMPTED, idle_only=False)
            return replace(node, exit=exit, answer=NO_ANSWER)
        case on.PreemptionPending(since=since):
            exit = exit._replace(gone_by=since + GONE_AFTER)
            if exit.reason is RemovalReason.POOL_DELETED:
                return replace(node, exit=exit)
            exit = exit._replace(
                reason=RemovalReason.PREEMPTED, idle_only=False, has_timetable=True
            )
            return replace(node, exit=exit, answer=NO_ANSWER)
        case on.PreemptionInProgress(evicted_at=moment):
            # The drain for a preemption is published as forced, even after another forced drain.
            is_drained_again = exit.reason is RemovalReason.PREEMPTED
            is_forced = node.cordon.is_drain_forced and not is_drained_again
            cordon = node.cordon._replace(is_drain_forced=is_forced)
            return replace(node, exit=exit._replace(evicted_at=moment), cordon=cordon)
        case _:
            assert_never(event)
