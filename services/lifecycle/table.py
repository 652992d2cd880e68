"""The state machine of a Node, as a table: phase and condition on the left, next event below.

Each function is one part of the table. Its first `case` that matches yields the next events. Then
the table is read again from the top, until no `case` matches. The steps depend only on the Node, so
a step that failed, or that a lagging replica did not take, is taken with the next message. The
lengths of the deadlines are in `lifecycle.deadlines` and in `nodepool.contract.timetable`.
"""

from collections.abc import Callable, Generator
from datetime import timedelta
from typing import Final, NamedTuple

from lifecycle import Says
from lifecycle.deadlines import LOCK_WITHIN, REBOOT_MAX, USUALLY, VERIFY_MAX
from lifecycle.health import Plan, make_plan
from lifecycle.look import is_cordon_new, plan_for
from lifecycle.node import Node
from lifecycle.node_events import (
    activity_changed,
    answer_awaited,
    cordon_node,
    delete_node,
    draining,
    keep_node,
    list_names,
    lock_changed,
    node_fields,
    register_node,
    registration_failed,
    replace_node,
    report_requested,
    report_unanswered,
    reservation_changed,
    silent,
    uncordon_node,
    update_node,
)
from lifecycle.options import Options
from lifecycle.template import NodeTemplate
from nodepool.contract.events.lifecycle import LockState, NodeAnswered
from nodepool.contract.model import NodeAction, NodePhase, RemovalReason
from nodepool.contract.node_failures import NodeFailure
from nodepool.contract.timetable import BOOT_MAX
from nodepool.service import Context

STEPS_MAX: Final = 16
"""A limit above the number of steps that one message leads to; the next message continues."""
Steps = Generator[Says, Node, Node]
"""Events about a Node. Each `yield` returns the Node after its event, as does the generator.

No event follows the deletion of the Node.
"""


class Case(NamedTuple):
    """A Node, and everything that its next step depends on.

    plan: what happens to the Node because of its health and of commands.
    """

    template: NodeTemplate
    node: Node
    plan: Plan
    context: Context
    options: Options

    def after(self, node: Node) -> "Case":
        """Return the case after a step of the Node."""
        return self._replace(node=node, plan=plan_for(self.template, node))


def take_steps(
    template: NodeTemplate, node: Node, context: Context, options: Options, *, is_due: bool = False
) -> Steps:
    """Yield all steps that are missing for a Node; return the Node after them.

    is_due: whether a deadline may lead to a step too; a deadline counts only if no step is missing.
    """
    case = Case(template, node, plan_for(template, node), context, options)
    parts = (*PARTS, meet_deadline) if is_due else PARTS
    for _ in range(STEPS_MAX):
        for part in parts:
            node = yield from part(case)
            if node is not case.node:
                break
        else:
            break
        case = case.after(node)
    return case.node


def publish_work(case: Case) -> Steps:
    """Publish what runs on a Node before anything follows from it."""
    activity = None if case.node.is_booting else activity_changed(case.template, case.node)
    return case.node if activity is None else (yield activity)


def publish_answer(case: Case) -> Steps:
    """Publish that the time by which a machine has to answer holds no more."""
    node = case.node
    is_over = node.is_deadline_shown and node.answer.by is None
    return (yield NodeAnswered(**node_fields(case.template, node))) if is_over else node


def settle_lock(case: Case) -> Steps:
    """Give a pending lock to its job once the last Pod that does not tolerate the lock is gone.

    No job begins on a Node that is not in production, or that its next step takes out of
    production. A job keeps a Node that leaves only if it is idle, unless the Node has a cordon of
    its own. A Node that stays after all returns to production first.
    """
    node, plan, lock = case.node, case.plan, case.node.work.lock
    if lock is None or lock.is_held or node.exit.is_spared:
        return node
    reason = node.exit.reason
    is_victim = reason is RemovalReason.SCALE_DOWN
    is_kept_by_work = is_victim and node.exit.idle_only and plan.is_nothing
    match node.phase:
        case NodePhase.PRODUCTION if reason is not None or plan.causes or plan.forced:
            return node
        case phase if phase is NodePhase.PRODUCTION or is_kept_by_work:
            text = f"{lock.work} has Node {node.name}"
            is_given = lock.is_clear
            return (yield from _publish_lock(case, "locked", text)) if is_given else node
        case _ if reason is None or (is_victim and not plan.is_nothing):
            return (yield from _publish_lock(case, "released", f"Node {node.name} is cordoned"))
        case _ if is_victim and not node.has_answered:
            return node  # Its removal may still be cancelled.
    text = f"Node {node.name} leaves its NodePool ({reason.value})"
    return (yield from _publish_lock(case, "released", text))


def _publish_lock(case: Case, state: LockState, text: str) -> Steps:
    template, node, lock = case.template, case.node, case.node.work.lock
    assert lock is not None, f"Node {node.name} has no lock"
    node = yield lock_changed(template, node, lock, state, text)
    return (yield update_node(template, node, node.phase, node.exit.reason))


def keep(case: Case) -> Steps:
    """Keep a Node that a scale-down chose, and that its NodePool or its work needs after all."""
    template, node = case.template, case.node
    is_victim = node.exit.reason is RemovalReason.SCALE_DOWN and node.exit.idle_only
    if node.exit.is_spared:
        why = "its NodePool wants it again"
    elif is_victim and node.holding and (node.has_answered or node.restarts):
        why = f"it became active: {list_names(tuple(each.name for each in node.holding))}"
    else:
        return node
    event = keep_node(template, node, why)
    if node.is_cordoned or node.exit.shown is not None:
        phase = _resting_phase(case) if node.is_cordoned else node.phase
        # An unhealthy Node leaves all the same: its NodePool must not count it as staying.
        removal = RemovalReason.UNHEALTHY if node.is_cordoned and case.plan.removes else None
        yield update_node(template, node, phase, removal)
    return (yield event)


def join(case: Case) -> Steps:
    """Take a Node from its boot into its NodePool."""
    template, node, boot = case.template, case.node, case.node.boot
    is_here = node.is_reported or not template.has_agent
    match node.phase:
        case NodePhase.BOOTING if not node.exit.is_for_health:
            return node
        case NodePhase.BOOTING if boot.is_done and is_here:
            return (yield register_node(template, node))
        case NodePhase.BOOTING if boot.fault:
            return (yield registration_failed(template, node, boot.fault))
    return node


def stay(case: Case) -> Steps:  # noqa: C901  # It is a part of the table.
    """Cordon, drain, reboot and verify a Node that stays, or replace the Node as unhealthy."""
    template, node, plan = case.template, case.node, case.plan
    health = node.health
    if node.is_booting or not node.exit.is_for_health:
        return node
    if node.is_usable is not health.is_usable and not _is_given_back_soon(case):
        return (yield reservation_changed(template, node))
    removal = RemovalReason.UNHEALTHY if plan.removes else None
    match node.phase:
        case NodePhase.VERIFYING | NodePhase.REBOOTING:
            return (yield from _restart(case))

        case NodePhase.PRODUCTION if plan.forced:
            return (yield from _show(case, NodePhase.REBOOTING))
        case NodePhase.PRODUCTION if plan.causes or (plan.reboots and not node.work.is_blocking):
            return (yield from _show(case, NodePhase.CORDONED, removal))
        case NodePhase.PRODUCTION if node.cordon.causes:
            return (yield uncordon_node(template, node))
        case NodePhase.PRODUCTION if plan.action is not node.action:
            return (yield update_node(template, node, NodePhase.PRODUCTION, None))

        case NodePhase.CORDONED | NodePhase.DRAINING if plan.is_nothing:
            return (yield update_node(template, node, _resting_phase(case), None))
        case NodePhase.CORDONED if _is_postponed(case):
            return (yield update_node(template, node, _find_phase_after_cordon(node), None))
        case NodePhase.CORDONED | NodePhase.DRAINING if plan.forced:
            return (yield from _show(case, NodePhase.REBOOTING))
        case NodePhase.CORDONED | NodePhase.DRAINING if _is_cordon_outdated(case):
            goes_on = plan.removes or plan.action is not None
            return (yield from _show(case, node.phase if goes_on else NodePhase.CORDONED, removal))
        case _ if not node.has_answered:
            return node
    return (yield from _drain(case))


def _is_given_back_soon(case: Case) -> bool:
    """Return whether a Node returns to production first, and then to its NodePool.

    Otherwise the NodePool would count the Node as cordoned, and remove it before newer Nodes.
    """
    node = case.node
    is_cordoned = node.phase in (NodePhase.CORDONED, NodePhase.DRAINING)
    is_shown = node.phase is NodePhase.PRODUCTION and bool(node.cordon.causes)
    return node.health.is_usable and case.plan.is_nothing and (is_cordoned or is_shown)


def _restart(case: Case) -> Steps:
    """Take a Node through its reboot and its verification.

    A problem that the reboot cures counts again only some time after the boot. A Node on which work
    runs is cordoned and drained first, as in production; only a forced reboot does not wait.
    """
    template, node, boot, health = case.template, case.node, case.node.boot, case.node.health
    is_settling = health.settles_at is not None and case.context.time < health.settles_at
    settled = health.without_lingering() if is_settling else health
    plan = make_plan(settled, evicts=template.evicts_unhealthy)
    # If only such a problem would cordon the Node, the Node waits until the problem counts.
    waits = is_settling and (node.has_work or not (settled.findings or plan.reboots))
    has_failed = boot.passed is False and not health.findings
    is_to_be_drained = plan.reboots and not node.work.is_blocking
    ends = boot.passed is not None or bool(settled.findings) or is_to_be_drained
    match node.phase:
        case NodePhase.VERIFYING if plan.forced or (plan.reboots and not node.has_work):
            return (yield update_node(template, node, NodePhase.REBOOTING, None))
        case NodePhase.VERIFYING if (plan.removes or has_failed) and not node.has_work:
            return (yield replace_node(template, node))
        case NodePhase.VERIFYING if ends and not (waits or has_failed):
            return (yield from _release(case))

        case NodePhase.REBOOTING if boot.fault:
            return (yield replace_node(template, node))
        case NodePhase.REBOOTING if not boot.is_done or (template.has_agent and health.is_silent):
            return node  # The Node is back in its cluster once its kubelet reports.
        case NodePhase.REBOOTING if boot.verifies:
            return (yield update_node(template, node, NodePhase.VERIFYING, None))
        case NodePhase.REBOOTING if not waits:
            return (yield from _release(case))
    return node


def _drain(case: Case) -> Steps:
    """Drain a Node whose machine has answered the cordon, and go on once the Node is drained."""
    template, node, plan, asked = case.template, case.node, case.plan, case.node.health.asked
    is_restored = not plan.removes and plan.action in (None, NodeAction.DRAIN)
    match node.phase:
        case _ if is_restored and node.health.is_pending and not node.holding:
            reserved = asked.reserved_desired
            return (yield update_node(template, node, NodePhase.CORDONED, None, reserved))
        case _ if not plan.removes and plan.action is None:
            return node
        case NodePhase.DRAINING if plan.removes and not node.holding:
            return (yield replace_node(template, node))
        case NodePhase.DRAINING if plan.reboots and not node.holding:
            return (yield update_node(template, node, NodePhase.REBOOTING, None))
        case NodePhase.DRAINING if not node.holding:
            return (yield update_node(template, node, NodePhase.CORDONED, None))
        case NodePhase.DRAINING if asked.drain == "forced" and not node.cordon.is_drain_forced:
            return (yield draining(template, node))
        case NodePhase.CORDONED if node.holding or plan.action is not NodeAction.DRAIN:
            return (yield draining(template, node))
    return node


def leave(case: Case) -> Steps:  # noqa: C901  # It is a part of the table.
    """Cordon, drain and delete a Node that leaves for a reason other than its health.

    Without a timetable a preemption ends no Pod. If work runs on the Node all the same, the Node
    gets a timetable as soon as the preemption service hears of that work.
    """
    template, node, plan, exit = case.template, case.node, case.plan, case.node.exit
    is_over, is_preempted = node.is_over(case.context.time), exit.reason is RemovalReason.PREEMPTED
    is_to_be_forced = exit.is_forced and not node.cordon.is_drain_forced
    if exit.is_for_health:
        return node
    match node.phase:
        case NodePhase.CORDONED | NodePhase.DRAINING if (
            exit.reason is not exit.shown and not is_over
        ):
            # A preemption has its own timetable, which determines when the drain begins.
            is_drained_again = node.phase is NodePhase.DRAINING and not is_preempted
            drain = draining(template, node) if is_drained_again else None
            node = yield update_node(template, node, node.phase, exit.reason)
            return node if drain is None else (yield drain)
        case NodePhase.CORDONED | NodePhase.DRAINING if plan.causes and is_cordon_new(node, plan):
            return (yield from _show(case, node.phase, exit.reason))
        case NodePhase.CORDONED | NodePhase.DRAINING if plan.is_nothing and node.cordon.causes:
            node = yield uncordon_node(template, node)
            return (yield update_node(template, node, node.phase, exit.reason))

        case _ if is_over:
            return (yield delete_node(template, node, lost=len(node.work.pods)))
        case NodePhase.BOOTING | NodePhase.REBOOTING | NodePhase.VERIFYING if not node.has_work:
            return (yield delete_node(template, node))

        case NodePhase.PRODUCTION | NodePhase.CORDONED if is_preempted and is_to_be_forced:
            return (yield from _drain_by_force(case))
        case NodePhase.PRODUCTION | NodePhase.REBOOTING | NodePhase.VERIFYING:
            return (yield update_node(template, node, NodePhase.CORDONED, exit.reason))
        case NodePhase.CORDONED if is_preempted and (exit.has_timetable or node.holding):
            return node
        case NodePhase.CORDONED if node.has_answered:
            return (yield draining(template, node))

        case NodePhase.DRAINING if is_to_be_forced:
            return (yield from _drain_by_force(case))
        case NodePhase.DRAINING if node.has_answered and not node.holding and not exit.is_warned:
            return (yield delete_node(template, node))
    return node


def _drain_by_force(case: Case) -> Steps:
    """Drain a Node without waiting for blocking Pods.

    This is the drain of a preemption, two minutes after the warning or when it is acknowledged, or
    a drain that is under way when the NodePool is deleted.
    """
    template, node = case.template, case.node
    drain = draining(template, node)
    yield update_node(template, node, NodePhase.DRAINING, node.exit.reason)
    return (yield drain)


def _is_cordon_outdated(case: Case) -> bool:
    """Return whether a cordoned Node that stays shows other causes or another plan than it has."""
    node, plan = case.node, case.plan
    is_removed = node.exit.reason is RemovalReason.UNHEALTHY
    is_drained_in_vain = node.phase is NodePhase.DRAINING and not (plan.removes or plan.action)
    is_other_plan = (is_removed, node.action) != (plan.removes, plan.action)
    return is_drained_in_vain or is_other_plan or is_cordon_new(node, plan)


def _release(case: Case) -> Steps:
    """Return a Node to production after its boot and its verification, unless it has a cordon."""
    template, node, plan = case.template, case.node, case.plan
    if plan.removes and not node.has_work:
        return (yield replace_node(template, node))
    if plan.is_nothing or _is_postponed(case):
        return (yield update_node(template, node, NodePhase.PRODUCTION, None))
    removal = RemovalReason.UNHEALTHY if plan.removes else None
    return (yield from _show(case, NodePhase.CORDONED, removal))


def _is_postponed(case: Case) -> bool:
    """Return whether a safe reboot waits for work on a Node that needs no cordon until then."""
    plan = case.plan
    return plan.reboots and not (plan.causes or plan.forced) and case.node.work.is_blocking


def _resting_phase(case: Case) -> NodePhase:
    """Return the phase of a cordoned Node that does not leave."""
    return _find_phase_after_cordon(case.node) if case.plan.is_nothing else NodePhase.CORDONED


def _find_phase_after_cordon(node: Node) -> NodePhase:
    """Return the phase of a Node after its cordon.

    A Node that was cordoned before its verification was over is verified again.
    """
    is_verified = node.boot.passed or not node.boot.verifies
    return NodePhase.PRODUCTION if is_verified else NodePhase.VERIFYING


def _show(case: Case, phase: NodePhase, removal: RemovalReason | None = None) -> Steps:
    """Move a Node to a phase, and publish the causes of its cordon if they are new."""
    template, node = case.template, case.node
    event = cordon_node(template, node) if is_cordon_new(node, case.plan) else None
    node = yield update_node(template, node, phase, removal)
    return node if event is None else (yield event)


def meet_deadline(case: Case) -> Steps:
    """Give up what has not come in time, or begin the time of a machine that has to answer.

    The time of a machine has two steps: `ask_after` is the moment at which it begins, and `by` the
    moment at which it ends. Only the `Wake` for the moment of `ask_after` shows that the output
    that asks the machine is stored. A replica that is late may read an older `Wake` in the step
    that yields this output.
    """
    template, node, context, options = case.template, case.node, case.context, case.options
    lock, silence, answer, now = node.work.lock, node.health.silence, node.answer, context.time
    if node.is_booting and node.boot_by <= now:
        cause = f"{NodeFailure.NOT_JOINED.phrase} {BOOT_MAX // timedelta(minutes=1)} minutes"
        return (yield registration_failed(template, node, cause))

    if lock is not None and lock.due is not None and lock.due <= now:
        return (yield from _meet_lock_deadline(case))

    if silence is not None and node.is_newly_silent:
        until = silence.since + options.unhealthy_after
        return (yield silent(template, node, silence, until))
    if silence is not None and silence.ask_at is not None and silence.ask_at <= now:
        return (yield report_requested(template, node, context.position))

    if answer.by is not None and answer.by <= now:
        return (yield from _give_up(case))
    if answer.by is None and answer.ask_after is not None and answer.ask_after <= now:
        is_stored = context.due == answer.ask_after
        patience = _RESTART_MAX.get(node.phase, options.answer_within)
        until = now + (patience if is_stored else USUALLY)
        return (yield answer_awaited(template, node, until, is_final=is_stored))
    return node


def _meet_lock_deadline(case: Case) -> Steps:
    """Release a lock whose machine did not answer in time, or begin that time."""
    template, node, now, lock = case.template, case.node, case.context.time, case.node.work.lock
    assert lock is not None, f"Node {node.name} has no lock"
    if lock.is_over(now):
        text = f"Node {node.name} did not answer in time"
        return (yield from _publish_lock(case, "released", text))
    is_stored = case.context.due == lock.due
    until = now + (LOCK_WITHIN if is_stored else USUALLY)
    return (yield answer_awaited(template, node, until, is_final=is_stored, lock=lock.number))


def _give_up(case: Case) -> Steps:
    """End a cordon, a drain, a reboot or a verification that takes too long.

    A Node that has rebooted, and only waits for a problem to settle, is released. Any other Node is
    deleted, and its machine goes to triage. A Node that `is_for_health` is replaced; a Node that
    was about to leave for another reason is not.
    """
    template, node = case.template, case.node
    match node.phase:
        case NodePhase.REBOOTING if node.boot.is_done and node.health.settles_at is not None:
            return (yield from _release(case))
        case NodePhase.REBOOTING:
            minutes = REBOOT_MAX // timedelta(minutes=1)
            text = f"{NodeFailure.NOT_REBOOTED.phrase} {minutes} minutes"
            return (yield replace_node(template, node, text))
        case NodePhase.VERIFYING:
            minutes = VERIFY_MAX // timedelta(minutes=1)
            text = f"{NodeFailure.NOT_VERIFIED.phrase} {minutes} minutes"
            return (yield replace_node(template, node, text))
    node = yield report_unanswered(template, node)
    if node.exit.is_for_health:
        return (yield replace_node(template, node))
    return (yield delete_node(template, node, triage=True))


_RESTART_MAX: Final = {NodePhase.REBOOTING: REBOOT_MAX, NodePhase.VERIFYING: VERIFY_MAX}
PARTS: Final[tuple[Callable[[Case], Steps], ...]] = (
    publish_work,
    publish_answer,
    settle_lock,
    keep,
    join,
    stay,
    leave,
)
"""The parts of the table, in the order in which they are read."""
