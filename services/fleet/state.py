"""The state of the fleet service: the simulated machines, and the Pods of each NodePool."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import assert_never

from immutables import Map

from fleet import Hears, Says, silence, waiting
from fleet.boot import break_machine, end_boot, powered_on
from fleet.machine import Machine
from fleet.nodes import (
    build_machine,
    condition_changed,
    handed_over,
    instruct_machine,
    join_cluster,
)
from fleet.pods import drain_machine, ending, with_pod, with_pods, without_pod
from fleet.triage import end_stay, move_machine, repair_machine
from fleet.waiting import Pool, PoolPod, concerns_pods, specify_pool
from fleet.wipes import end_wipe
from nodepool.contract import events as on
from nodepool.contract.commands import (
    AddMachines,
    BreakMachine,
    CreatePod,
    DeletePod,
    RepairMachine,
    RunPod,
    StopPod,
)
from nodepool.contract.keys import (
    ClusterKey,
    MachineKey,
    PoolKey,
    cluster_key,
    cluster_of,
    machine_key,
)
from nodepool.contract.messages import OfNode
from nodepool.contract.model import GPU_TAINT, Taint
from nodepool.contract.pods import reserved_taint
from nodepool.service import Context
from nodepool.state.values import replace
from nodepool.state.work import WithWork


@dataclass(frozen=True, slots=True)
class State(WithWork[MachineKey | PoolKey]):
    """The machines and the NodePools.

    agents: the clusters that an agent connects to Kubernetes.
    machines: all machines; the work queue holds each machine when it has something to report.
    pools: the NodePools; the work queue holds each NodePool in which a Pod may be placed, or ends.
    """

    agents: Map[ClusterKey, bool] = Map()
    machines: Map[MachineKey, Machine] = Map()
    pools: Map[PoolKey, Pool] = Map()

    def pool_of(self, machine: Machine) -> Pool | None:
        """Return the NodePool that a machine is in, if any."""
        return None if machine.pool is None else self.pools.get(machine.pool)

    def node_of(self, pod: PoolPod) -> Machine | None:
        """Return the machine of a Pod; None if the Pod waits, or the machine left the NodePool."""
        machine = None if pod.machine is None else self.machines.get(pod.machine)
        is_there = machine is not None and machine.joined and machine.assignment == pod.assignment
        return machine if is_there else None

    def machine_of(self, node: OfNode) -> Machine | None:
        """Return the machine of a Node if it is still in the stay that the message is about."""
        machine = self.machines.get(node.machine_key)
        if machine is None or machine.pool is None:
            return None
        return machine if machine.assignment == node.assignment else None


def evolve(state: State, message: Hears | Says, context: Context) -> State:
    """Return the state after a message."""
    match message:
        case on.MachineAdded(machine_key=key):
            return _store_machine(state, key, build_machine(message))
        case on.MachineBroken(machine_key=key):
            return _store_machine(state, key, break_machine(state.machines[key], message))
        case on.CWNodeAssigned(machine_key=key, assignment=assignment):
            machine = state.machines.get(key)
            if machine is None or assignment <= machine.assignment:
                return state
            booting = powered_on(machine, assignment, context.time)
            has_agent = cluster_of(message.key) in state.agents
            return _store_machine(
                state, key, replace(booting, pool=message.key, has_agent=has_agent)
            )
        case on.ClusterRegistered():
            return _fold_registration(state, message)
        case on.CWNodeRegistered() | on.NodeUpdated():
            return _fold_update(state, message, context.time)
        case on.NodePoolValidated() | on.CWNodePoolDeleted() | on.NodeTemplateChanged():
            return _pool_changed(state, message)
        case on.PodChanged():
            return _pod_changed(state, message, context)
        case on.CWDrainNode(force=force):
            return _in_stay(
                state, message, lambda machine: drain_machine(machine, context.time, force=force)
            )
        case on.CWNodeDeleted() | on.CWNodeRegistrationFailed():
            return _in_stay(state, message, partial(end_stay, event=message, now=context.time))
        case on.MachineStateChanged(machine_key=key, state=new):
            return _store_machine(state, key, move_machine(state.machines[key], new, context.time))
        case on.MachineRepaired(machine_key=key):
            return _store_machine(state, key, repair_machine(state.machines[key], context.time))
        case on.MachineWiped(machine_key=key):
            return _store_machine(state, key, end_wipe(state.machines[key]))
        case on.MachineBooted(machine_key=key) | on.MachineFailed(machine_key=key):
            return _store_machine(state, key, end_boot(key, state.machines[key], context.time))
        case on.NodeVerified(machine_key=key):
            return _store_machine(state, key, replace(state.machines[key], verified_at=None))
        case on.HeartbeatsStopped(machine_key=key):
            machine = silence.stop_heartbeats(state.machines[key], message, context.time)
            return _store_machine(state, key, machine)
        case on.NodeReportRequested():
            return _in_stay(state, message, partial(silence.request_report, event=message))
        case on.NodeConditionChanged(machine_key=key):
            return _store_machine(state, key, condition_changed(state.machines[key], message))
        case on.NodeObserved():
            return _fold_observation(state, message)
        case on.MachineUpdateFailed(machine_key=key):
            return replace(state, work=state.work.retry_later(key, context.time))
        case on.PodUpdateFailed(key=key):
            return replace(state, work=state.work.retry_later(key, context.time))
        case AddMachines() | BreakMachine() | RepairMachine():
            return state
        case RunPod() | StopPod() | CreatePod() | DeletePod():
            return state
        case _:
            assert_never(message)


def _fold_registration(state: State, event: on.ClusterRegistered) -> State:
    """Return the state after a cluster got an agent: its machines run no simulated Pod any more."""
    cluster = cluster_key(event.org, event.cluster)
    if not event.kubernetes or cluster in state.agents:
        return state
    state = replace(state, agents=state.agents.set(cluster, True))
    for key, machine in state.machines.items():
        if machine.pool is not None and cluster_of(machine.pool) == cluster:
            state = _store_machine(state, key, handed_over(machine))
    for pool_key, pool in state.pools.items():
        if cluster_of(pool_key) == cluster:
            state = _with_pool(state, pool_key, replace(pool, has_agent=True))
    return state


def _fold_update(
    state: State, message: on.CWNodeRegistered | on.NodeUpdated, now: datetime
) -> State:
    """Return the state with a Node as the message says that it should be."""
    known = state.machine_of(message)
    if known is None:
        return state
    state, taints = _share_taints(state, message)
    machine = replace(known, taints=taints)
    match message:
        case on.CWNodeRegistered():
            machine = join_cluster(machine, message, now)
        case on.NodeUpdated():
            machine = instruct_machine(machine, message, now)
        case _:
            assert_never(message)
    return _store_machine(state, message.machine_key, machine)


def _in_stay(state: State, message: OfNode, change: Callable[[Machine], Machine]) -> State:
    """Return the state with a Node's machine changed; ignore a message about an earlier stay."""
    machine = state.machine_of(message)
    return state if machine is None else _store_machine(state, message.machine_key, change(machine))


def _store_machine(
    state: State, key: MachineKey, machine: Machine, *, is_placement: bool = False
) -> State:
    """Return the state with this machine, and with its deadline and its NodePool up to date.

    is_placement: whether no other Pod can be placed, or ends, because of the change.
    """
    before, due = state.machines.get(key), machine.due
    work = state.work.drop(key) if due is None else state.work.clear_failures(key).put_at(key, due)
    state = replace(state, machines=state.machines.set(key, machine), work=work)
    of = machine.pool or (before.pool if before is not None else None)
    pool = state.pools.get(of) if of is not None else None
    if of is None or pool is None:
        return state
    after = waiting.with_node(pool, key, before, machine)
    if after is not pool:
        state = replace(state, pools=state.pools.set(of, after))
    if after.pods and not is_placement and concerns_pods(before, machine):
        state = replace(state, work=state.work.put(of))
    return state


def _fold_observation(state: State, report: on.NodeObserved) -> State:
    """Return the state after a Node was observed with its marks and its Pods."""
    key = report.machine_key
    machine = replace(
        state.machines[key],
        reported=report.unschedulable,
        reported_lock=report.lock,
        evicting=False,
    )
    pool = state.pool_of(machine)
    after = None if pool is None else waiting.note_observation(pool, key)
    if machine.pool is not None and after is not None and after is not pool:
        state = replace(state, pools=state.pools.set(machine.pool, after))
    return _store_machine(state, key, with_pods(machine, report.pods))


def _share_taints(
    state: State, event: on.CWNodeRegistered | on.NodeUpdated
) -> tuple[State, tuple[Taint, ...]]:
    """Return the state, and the taints of a Node that keep Pods of its organisation away.

    Most Nodes of a NodePool have the same taints; such taints are kept once.
    """
    pool = state.pools.get(event.key)
    reserved = reserved_taint(event.org)
    own = tuple(
        taint for taint in event.taints if taint.effect != GPU_TAINT.effect and taint != reserved
    )
    if pool is None:
        return state, own
    own = (*own, *pool.taints) if event.template else own
    if own == pool.last_taints:
        return state, pool.last_taints
    pool = replace(pool, last_taints=own)
    return replace(state, pools=state.pools.set(event.key, pool)), own


def _pool_changed(
    state: State, event: on.NodePoolValidated | on.CWNodePoolDeleted | on.NodeTemplateChanged
) -> State:
    key, pool = event.key, state.pools.get(event.key)
    match event:
        case on.NodePoolValidated():
            after = specify_pool(pool, event, has_agent=cluster_of(key) in state.agents)
        case _ if pool is None:
            return state
        case on.CWNodePoolDeleted(uid=uid):
            after = replace(pool, exists=pool.exists and uid != pool.uid)
        case on.NodeTemplateChanged(taints=taints):
            after = replace(pool, taints=taints)
        case _:
            assert_never(event)
    return _with_pool(state, key, after)


def _with_pool(state: State, key: PoolKey, pool: Pool) -> State:
    """Return the state with this NodePool and its Pods queued; drop a NodePool that is over."""
    if pool.is_over:
        pools = state.pools.delete(key) if key in state.pools else state.pools
        return replace(state, pools=pools, work=state.work.drop(key))
    work = state.work.put(key) if pool.pods else state.work
    return replace(state, pools=state.pools.set(key, pool), work=work)


def _pod_changed(state: State, event: on.PodChanged, context: Context) -> State:
    """Return the state with a Pod in its phase, in its NodePool and on its Node."""
    pool = state.pools[event.key]
    state = replace(state, work=state.work.clear_failures(event.key))
    if event.phase == "Pending":
        return _with_pool(state, event.key, waiting.with_pod(pool, event))
    pod = pool.pods[event.name].pod
    after = waiting.with_pod(pool, event)
    state = replace(state, pools=state.pools.set(event.key, after))
    key = machine_key(event.zone, event.node)
    machine = state.machines.get(key)
    if machine is not None and machine.joined and machine.assignment == event.assignment:
        match event.phase:
            case "Running":
                return _store_machine(state, key, with_pod(machine, pod), is_placement=True)
            case "Terminating":
                due = context.time + timedelta(seconds=event.grace_s)
                ending_ = ending(machine, event.name, due)
                return _store_machine(state, key, ending_, is_placement=True)
            case "Gone":
                state = _store_machine(state, key, without_pod(machine, event.name))
    return _with_pool(state, event.key, state.pools[event.key]) if after.is_over else state
