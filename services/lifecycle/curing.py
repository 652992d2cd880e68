"""Cordon, drain, reboot and verify a Node that stays, or replace the Node as unhealthy.

For a Node that leaves, publish the causes of its cordon other than the removal.
"""

from collections.abc import Iterator
from typing import assert_never

from lifecycle import Says
from lifecycle.appearance import planned, updated
from lifecycle.health import HEALTHY, Plan, is_cordon_new
from lifecycle.node import Node
from lifecycle.node_events import (
    activity_changed,
    cordoned,
    draining,
    replaced,
    reservation_changed,
    uncordoned,
)
from lifecycle.steps import Steps
from lifecycle.template import NodeTemplate
from nodepool.contract.model import NodeAction, NodePhase, RemovalReason

STEPS_MAX = 8
"""More steps than can follow from one message; the next one continues."""


def cured(template: NodeTemplate, node: Node) -> Steps:
    """All that is missing for a Node that stays, or leaves as unhealthy, after its activity."""
    if node.health is HEALTHY and node.phase is NodePhase.PRODUCTION:
        return node
    for _ in range(STEPS_MAX):
        before = node
        for event in tuple(_step(template, node)):
            node = yield event
        if node is before:
            break
        activity = activity_changed(template, node)
        if activity is not None:
            node = yield activity
    return node


def publish_causes(template: NodeTemplate, node: Node) -> Steps:
    """Yield changed causes, other than its removal, for which a Node that leaves is cordoned.

    The causes decide whether the Node is kept, and whether its machine goes to triage.
    Return the Node after these events.
    """
    plan = planned(template, node)
    if not node.cordoned:
        return node
    if plan.causes and is_cordon_new(node.health, plan):
        event = cordoned(template, node)
        yield updated(template, node, node.phase, node.removal)
        return (yield event)
    if plan.is_nothing and node.health.cordoned_for:
        node = yield uncordoned(template, node)
        return (yield updated(template, node, node.phase, node.removal))
    return node


def resting_phase(template: NodeTemplate, node: Node) -> NodePhase:
    """The phase of a Node that does not leave after all."""
    is_free = planned(template, node).is_nothing
    return NodePhase.PRODUCTION if is_free else NodePhase.CORDONED


def _step(template: NodeTemplate, node: Node) -> Iterator[Says]:
    plan = planned(template, node)
    if node.usable is not node.health.is_usable:
        yield reservation_changed(template, node)
        return
    match node.phase:
        case NodePhase.BOOTING | NodePhase.DELETED:
            return
        case NodePhase.VERIFYING:
            yield from _verifying(template, node, plan)
        case NodePhase.REBOOTING:
            yield from _rebooting(template, node, plan)
        case NodePhase.PRODUCTION:
            yield from _in_production(template, node, plan)
        case NodePhase.CORDONED | NodePhase.DRAINING:
            yield from _cordoned(template, node, plan)
        case _:
            assert_never(node.phase)


def _verifying(template: NodeTemplate, node: Node, plan: Plan) -> Iterator[Says]:
    health = node.health
    if plan.removes or (health.verified is False and not health.findings):
        yield replaced(template, node)
    elif plan.reboots:
        yield updated(template, node, NodePhase.REBOOTING, None)
    elif health.verified or health.findings:
        yield from _released(template, node, plan)


def _rebooting(template: NodeTemplate, node: Node, plan: Plan) -> Iterator[Says]:
    if node.health.boot_fault:
        yield replaced(template, node)
    elif template.has_agent and node.health.is_silent:
        return  # It is back in its cluster once its kubelet reports again.
    elif node.health.booted and node.health.verifying:
        yield updated(template, node, NodePhase.VERIFYING, None)
    elif node.health.booted:
        yield from _released(template, node, plan)


def _released(template: NodeTemplate, node: Node, plan: Plan) -> Iterator[Says]:
    """A Node after its boot and its verification: back in production, unless it has a cordon."""
    if plan.removes:
        yield replaced(template, node)
    elif plan.is_nothing:
        yield updated(template, node, NodePhase.PRODUCTION, None)
    else:
        yield updated(template, node, NodePhase.CORDONED, None)
        if is_cordon_new(node.health, plan):
            yield cordoned(template, node)


def _in_production(template: NodeTemplate, node: Node, plan: Plan) -> Iterator[Says]:
    """A Node is cordoned for a cause; for a reboot that was asked for, once nothing blocks it.

    Whatever returned it to production, the end of its last cordon is published.
    """
    if plan.forced:
        yield from _rebooted(template, node, plan)
    elif plan.causes or (plan.reboots and not node.is_blocked):
        removal = RemovalReason.UNHEALTHY if plan.removes else None
        yield updated(template, node, NodePhase.CORDONED, removal)
        yield cordoned(template, node)
    elif node.health.cordoned_for:
        yield uncordoned(template, node)
    elif plan.action is not node.health.action:
        yield updated(template, node, NodePhase.PRODUCTION, None)


def _rebooted(template: NodeTemplate, node: Node, plan: Plan) -> Iterator[Says]:
    yield updated(template, node, NodePhase.REBOOTING, None)
    if is_cordon_new(node.health, plan):
        yield cordoned(template, node)


def _cordoned(template: NodeTemplate, node: Node, plan: Plan) -> Iterator[Says]:
    removal = RemovalReason.UNHEALTHY if plan.removes else None
    is_new = is_cordon_new(node.health, plan)
    is_waiting = plan.reboots and not plan.causes and node.is_blocked
    # A drain goes on only if a removal or an action follows it.
    goes_on = plan.removes or plan.action is not None
    phase = node.phase if goes_on else NodePhase.CORDONED
    if plan.is_nothing or (is_waiting and node.phase is NodePhase.CORDONED):
        yield updated(template, node, NodePhase.PRODUCTION, None)
    elif plan.forced:
        yield from _rebooted(template, node, plan)
    elif is_new or (phase, removal, plan.action) != (node.phase, node.removal, node.health.action):
        yield updated(template, node, phase, removal)
        if is_new:
            yield cordoned(template, node)
    elif node.has_answered:
        yield from _drained(template, node, plan)


def _drained(template: NodeTemplate, node: Node, plan: Plan) -> Iterator[Says]:
    """What follows once the cordon holds, or once nothing runs there any more."""
    is_draining = node.phase is NodePhase.DRAINING
    stays = not plan.removes and not plan.reboots
    if stays and node.health.is_pending and not node.holding:
        wanted = node.health.asked.reserved_desired
        yield updated(template, node, NodePhase.CORDONED, None, reserved=wanted)
    elif stays and plan.action is None:
        return
    elif is_draining and not node.holding:
        if plan.removes:
            yield replaced(template, node)
        else:
            done = plan.action is NodeAction.DRAIN
            phase = NodePhase.CORDONED if done else NodePhase.REBOOTING
            yield updated(template, node, phase, None)
    elif is_draining:
        if node.health.asked.drain == "forced" and not node.forced:
            yield draining(template, node)
    elif node.holding or plan.action is not NodeAction.DRAIN:
        yield draining(template, node)
