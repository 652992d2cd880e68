"""The state of the aggregator: the objects of the read model, the machines, and the figures."""

from dataclasses import dataclass

from immutables import Map

from aggregator.node_figures import NodeFigures
from aggregator.objects import (
    CapacityObject,
    ClusterObject,
    MachineStatus,
    NodeObject,
    NodePoolObject,
    QuotaObject,
)
from aggregator.pool_figures import PoolFigures
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
from nodepool.contract.observations import ConditionSeen
from nodepool.placement.machines import Inventory
from nodepool.state.tallies import Histograms, Levels, Violations


@dataclass(frozen=True, slots=True)
class State:
    """The objects of the read model by key.

    pools, nodes, quotas, capacity, clusters: one map for each of these buckets.
    inventory: every machine, as `capacity` counts it.
    machines: the rest of the status of every machine.
    busy: the Nodes of each NodePool that are active, or that will leave.
    templates: the large templates of the Nodes of each NodePool.
    pool_figures, node_figures: the figures about NodePools and Nodes since the log began, for
        metrics.
    joins: how long Nodes took to join; a separate field because it changes with each Node.
    out_of_service: how many machines are out of service, by offering, state and cause: for each
        offering at most 9 states times 16 causes.
    violations: how often the rules that always hold were broken.
    """

    pools: Map[PoolKey, NodePoolObject] = Map()
    nodes: Map[NodeKey, NodeObject] = Map()
    quotas: Map[LedgerKey, QuotaObject] = Map()
    capacity: Map[OfferingKey, CapacityObject] = Map()
    clusters: Map[ClusterKey, ClusterObject] = Map()
    inventory: Inventory = Inventory()
    machines: Map[MachineKey, MachineStatus] = Map()
    busy: Map[PoolKey, Map[NodeKey, bool]] = Map()
    templates: Templates = Map()
    pool_figures: PoolFigures = PoolFigures()
    node_figures: NodeFigures = NodeFigures()
    joins: Histograms = Histograms()
    out_of_service: Levels = Levels()
    violations: Violations = Violations()

    def node_on(self, key: MachineKey) -> NodeKey | None:
        """Return the Node that a machine is, or is about to be; None for any other machine."""
        machine = self.inventory.machines.get(key)
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
