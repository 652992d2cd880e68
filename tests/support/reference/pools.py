"""What customers may expect of each NodePool object, computed from the accepted commands alone.

A NodePool exists from the accepted `ApplyNodePool` that created it until its deletion is over. Its
spec is that of the last accepted command. Whether the spec is valid follows from the catalog.

From the log: which commands were accepted, in which order, and when a deletion was over.
"""

from dataclasses import dataclass, field

from nodepool.contract import affinity
from nodepool.contract.catalog import INSTANCE_TYPES, ZONES
from nodepool.contract.commands import (
    ApplyNodePool,
    DeleteNodePool,
    DeleteQuota,
    RegisterCluster,
    ScaleNodePool,
    SetQuota,
)
from nodepool.contract.events import CommandAccepted, CWNodePoolDeleted, NodePoolValidated
from nodepool.contract.messages import Message
from nodepool.contract.model import ComputeClass, NodePoolSpec
from nodepool.contract.satisfiable import satisfiable
from support.reference.history import History

LedgerName = tuple[str, str, str]
"""Organisation, zone and instance type: what one limit is for."""


@dataclass
class Desired:
    """A NodePool as its commands made it.

    was_valid: whether any version of it was valid.
    """

    key: str
    zone: str
    spec: NodePoolSpec
    generation: int = 1
    labels: dict[str, str] = field(default_factory=dict)
    deleting: bool = False
    was_valid: bool = False

    @property
    def fault(self) -> str:
        """Why it can never be delivered; empty where it can."""
        return fault_of(self.spec, self.zone)

    @property
    def ledger(self) -> LedgerName:
        """The limit that it counts against."""
        return self.key.split("/")[0], self.zone, self.spec.instance_type


@dataclass
class Expected:
    """What is there in the end.

    pools: the NodePools by key.
    limits: the limits that were set.
    clusters: the zone of each cluster.
    """

    pools: dict[str, Desired] = field(default_factory=dict)
    limits: dict[LedgerName, int] = field(default_factory=dict)
    clusters: dict[str, str] = field(default_factory=dict)


def expected(history: History) -> Expected:
    """The objects after all accepted commands; one that was sent again counts once."""
    commands = {
        stored.position: stored.message for stored in history.messages if stored.speaker == "cmd"
    }
    result = Expected()
    seen: set[tuple[object, str, str]] = set()
    for stored in history.messages:
        event = stored.message
        if isinstance(event, CWNodePoolDeleted):
            result.pools.pop(event.key, None)
        if isinstance(event, NodePoolValidated) and stored.cause not in commands:
            _autoscaled(result.pools[event.key], event)
        if not isinstance(event, CommandAccepted) or event.dry_run:
            continue
        identity = (event.path, event.command, stored.id)
        if identity not in seen and stored.cause in commands:
            seen.add(identity)
            _accepted(result, commands[stored.cause])
    return result


def _accepted(result: Expected, command: Message) -> None:
    match command:
        case RegisterCluster():
            result.clusters[f"{command.org}/{command.cluster}"] = command.zone
        case SetQuota():
            result.limits[command.org, command.zone, command.instance_type] = command.limit
        case DeleteQuota():
            result.limits.pop((command.org, command.zone, command.instance_type), None)
        case ApplyNodePool():
            _applied(result, command)
        case ScaleNodePool():
            pool = result.pools[command.key]
            target: dict[str, int] = {"target_nodes": command.target_nodes}
            if pool.spec.target_racks is not None:
                target = {"target_racks": command.target_nodes // pool.spec.rack_size}
            _changed(pool, pool.spec.model_copy(update=target))
        case DeleteNodePool():
            result.pools[command.key].deleting = True


def _autoscaled(pool: Desired, event: NodePoolValidated) -> None:
    """A target that no command has set; the audit checks that the autoscaler had it."""
    if event.autoscaled and event.spec.target != pool.spec.target:
        _changed(pool, pool.spec.model_copy(update={"target_nodes": event.spec.target}))


def _applied(result: Expected, command: ApplyNodePool) -> None:
    pool = result.pools.get(command.key)
    if pool is None:
        zone = result.clusters[f"{command.org}/{command.cluster}"]
        pool = result.pools[command.key] = Desired(command.key, zone, command.spec)
        pool.was_valid = not pool.fault
    else:
        _changed(pool, command.spec)
    pool.labels = dict(command.metadata.labels)


def _changed(pool: Desired, spec: NodePoolSpec) -> None:
    if spec != pool.spec:
        pool.spec = spec
        pool.generation += 1
        pool.was_valid = pool.was_valid or not pool.fault


def fault_of(spec: NodePoolSpec, zone: str) -> str:
    """The message of the condition Validated where it is Invalid; empty where the spec is valid."""
    kind = INSTANCE_TYPES.get(spec.instance_type)
    if kind is None:
        return f"instance type {spec.instance_type} is not a known instance type"
    if spec.region not in (None, zone):
        return f"region {spec.region} is not the cluster's zone {zone}"
    if zone not in kind.zones:
        return f"instance type {kind.id} is not offered in zone {zone}"
    if kind.superchip and spec.compute_class is ComputeClass.SPOT:
        return f"computeClass spot is not offered for the Superchip instance type {kind.id}"
    if kind.rack_size and spec.target % kind.rack_size:
        return (
            f"targetNodes {spec.target} is not a multiple of {kind.rack_size}, "
            f"the Nodes of one rack of {kind.id}"
        )
    labels = affinity.machine_labels(kind, ZONES[zone])
    return (
        affinity.fault(spec.affinity)
        or satisfiable(spec.affinity, labels, affinity.TOPOLOGY_KEYS)
        or ""
    )
