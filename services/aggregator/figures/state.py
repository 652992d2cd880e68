"""The figures after each event; what an event changed is seen from the read models around it."""

from dataclasses import dataclass
from typing import NamedTuple, assert_never

from immutables import Map

from aggregator import CordonChanged, Hears, NodeChanged, NodeLeft, RealMachineSeen
from aggregator.figures.failures import failure_at_the_end, outage_cause, problems_of, triage_cause
from aggregator.figures.limits import Limits
from aggregator.figures.nodes import NodeFigures
from aggregator.figures.pools import PoolFigures
from aggregator.figures.usage import UsageFigures, find_use, labels_of
from aggregator.read_model import ReadModel
from aggregator.real_machines import end_of_request
from nodepool.contract import events as on
from nodepool.contract.health import cordon_cause
from nodepool.contract.invariants import IMPOSSIBLE, Broken, Rule
from nodepool.contract.keys import MachineKey, node_key
from nodepool.contract.messages import OfMachine, OfNode, OfPool, OfRealMachine
from nodepool.contract.node_failures import NodeFailure, cordon_label, failure_of
from nodepool.contract.observations import ConditionSeen
from nodepool.placement.machines import TRIAGE
from nodepool.service import Context
from nodepool.state.tallies import Counters, Labels, Levels, Violations
from nodepool.state.values import replace


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures since the log began, for metrics.

    pools, nodes: the figures about NodePools and Nodes.
    limits: the Nodes that grants allow.
    usage: how the time of Nodes was used since the month began.
    triage: the labels that count each machine that is out of service.
    out_of_service: how many machines are out of service, by offering, state and cause: for each
        offering at most 9 states times 16 causes.
    violations: how often the rules that always hold were broken.
    power_requests: how requests to real machines ended, by zone and outcome.
    """

    pools: PoolFigures = PoolFigures()
    nodes: NodeFigures = NodeFigures()
    limits: Limits = Limits()
    usage: UsageFigures = UsageFigures()
    triage: Map[MachineKey, Labels] = Map()
    out_of_service: Levels = Levels()
    violations: Violations = Violations()
    power_requests: Counters = Counters()

    def count_violation(self, rule: Rule, context: Context) -> "Figures":
        """Return the figures with one more violation of a rule."""
        return replace(self, violations=self.violations.add(rule, context.position))

    def with_nodes(self, nodes: NodeFigures) -> "Figures":
        """Return the figures with these figures about Nodes."""
        return self if nodes is self.nodes else replace(self, nodes=nodes)


class Step(NamedTuple):
    """The read model before and after an event, and the rule that the event breaks."""

    before: ReadModel
    after: ReadModel
    rule: Broken


def evolve(figures: Figures, step: Step, message: Hears, context: Context) -> Figures:
    """Return the figures after an event; an event that cannot have happened is only counted."""
    if step.rule:
        figures = figures.count_violation(step.rule, context)
        if step.rule in IMPOSSIBLE:
            return figures
    after = _fold(figures, step, message, context)
    return _use_changed(figures, after, step, message, context)


def _fold(figures: Figures, step: Step, message: Hears, context: Context) -> Figures:
    match message:
        case (
            on.NodeUpdated()
            | on.NodeActivityChanged()
            | on.CWDrainNode()
            | on.NodeSilent()
            | on.NodeReportRequested()
        ):
            return _node_changed(figures, step, message, context)
        case on.NodeConditionChanged() | on.NodeConditionReported():
            return _node_reported(figures, step, message)
        case on.CWNodeAssigned():
            return _node_assigned(figures, step, message, context)
        case on.CWNodeRegistered():
            return _node_joined(figures, step, message, context)
        case on.CWNodeDeleted() | on.CWNodeRegistrationFailed():
            return _node_left(figures, step, message, context)
        case OfRealMachine():
            return _real_machine_seen(figures, step, message)
        case OfMachine():
            return _machine_changed(figures, step, message.machine_key, outage_cause(message))
        case on.CWNodeCordoned() | on.CWNodeUncordoned():
            return _cordon_changed(figures, step, message, context)
        case on.QuotaChecked():
            return _fold_quota_verdict(figures, step, message, context)
        case on.GrantAcknowledged():
            return _fold_acknowledgement(figures, step, message)
        case on.CWNodePoolDeleted():
            return _pool_deleted(figures, step, message)
        case on.CWNodePoolNodesRemoveError():
            return _removal_failed(figures, step, message, context)
        case on.NodeReservationChanged():
            return _reservation_changed(figures, step, message, context)
        case on.NodePreemptionRequested() | on.NodePreempted() | on.PreemptionPending():
            return figures  # The Node may have left since that was decided.
        case OfPool():
            return _pool_changed(figures, step, message, context)
        case on.QuotaSet() | on.QuotaDeleted() | on.CapacityReclaimed() | on.ClusterRegistered():
            return figures
        case _:
            assert_never(message)


def _real_machine_seen(figures: Figures, step: Step, event: RealMachineSeen) -> Figures:
    end = end_of_request(event) if event.machine_key in step.after.real else ""
    if not end:
        return figures
    return replace(figures, power_requests=figures.power_requests.add(event.zone, end))


def _use_changed(
    before: Figures, after: Figures, step: Step, message: Hears, context: Context
) -> Figures:
    """Return the figures after the use of a Node may have changed."""
    if not isinstance(message, OfNode):
        return after
    key = message.node_key
    old, new = step.before.nodes.get(key), step.after.nodes.get(key)
    old_use = find_use(old, before.nodes.unusable.get(key))
    new_use = find_use(new, after.nodes.unusable.get(key))
    if old_use is new_use:
        return after
    usage = after.usage.move(labels_of(old, old_use), labels_of(new, new_use), context.time)
    return replace(after, usage=usage)


def _pool_changed(figures: Figures, step: Step, event: OfPool, context: Context) -> Figures:
    """Return the figures after a NodePool may have changed."""
    before, after = step.before.pools.get(event.key), step.after.pools.get(event.key)
    if after is None or after is before:
        return figures
    pools = figures.pools.update_pool(before, after, context.time)
    limits = figures.limits.update_pool(before, after)
    if pools is figures.pools and limits is figures.limits:
        return figures
    return replace(figures, pools=pools, limits=limits)


def _pool_deleted(figures: Figures, step: Step, event: on.CWNodePoolDeleted) -> Figures:
    """Return the figures without this NodePool, if it is gone."""
    pool = step.before.pools.get(event.key)
    if pool is None or event.key in step.after.pools:
        return figures
    return replace(
        figures, pools=figures.pools.remove_pool(pool.key), limits=figures.limits.remove_pool(pool)
    )


def _fold_quota_verdict(
    figures: Figures, step: Step, event: on.QuotaChecked, context: Context
) -> Figures:
    """Return the figures after a verdict on quota."""
    before = step.before.pools.get(event.key)
    if before is None or before.uid != event.uid:
        return figures
    after = step.after.pools[event.key]
    limits = figures.limits.apply_verdict(before, after, event)
    if figures.limits.is_limit_passed(step.before, event, limits):
        figures = figures.count_violation("LimitPassed", context)
    return replace(
        figures, pools=figures.pools.update_pool(before, after, context.time), limits=limits
    )


def _fold_acknowledgement(figures: Figures, step: Step, event: on.GrantAcknowledged) -> Figures:
    """Return the figures after the allocator gave up the Nodes beyond a smaller grant."""
    pool = step.after.pools.get(event.key)
    if pool is None or pool.uid != event.uid:
        return figures
    return replace(figures, limits=figures.limits.acknowledge(pool, event))


def _removal_failed(
    figures: Figures, step: Step, event: on.CWNodePoolNodesRemoveError, context: Context
) -> Figures:
    """Return the figures after the removal of a Node failed, or its silent machine was given up."""
    node = step.after.nodes.get(node_key(event.org, event.cluster, event.node))
    if node is not None and failure_of(event.message) == NodeFailure.UNANSWERED:
        nodes = figures.nodes.count_failure(node, NodeFailure.UNANSWERED.value)
        figures = figures.with_nodes(nodes)
    return _pool_changed(figures, step, event, context)


def _node_assigned(
    figures: Figures, step: Step, event: on.CWNodeAssigned, context: Context
) -> Figures:
    """Return the figures with a new Node; its machine is no longer out of service."""
    figures = _machine_changed(figures, step, event.machine_key)
    pool = step.before.pools.get(event.key)
    if not step.rule and pool is not None and figures.limits.is_grant_passed(pool):
        figures = figures.count_violation("GrantPassed", context)
    return _pool_changed(figures, step, event, context)


def _node_joined(
    figures: Figures, step: Step, event: on.CWNodeRegistered, context: Context
) -> Figures:
    """Return the figures after a Node joined its cluster."""
    key, now = event.node_key, context.time
    before, after = step.before.nodes[key], step.after.nodes[key]
    nodes = figures.nodes.count_join(after, now)
    nodes = nodes.with_activity(before, after).with_usability(key, after, now)
    return _pool_changed(figures.with_nodes(nodes), step, event, context)


def _node_changed(figures: Figures, step: Step, event: NodeChanged, context: Context) -> Figures:
    """Return the figures after a Node changed."""
    key = event.node_key
    before, after = step.before.nodes[key], step.after.nodes[key]
    nodes = figures.nodes.with_activity(before, after)
    if after.phase is not before.phase or after.removal is not before.removal:
        nodes = nodes.with_usability(key, after, context.time)
    return figures.with_nodes(nodes)


def _node_reported(figures: Figures, step: Step, event: ConditionSeen) -> Figures:
    """Return the figures after a condition of a Node was reported; a new problem is a failure."""
    key = step.before.reported_node(event)
    if key is None:
        return figures
    before, after = step.before.nodes[key], step.after.nodes[key]
    if not problems_of(after) - problems_of(before):
        return figures
    return figures.with_nodes(figures.nodes.count_failure(before, cordon_cause(event.type)))


def _cordon_changed(
    figures: Figures, step: Step, event: CordonChanged, context: Context
) -> Figures:
    """Return the figures after the cordon of a Node, other than for its removal, began or ended."""
    key = event.node_key
    cordon = cordon_label(event.cause) if isinstance(event, on.CWNodeCordoned) else ""
    node = step.after.nodes[key]
    return figures.with_nodes(figures.nodes.with_usability(key, node, context.time, cordon))


def _reservation_changed(
    figures: Figures, step: Step, event: on.NodeReservationChanged, context: Context
) -> Figures:
    """Return the figures after a Node was reserved for the control plane, or given back."""
    before, after = step.before.nodes[event.node_key], step.after.nodes[event.node_key]
    figures = figures.with_nodes(figures.nodes.with_activity(before, after))
    return _pool_changed(figures, step, event, context)


def _node_left(figures: Figures, step: Step, event: NodeLeft, context: Context) -> Figures:
    """Return the figures without a Node; its machine may be out of service."""
    key = event.node_key
    node = step.before.nodes[key]
    cause = triage_cause(event, node)
    nodes = figures.nodes.remove_node(key, node, context.time)
    failure = failure_at_the_end(event, cause)
    if failure:
        nodes = nodes.count_failure(node, failure)
    if isinstance(event, on.CWNodeDeleted):
        nodes = nodes.count_removal(node, event.removal.value, context.time)
    figures = _machine_changed(figures.with_nodes(nodes), step, event.machine_key, cause)
    return _pool_changed(figures, step, event, context)


def _machine_changed(figures: Figures, step: Step, key: MachineKey, cause: str = "") -> Figures:
    """Return the figures after a machine changed.

    cause: why the machine goes to triage, in one word; empty if it does not go there now.
    """
    machine, status = step.after.machine(key), step.after.machines.get(key)
    before, after = figures.triage.get(key), None
    if machine is not None and status is not None and machine.holder == TRIAGE:
        known = before[-1] if before is not None else ""
        after = (machine.zone, machine.instance_type, status.state.value, cause or known)
    if after == before:
        return figures
    return replace(
        figures,
        triage=figures.triage.delete(key) if after is None else figures.triage.set(key, after),
        out_of_service=figures.out_of_service.move(before, after),
    )
