"""Leads each Node along its way: booted, registered, in production, cordoned, drained, deleted."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from immutables import Map
from nodepool.state.persistent import Deadlines, Queue

from lifecycle.node import Wish, labels, taints
from nodepool.contract.events import (
    CWDrainNode,
    CWNodeAssigned,
    CWNodeDeleted,
    CWNodeDeletionRequestSuccess,
    CWNodePoolDeleted,
    CWNodePoolMetadata,
    CWNodePoolNodesRemoveError,
    CWNodeRegistered,
    CWNodeRegistrationFailed,
    MachineBooted,
    MachineFailed,
    NodeActivityChanged,
    NodeKept,
    NodeObserved,
    NodePoolValidated,
    NodeRemovalCancelled,
    NodeUpdated,
    PreemptionInProgress,
    PreemptionOverdue,
    PreemptionPending,
    Wake,
)
from nodepool.contract.messages import Message, PoolFields, pool_fields
from nodepool.contract.model import NodePhase, RemovalReason
from nodepool.service import IMMEDIATELY, Context, Failure, Service

Hears = (
    NodePoolValidated
    | CWNodePoolDeleted
    | CWNodeAssigned
    | CWNodeDeletionRequestSuccess
    | NodeRemovalCancelled
    | MachineBooted
    | MachineFailed
    | NodeObserved
    | PreemptionPending
    | PreemptionInProgress
    | PreemptionOverdue
    | Wake
)
Says = (
    NodeUpdated
    | NodeActivityChanged
    | NodeKept
    | CWNodeRegistered
    | CWNodeRegistrationFailed
    | CWDrainNode
    | CWNodeDeleted
    | CWNodePoolMetadata
    | CWNodePoolNodesRemoveError
)

BOOT_MAX = timedelta(minutes=30)
"""How long a machine may take to boot and join; the documented delivery takes 20 to 30 minutes."""
UPDATES_MAX = 400
"""How many Nodes one decision updates; a `Wake` goes on with the rest."""
NAMED_MAX = 5
"""How many workloads a message names."""


@dataclass(frozen=True, slots=True)
class Node:
    """A Node on its way; `work` names what makes it active, as its machine reported last.

    `cordon` counts its cordons, `request` the requests to delete it.
    """

    name: str
    pool: str
    assignment: int
    topology: Mapping[str, str]
    phase: NodePhase = NodePhase.BOOTING
    active: bool = False
    work: tuple[str, ...] = ()
    removal: RemovalReason | None = None
    idle_only: bool = False
    request: int = 0
    cordon: int = 0
    evicted_at: int = 0

    @property
    def cordoned(self) -> bool:
        """Whether nothing new may be scheduled on it."""
        return self.phase in (NodePhase.CORDONED, NodePhase.DRAINING)


@dataclass(frozen=True, slots=True)
class State:
    """Wishes by NodePool, Nodes by `zone/machine`, which Nodes a NodePool has, when boots are due.

    `stale` holds the Nodes that a changed wish has not reached yet.
    """

    wishes: Map[str, Wish] = Map()
    nodes: Map[str, Node] = Map()
    pools: Map[str, Map[str, bool]] = Map()
    boots: Deadlines = Deadlines()
    stale: Queue = Queue()
    told: Map[str, bool] = Map()


def wakes(state: State) -> datetime | None:
    """The earliest boot that is overdue; at once while Nodes are to be updated."""
    return IMMEDIATELY if len(state.stale) else state.boots.next()


def evolve(state: State, message: Message, now: Context) -> State:
    """Folds wishes and what became of each Node."""
    match message:
        case NodePoolValidated():
            return _wished(state, message)
        case CWNodePoolDeleted(key=key):
            wish = state.wishes.get(key)
            gone = wish is not None and wish.uid == message.uid
            return replace(state, wishes=state.wishes.delete(key)) if gone else state
        case CWNodeAssigned():
            return _assigned(state, message, now)
        case CWNodePoolMetadata(key=key):
            return replace(state, told=state.told.delete(key)) if key in state.told else state
        case NodeObserved(machine_key=key):
            work = tuple(sorted(pod.name for pod in message.pods if pod.counts_as_work))
            return _changed(state, key, message.assignment, work=work)
        case CWNodeRegistered():
            key = f"{message.zone}/{message.node}"
            state = _changed(state, key, message.assignment, phase=NodePhase.PRODUCTION)
            return replace(state, boots=state.boots.drop(key))
        case CWNodeDeletionRequestSuccess():
            return _asked(state, message)
        case PreemptionPending():
            key, preempted = f"{message.zone}/{message.node}", RemovalReason.PREEMPTED
            return _changed(state, key, message.assignment, removal=preempted, idle_only=False)
        case PreemptionInProgress(evicted_at=moment):
            key, second = f"{message.zone}/{message.node}", int(moment.timestamp())
            return _changed(state, key, message.assignment, evicted_at=second)
        case NodeUpdated():
            return _updated(state, message)
        case CWDrainNode():
            key = f"{message.zone}/{message.node}"
            return _changed(state, key, message.assignment, phase=NodePhase.DRAINING)
        case NodeActivityChanged():
            key = f"{message.zone}/{message.node}"
            return _changed(state, key, message.assignment, active=message.active)
        case CWNodeDeleted() | CWNodeRegistrationFailed():
            return _gone(state, message)
    return state


def _wished(state: State, said: NodePoolValidated) -> State:
    key, spec = said.key, said.spec
    wish = Wish(
        of=said.path,
        uid=said.uid,
        zone=said.zone,
        instance_type=spec.instance_type,
        compute_class=spec.compute_class,
        node_labels=spec.node_labels,
        node_annotations=spec.node_annotations,
        node_taints=spec.node_taints,
        labels=said.labels,
        annotations=said.annotations,
    )
    before = state.wishes.get(key)
    state = replace(state, wishes=state.wishes.set(key, wish))
    if before is None or before.uid != wish.uid or before == wish:
        return state
    stale = state.stale
    if (before.node_labels, before.node_annotations, before.node_taints) != (
        wish.node_labels,
        wish.node_annotations,
        wish.node_taints,
    ):
        for node in sorted(state.pools.get(key, Map())):
            if state.nodes[node].phase is not NodePhase.BOOTING:
                stale = stale.put(node)
    return replace(state, stale=stale, told=state.told.set(key, True))


def _assigned(state: State, said: CWNodeAssigned, now: Context) -> State:
    key = f"{said.zone}/{said.node}"
    node = Node(said.node, said.key, said.assignment, said.labels)
    members = state.pools.get(said.key, Map()).set(key, True)
    return replace(
        state,
        nodes=state.nodes.set(key, node),
        pools=state.pools.set(said.key, members),
        boots=state.boots.put(key, now.time + BOOT_MAX),
    )


def _node(state: State, key: str, assignment: int) -> Node | None:
    """The Node of this very stay; what is said of an earlier one concerns nobody."""
    node = state.nodes.get(key)
    return node if node is not None and node.assignment == assignment else None


def _changed(state: State, key: str, assignment: int, **changes: object) -> State:
    node = _node(state, key, assignment)
    if node is None:
        return state
    return replace(state, nodes=state.nodes.set(key, replace(node, **changes)))  # type: ignore[arg-type]


def _asked(state: State, said: CWNodeDeletionRequestSuccess) -> State:
    key = f"{said.zone}/{said.node}"
    node = _node(state, key, said.assignment)
    # A preemption has its own timetable, which neither a scale-down nor a deletion shortens.
    if node is None or node.removal is RemovalReason.PREEMPTED:
        return state
    changed = replace(node, removal=said.removal, idle_only=said.idle_only, request=said.request)
    return replace(state, nodes=state.nodes.set(key, changed))


def _updated(state: State, said: NodeUpdated) -> State:
    key = f"{said.zone}/{said.node}"
    state = replace(state, stale=state.stale.drop(key))
    return _changed(
        state,
        key,
        said.assignment,
        phase=said.phase,
        removal=said.removal,
        cordon=said.cordon,
    )


def _gone(state: State, said: CWNodeDeleted | CWNodeRegistrationFailed) -> State:
    key = f"{said.zone}/{said.node}"
    node = _node(state, key, said.assignment)
    if node is None:
        return state
    members = state.pools[node.pool].delete(key)
    pools = state.pools.set(node.pool, members) if members else state.pools.delete(node.pool)
    return replace(
        state,
        nodes=state.nodes.delete(key),
        pools=pools,
        boots=state.boots.drop(key),
        stale=state.stale.drop(key),
    )


def decide(state: State, message: Message, now: Context) -> Iterator[Says]:
    """The next step of the Nodes concerned."""
    match message:
        case NodePoolValidated(key=key):
            yield from _refresh(state)
            if key in state.told:
                told = f"metadata of NodePool {message.pool} is updated"
                yield CWNodePoolMetadata(**_of(state.wishes[key]), message=told)
        case Wake():
            yield from _refresh(state)
            for key in state.boots.due(now.time, UPDATES_MAX):
                minutes = int(BOOT_MAX.total_seconds() // 60)
                told = f"it did not join its cluster within {minutes} minutes"
                yield _failed(state, key, told)
        case MachineBooted(machine_key=key, assignment=assignment):
            node = _node(state, key, assignment)
            if node is not None and node.phase is NodePhase.BOOTING:
                yield _registered(state, node)
        case MachineFailed(machine_key=key, assignment=assignment, cause=cause):
            node = _node(state, key, assignment)
            if node is not None and node.phase is NodePhase.BOOTING:
                yield _failed(state, key, cause)
        case CWNodeDeletionRequestSuccess():
            key = f"{message.zone}/{message.node}"
            node = _node(state, key, message.assignment)
            if node is not None:
                yield from _remove(state, node)
        case NodeRemovalCancelled():
            node = _node(state, f"{message.zone}/{message.node}", message.assignment)
            if node is not None and node.cordoned and node.removal is RemovalReason.SCALE_DOWN:
                yield from _keep(state, node, "its NodePool wants it again")
        case PreemptionPending() | PreemptionInProgress() | PreemptionOverdue():
            node = _node(state, f"{message.zone}/{message.node}", message.assignment)
            if node is not None:
                yield from _preempt(state, node, message)
        case NodeObserved(machine_key=key):
            node = _node(state, key, message.assignment)
            if node is not None:
                cordoned = message.unschedulable and message.cordon == node.cordon
                yield from _observed(state, node, cordoned=cordoned)


def _refresh(state: State) -> Iterator[Says]:
    for count, key in enumerate(state.stale):
        if count == UPDATES_MAX:
            return
        node = state.nodes[key]
        yield _update(state, node, node.phase, node.removal)


def _registered(state: State, node: Node) -> CWNodeRegistered:
    wish = state.wishes[node.pool]
    return CWNodeRegistered(
        **_of(wish),
        node=node.name,
        zone=wish.zone,
        assignment=node.assignment,
        labels=labels(wish, node.name, node.topology),
        annotations=wish.node_annotations,
        taints=taints(wish, cordoned=False),
        message=f"Node {node.name} is registered",
    )


def _failed(state: State, key: str, cause: str) -> CWNodeRegistrationFailed:
    node = state.nodes[key]
    wish = state.wishes[node.pool]
    return CWNodeRegistrationFailed(
        **_of(wish),
        node=node.name,
        zone=wish.zone,
        uid=wish.uid,
        assignment=node.assignment,
        message=f"registration of Node {node.name} failed: {cause}",
    )


def _remove(state: State, node: Node) -> Iterator[Says]:
    """A Node that never joined goes at once; one in production is cordoned and looked at first."""
    match node.phase:
        case NodePhase.BOOTING:
            yield _deleted(state, node)
        case NodePhase.PRODUCTION:
            yield _update(state, node, NodePhase.CORDONED, node.removal)
        case NodePhase.DRAINING if node.removal is RemovalReason.POOL_DELETED:
            yield _drain(state, node)


def _preempt(
    state: State,
    node: Node,
    message: PreemptionPending | PreemptionInProgress | PreemptionOverdue,
) -> Iterator[Says]:
    match message:
        case PreemptionPending():
            draining = node.phase is NodePhase.DRAINING
            phase = NodePhase.DRAINING if draining else NodePhase.CORDONED
            yield _update(state, node, phase, RemovalReason.PREEMPTED)
        case PreemptionInProgress():
            yield _update(state, node, NodePhase.DRAINING, RemovalReason.PREEMPTED)
            yield _drain(state, node)
        case PreemptionOverdue():
            yield _deleted(state, node)


def _observed(state: State, node: Node, *, cordoned: bool) -> Iterator[Says]:
    active = bool(node.work)
    if active is not node.active and node.phase is not NodePhase.BOOTING:
        yield _activity(state, node, active=active)
    # What ran before the cordon took hold is known only now, so only now may it be judged.
    if not cordoned:
        return
    if node.phase is NodePhase.CORDONED and node.removal is not RemovalReason.PREEMPTED:
        if active and node.idle_only:
            yield from _keep(state, node, f"it became active: {_named(node.work)}")
        else:
            yield _drain(state, node)
            if not active:
                yield _deleted(state, node)
    elif node.phase is NodePhase.DRAINING and not active:
        yield _deleted(state, node)


def _activity(state: State, node: Node, *, active: bool) -> NodeActivityChanged:
    wish = state.wishes[node.pool]
    return NodeActivityChanged(
        **_of(wish),
        zone=wish.zone,
        node=node.name,
        assignment=node.assignment,
        active=active,
        message=f"running: {_named(node.work)}" if active else "nothing runs here",
    )


def _named(work: tuple[str, ...]) -> str:
    more = len(work) - NAMED_MAX
    return ", ".join(work[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


def _keep(state: State, node: Node, why: str) -> Iterator[Says]:
    wish = state.wishes[node.pool]
    yield _update(state, node, NodePhase.PRODUCTION, None)
    yield NodeKept(
        **_of(wish),
        zone=wish.zone,
        node=node.name,
        assignment=node.assignment,
        request=node.request,
        message=f"Node {node.name} stays: {why}",
    )


def _update(
    state: State, node: Node, phase: NodePhase, removal: RemovalReason | None
) -> NodeUpdated:
    wish = state.wishes[node.pool]
    cordoned = phase in (NodePhase.CORDONED, NodePhase.DRAINING)
    marks = {}
    if removal is RemovalReason.PREEMPTED:
        marks["qos.coreweave.cloud/pending-preemption"] = "true"
    if node.evicted_at:
        marks["qos.coreweave.cloud/evicted-at"] = str(node.evicted_at)
    return NodeUpdated(
        **_of(wish),
        zone=wish.zone,
        node=node.name,
        assignment=node.assignment,
        phase=phase,
        unschedulable=cordoned,
        cordon=node.cordon + (cordoned and not node.cordoned),
        labels={**labels(wish, node.name, node.topology), **marks},
        annotations=wish.node_annotations,
        taints=taints(wish, cordoned=cordoned),
        removal=removal,
    )


def _drain(state: State, node: Node) -> CWDrainNode:
    wish = state.wishes[node.pool]
    return CWDrainNode(
        **_of(wish),
        node=node.name,
        zone=wish.zone,
        assignment=node.assignment,
        force=node.removal in (RemovalReason.POOL_DELETED, RemovalReason.PREEMPTED),
        message=f"draining Node {node.name}",
    )


def _deleted(state: State, node: Node) -> CWNodeDeleted:
    wish = state.wishes[node.pool]
    return CWNodeDeleted(
        **_of(wish),
        node=node.name,
        zone=wish.zone,
        uid=wish.uid,
        assignment=node.assignment,
        registered=node.phase is not NodePhase.BOOTING,
        message=f"Node {node.name} is deleted",
    )


def _of(wish: Wish) -> PoolFields:
    return pool_fields(wish.of)


def on_failure(failure: Failure) -> Iterable[Says]:
    """A removal that cannot be carried out is said; what else fails ends by its own deadline."""
    if failure.input == CWNodeDeletionRequestSuccess.__name__:
        org, cluster, pool = failure.address.path
        told = f"internal error while removing a Node: {failure.cause}"
        yield CWNodePoolNodesRemoveError(org=org, cluster=cluster, pool=pool, message=told)


SERVICE = Service(
    name="lifecycle",
    hears=Hears,
    says=Says,
    initial=State(),
    evolve=evolve,
    decide=decide,
    wakes=wakes,
    on_failure=on_failure,
)
