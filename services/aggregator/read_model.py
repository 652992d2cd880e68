"""The objects of the read model, and what else their status follows from."""

from collections.abc import Iterator
from dataclasses import dataclass

from immutables import Map

from aggregator.objects import (
    CapacityObject,
    ClusterObject,
    MachineStatus,
    NodeObject,
    NodePoolObject,
    QuotaObject,
)
from aggregator.real_machines import RealMachine
from aggregator.templates import Templates
from nodepool.contract.events import NodeConditionChanged
from nodepool.contract.keys import (
    ClusterKey,
    LedgerKey,
    MachineKey,
    NodeKey,
    OfferingKey,
    PoolKey,
    as_pool_key,
    cluster_key,
    node_key,
    pool_path,
)
from nodepool.contract.messages import OfNode
from nodepool.contract.observations import ConditionSeen
from nodepool.placement.machines import Inventory, Machine


@dataclass(frozen=True, slots=True)
class ReadModel:
    """The objects of the read model by key.

    pools, nodes, quotas, capacity, clusters: one map for each of these buckets.
    inventory: every machine, as `capacity` counts it.
    machines: the rest of the status of every machine.
    real: the power, problems and entries of each real machine that is declared or was added.
    busy: the Nodes of each NodePool that boot, that are active, or that will leave.
    templates: the large templates of the Nodes of each NodePool.
    """

    pools: Map[PoolKey, NodePoolObject] = Map()
    nodes: Map[NodeKey, NodeObject] = Map()
    quotas: Map[LedgerKey, QuotaObject] = Map()
    capacity: Map[OfferingKey, CapacityObject] = Map()
    clusters: Map[ClusterKey, ClusterObject] = Map()
    inventory: Inventory = Inventory()
    machines: Map[MachineKey, MachineStatus] = Map()
    real: Map[MachineKey, RealMachine] = Map()
    busy: Map[PoolKey, Map[NodeKey, bool]] = Map()
    templates: Templates = Map()

    def machine(self, key: MachineKey) -> Machine | None:
        """Return a machine; None if it was never added."""
        return self.inventory.machines.get(key)

    def last_assignment(self, key: MachineKey) -> int:
        """Return the number of the last assignment of a machine."""
        return self.inventory.machines[key].assignment

    def pool(self, key: PoolKey) -> NodePoolObject | None:
        """Return the NodePool that has this key now."""
        return self.pools.get(key)

    def node(self, event: OfNode) -> NodeObject | None:
        """Return the Node whose assignment the event names; None if it left, or never was."""
        node = self.nodes.get(event.node_key)
        return node if node is not None and node.assignment == event.assignment else None

    def uncounted_peers(self, key: NodeKey) -> Iterator[NodeObject]:
        """Yield other Nodes of a Node's NodePool, at least those that boot or are reserved."""
        own = self.nodes[key].pool
        pool = self.pools.get(own)
        # A reserved Node on which no work runs is not busy.
        listed = self.nodes if pool is not None and pool.away else self.busy.get(own, Map())
        for other in listed:
            node = self.nodes[other]
            if node.pool == own and other != key:
                yield node

    def node_on(self, key: MachineKey) -> NodeKey | None:
        """Return the Node that a machine is, or is about to be; None for any other machine."""
        machine = self.machine(key)
        holder = as_pool_key(machine.holder) if machine is not None else None
        if machine is None or holder is None:
            return None
        org, cluster, _ = pool_path(holder)
        return node_key(org, cluster, machine.name)

    def reported_node(self, event: ConditionSeen) -> NodeKey | None:
        """Return the Node whose condition was reported; None if the report is not trusted.

        A report of an agent is trusted if the cluster has an agent, and if the report names the
        NodePool and the zone of the Node.
        """
        if isinstance(event, NodeConditionChanged):
            key = self.node_on(event.machine_key)
            return key if key in self.nodes else None
        node = self.nodes.get(event.node_key)
        cluster = self.clusters.get(cluster_key(event.org, event.cluster))
        is_its_own = node is not None and (node.pool, node.zone) == (event.key, event.zone)
        return event.node_key if is_its_own and cluster and cluster.kubernetes else None
