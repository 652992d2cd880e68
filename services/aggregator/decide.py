"""Folds what everybody says into the status of NodePools and Nodes: the read model."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from immutables import Map

from aggregator.objects import (
    TARGET_MESSAGES,
    CapacityObject,
    Document,
    NodeObject,
    NodePoolObject,
    QuotaObject,
    Row,
    document,
)
from nodepool import service
from nodepool.contract.conditions import (
    HEALTHY,
    AtTarget,
    Capacity,
    NodesRemoved,
    Quota,
    Reason,
    changed,
)
from nodepool.contract.events import (
    AllocationFailed,
    CapacityChecked,
    CapacityCheckFailed,
    CWDrainNode,
    CWNodeAssigned,
    CWNodeDeleted,
    CWNodePoolDeleted,
    CWNodePoolNodesRemoved,
    CWNodePoolNodesRemoveError,
    CWNodePoolQuotaCheckFailed,
    CWNodeRegistered,
    CWNodeRegistrationFailed,
    MachineAdded,
    MachineRepaired,
    NodeActivityChanged,
    NodePoolDeleting,
    NodePoolValidated,
    NodeUpdated,
    QuotaChecked,
    QuotaReleased,
    QuotaSet,
)
from nodepool.contract.messages import Message, OfPool
from nodepool.contract.model import NodePhase, RemovalReason
from nodepool.service import Context, Rows, Service
from nodepool.state.inventory import TRIAGE, Inventory

NodeGone = CWNodeDeleted | CWNodeRegistrationFailed
NodeChanged = CWNodeRegistered | NodeUpdated | NodeActivityChanged | CWDrainNode
OfNode = CWNodeAssigned | NodeChanged | NodeGone
QuotaTold = QuotaChecked | QuotaReleased | QuotaSet
Hears = (
    NodePoolValidated
    | NodePoolDeleting
    | CWNodePoolDeleted
    | QuotaSet
    | QuotaChecked
    | QuotaReleased
    | CWNodePoolQuotaCheckFailed
    | CapacityChecked
    | CapacityCheckFailed
    | AllocationFailed
    | CWNodeAssigned
    | CWNodeRegistered
    | CWNodeRegistrationFailed
    | NodeUpdated
    | NodeActivityChanged
    | CWDrainNode
    | CWNodeDeleted
    | CWNodePoolNodesRemoved
    | CWNodePoolNodesRemoveError
    | MachineAdded
    | MachineRepaired
)

POOLS, NODES, QUOTAS, CAPACITY = "nodepools", "nodes", "quotas", "capacity"


@dataclass(frozen=True, slots=True)
class State:
    """The rows by key: NodePools `org/cluster/pool`, Nodes `org/cluster/node`, quotas
    `org/zone/type`, capacity `zone/type`; and the machines that capacity counts."""

    pools: Map[str, NodePoolObject] = Map()
    nodes: Map[str, NodeObject] = Map()
    quotas: Map[str, QuotaObject] = Map()
    capacity: Map[str, CapacityObject] = Map()
    inventory: Inventory = Inventory()


def evolve(state: State, message: Message, now: Context) -> State:
    """Folds one event into the rows it concerns."""
    match message:
        case NodePoolValidated():
            return _wished(state, message, now)
        case QuotaSet() | QuotaChecked() | QuotaReleased():
            state = _quota(state, message, now)
        case MachineAdded() | MachineRepaired():
            return _machine(state, message, now)
        case _ if isinstance(message, CWNodeAssigned | NodeChanged):
            state = _node(state, message, now)
        case CWNodeDeleted() | CWNodeRegistrationFailed():
            state = _gone(state, message, now)
    pool = state.pools.get(message.key) if isinstance(message, OfPool) else None
    if pool is None or not isinstance(message, OfPool):
        return state
    if isinstance(message, CWNodePoolDeleted):
        gone = message.uid == pool.uid
        return replace(state, pools=state.pools.delete(message.key)) if gone else state
    after = _pool(pool, message, now)
    if after is pool:
        return state
    if after.version != now.position:
        after = replace(after, version=now.position)
    return replace(state, pools=state.pools.set(message.key, after))


def _wished(state: State, said: NodePoolValidated, now: Context) -> State:
    before = state.pools.get(said.key)
    if before is None or before.uid != said.uid:
        before = NodePoolObject(
            of=said.path,
            uid=said.uid,
            zone=said.zone,
            created=said.created,
            generation=said.generation,
            labels=said.labels,
            annotations=said.annotations,
            spec=said.spec,
            version=now.position,
        )
    row = replace(
        before,
        generation=said.generation,
        labels=said.labels,
        annotations=said.annotations,
        spec=said.spec,
        fault=said.fault,
        version=now.position,
    )
    row = _judged(row, said.reason, said.message, now)
    return replace(state, pools=state.pools.set(said.key, _counted(row, now)))


def _pool(row: NodePoolObject, message: Message, now: Context) -> NodePoolObject:
    """The NodePool after an event about it."""
    match message:
        case NodePoolDeleting(since=since):
            return _counted(replace(row, deleting=since), now)
        case QuotaChecked(uid=row.uid, generation=row.generation):
            return _judged(row, message.reason, message.message, now)
        case CWNodePoolQuotaCheckFailed(message=told):
            return _judged(row, Quota.INTERNAL_ERROR, told, now)
        case CapacityChecked(uid=row.uid, generation=row.generation):
            return _judged(row, message.reason, message.message, now)
        case CapacityCheckFailed(message=told):
            return _judged(row, Capacity.INTERNAL_ERROR, told, now)
        case AllocationFailed(message=told):
            return _judged(row, AtTarget.INTERNAL_ERROR, told, now)
        case CWNodePoolNodesRemoveError(message=told) if row.deleting is not None:
            return _judged(row, NodesRemoved.INTERNAL_ERROR, told, now)
        case CWNodePoolNodesRemoved(removal=RemovalReason.POOL_DELETED):
            return _judged(row, NodesRemoved.COMPLETE, "All Nodes are removed.", now)
        case CWNodeAssigned(uid=row.uid):
            return _counted(replace(row, in_progress=row.in_progress + 1), now)
        case CWNodeRegistered():
            joined = replace(row, in_progress=row.in_progress - 1, current=row.current + 1)
            return _counted(joined, now)
        case CWNodeRegistrationFailed(uid=row.uid):
            return _counted(replace(row, in_progress=row.in_progress - 1), now)
        case CWNodeDeleted(uid=row.uid, registered=True):
            return _counted(replace(row, current=row.current - 1), now)
        case CWNodeDeleted(uid=row.uid):
            return _counted(replace(row, in_progress=row.in_progress - 1), now)
    return row


def _judged(row: NodePoolObject, reason: Reason, told: str, now: Context) -> NodePoolObject:
    kind = type(reason).__name__
    before = row.conditions.get(kind)
    after = changed(before, reason, told, row.generation, now.time)
    if after is before:
        return row
    return replace(row, conditions=row.conditions.set(kind, after), version=now.position)


def _counted(row: NodePoolObject, now: Context) -> NodePoolObject:
    """The NodePool with the conditions that follow from its counts."""
    assert min(row.current, row.in_progress) >= 0, f"{row.of[2]} counts fewer than no Nodes"
    reason = _at_target(row)
    held = row.current + row.in_progress
    told = HEALTHY.get(reason) or TARGET_MESSAGES[reason].format(
        current=row.current,
        target=row.spec.target_nodes,
        held=held,
        strategy=row.spec.lifecycle.scale_down_strategy.value,
    )
    row = _judged(row, reason, told, now)
    if row.deleting is None:
        return row
    return _judged(row, NodesRemoved.PENDING, f"{held} Nodes are still to be removed.", now)


def _at_target(row: NodePoolObject) -> AtTarget:
    if row.deleting is not None:
        return AtTarget.PENDING_DELETE
    target = row.spec.target_nodes
    if row.current == target:
        return AtTarget.TARGET_MET
    return AtTarget.OVER_TARGET if row.current > target else AtTarget.UNDER_TARGET


def _quota(state: State, said: QuotaTold, now: Context) -> State:
    key = f"{said.org}/{said.zone}/{said.instance_type}"
    before = state.quotas.get(key)
    match said:
        case QuotaSet(limit=limit, granted=used):
            pass
        case QuotaChecked(limit=limit, used=used):
            pass
        case QuotaReleased(used=used):
            limit = before.limit if before is not None else None
    if before is not None and (before.limit, before.used) == (limit, used):
        return state
    row = QuotaObject(said.org, said.zone, said.instance_type, limit, used, now.position)
    return replace(state, quotas=state.quotas.set(key, row))


def node_key(message: OfNode) -> str:
    """The key of a Node's row."""
    return f"{message.org}/{message.cluster}/{message.node}"


def _node(
    state: State,
    said: CWNodeAssigned | NodeChanged,
    now: Context,
) -> State:
    key = node_key(said)
    if isinstance(said, CWNodeAssigned):
        row = NodeObject(
            name=said.node,
            zone=said.zone,
            pool=said.key,
            instance_type=said.instance_type,
            assignment=said.assignment,
            created=now.time,
            version=now.position,
        )
        state = _moved(state, f"{said.zone}/{said.node}", said.key, said.assignment, now)
        return replace(state, nodes=state.nodes.set(key, row))
    before = state.nodes.get(key)
    if before is None or before.assignment != said.assignment:
        return state
    row = replace(_grown(before, said, now), version=now.position)
    return replace(state, nodes=state.nodes.set(key, row))


def _grown(row: NodeObject, said: NodeChanged, now: Context) -> NodeObject:
    match said:
        case CWNodeRegistered():
            return replace(
                row,
                phase=NodePhase.PRODUCTION,
                registered=now.time,
                labels=said.labels,
                annotations=said.annotations,
                taints=said.taints,
            )
        case NodeUpdated():
            moved = (row.removal is None) is not (said.removal is None)
            return replace(
                row,
                phase=said.phase,
                unschedulable=said.unschedulable,
                labels=said.labels,
                annotations=said.annotations,
                taints=said.taints,
                removal=said.removal,
                removal_since=now.time if moved else row.removal_since,
            )
        case NodeActivityChanged():
            return replace(row, active=said.active, work=said.message, active_since=now.time)
        case CWDrainNode():
            return replace(row, phase=NodePhase.DRAINING)


def _gone(state: State, said: NodeGone, now: Context) -> State:
    key = node_key(said)
    row = state.nodes.get(key)
    holder = "" if isinstance(said, CWNodeDeleted) else TRIAGE
    state = _moved(state, f"{said.zone}/{said.node}", holder, said.assignment, now)
    if row is None or row.assignment != said.assignment:
        return state
    return replace(state, nodes=state.nodes.delete(key))


def _machine(state: State, said: MachineAdded | MachineRepaired, now: Context) -> State:
    key, before = said.machine_key, state.inventory
    if isinstance(said, MachineAdded):
        if key in before.machines:
            return state
        state = replace(state, inventory=before.add(said))
        return _recounted(state, key, "", "free", now)
    after = before.repair(key)
    if after is before:
        return state
    return _recounted(replace(state, inventory=after), key, "triage", "free", now)


def _moved(state: State, key: str, holder: str, assignment: int, now: Context) -> State:
    """The state after a machine went to a NodePool's key, to triage, or to nobody."""
    inventory = state.inventory
    if holder == TRIAGE:
        after, was, now_is = inventory.triage(key, assignment), "assigned", "triage"
    elif holder:
        after, was, now_is = inventory.assign(key, holder, assignment), "free", "assigned"
    else:
        after, was, now_is = inventory.release(key, assignment), "assigned", "free"
    if after is inventory:
        return state
    return _recounted(replace(state, inventory=after), key, was, now_is, now)


def _recounted(state: State, key: str, was: str, now_is: str, now: Context) -> State:
    machine = state.inventory.machines[key]
    row = state.capacity.get(machine.offering)
    if row is None:
        row = CapacityObject(machine.zone, machine.instance_type, now.position)
    counts = {"free": row.free, "assigned": row.assigned, "triage": row.triage}
    counts[now_is] += 1
    if was:
        counts[was] -= 1
    row = CapacityObject(machine.zone, machine.instance_type, now.position, **counts)
    return replace(state, capacity=state.capacity.set(machine.offering, row))


def decide(_state: State, _message: Message, _now: Context) -> Iterator[Message]:
    """Nothing: what the aggregator has to say stands in its rows."""
    return iter(())


def touched(state: State, message: Message) -> Iterable[tuple[str, str]]:
    """The rows that a message may have changed."""
    if isinstance(message, OfPool):
        yield POOLS, message.key
    if isinstance(message, OfNode):
        yield NODES, node_key(message)
        machine = state.inventory.machines.get(f"{message.zone}/{message.node}")
        if machine is not None and not isinstance(message, NodeChanged):
            yield CAPACITY, machine.offering
    if isinstance(message, QuotaTold):
        yield QUOTAS, f"{message.org}/{message.zone}/{message.instance_type}"
    if isinstance(message, MachineAdded | MachineRepaired):
        machine = state.inventory.machines.get(message.machine_key)
        if machine is not None:
            yield CAPACITY, machine.offering


def _rows(state: State, bucket: str) -> Map[str, Row]:
    found: dict[str, Map[str, Row]] = {
        POOLS: state.pools,
        NODES: state.nodes,
        QUOTAS: state.quotas,
        CAPACITY: state.capacity,
    }
    return found[bucket]


def row(state: State, bucket: str, key: str) -> Row | None:
    """The row at a key; None where there is none."""
    return _rows(state, bucket).get(key)


def render(found: service.Row) -> Document:
    """A row as the read model holds it."""
    assert isinstance(found, Row), f"{type(found).__name__} is no row of the aggregator"
    return document(found)


def render_deprecated(found: service.Row) -> Document:
    """A row as the read model holds it for those who ask for the deprecated conditions too."""
    assert isinstance(found, Row), f"{type(found).__name__} is no row of the aggregator"
    return document(found, show_deprecated=True)


SERVICE = Service(
    name="aggregator",
    hears=Hears,
    says=None,
    initial=State(),
    evolve=evolve,
    decide=decide,
    rows=Rows(
        buckets=(POOLS, NODES, QUOTAS, CAPACITY),
        touched=touched,
        row=row,
        render=render,
        render_deprecated=render_deprecated,
        keys=_rows,
    ),
)
