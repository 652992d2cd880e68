"""The state of the lifecycle service: NodePools, their Nodes, and the template of these Nodes."""

from dataclasses import dataclass

from immutables import Map

from lifecycle.areas import Areas, Standing, find_silent, is_excused, move_node
from lifecycle.changes import BootReport
from lifecycle.commands import PhaseCommand
from lifecycle.node import Node
from lifecycle.racks import Racks
from lifecycle.template import NodeTemplate
from nodepool.contract import events as on
from nodepool.contract.keys import (
    ClusterKey,
    MachineKey,
    PoolKey,
    cluster_of,
    machine_key,
    machine_parts,
)
from nodepool.contract.messages import OfNode
from nodepool.contract.observations import ConditionSeen, NodeSeen
from nodepool.service import Context
from nodepool.state.maps import mark, put
from nodepool.state.values import replace
from nodepool.state.work import WithWork

OfStay = OfNode | BootReport | NodeSeen | ConditionSeen
"""The messages about one stay of a machine in a NodePool."""


@dataclass(frozen=True, slots=True)
class State(WithWork[PoolKey | MachineKey]):
    """NodePools and their Nodes.

    agents: the clusters that an agent connects to Kubernetes.
    templates: what the Nodes of each NodePool look like.
    announced: the version of each template in the last `CWNodePoolMetadata`.
    published: the revision of each large template in the last `NodeTemplateChanged`.
    nodes: every Node, by its machine.
    members: the Nodes of each NodePool that has Nodes.
    unhealthy: the Nodes of each NodePool that have a problem.
    racks: the racks of the Nodes whose instance type comes in racks.
    areas: the zones and clusters of the Nodes, with the silent Nodes of each.
    refused: how often each message asked for a move that the phase of the Node does not allow, by
        phase.
    failed: the NodePools of which a step failed, until it succeeds.
    told: the last internal error of a removal that was reported to users, until the error is over.
    work: the next deadline of each Node; the NodePools with more Nodes than one step can update;
        and the NodePools that failed.
    """

    agents: Map[ClusterKey, bool] = Map()
    templates: Map[PoolKey, NodeTemplate] = Map()
    announced: Map[PoolKey, int] = Map()
    published: Map[PoolKey, int] = Map()
    nodes: Map[MachineKey, Node] = Map()
    members: Map[PoolKey, Map[MachineKey, bool]] = Map()
    failed: Map[PoolKey, bool] = Map()
    told: Map[PoolKey, str] = Map()
    unhealthy: Map[PoolKey, Map[MachineKey, bool]] = Map()
    refused: Map[str, Map[str, int]] = Map()
    racks: Racks = Map()
    areas: Areas = Map()

    def with_node(self, key: MachineKey, node: Node) -> "State":
        """Return the state with this Node, and its place in the work queue in step with it."""
        work = self.work
        if node.due != work.deadlines.moments.get(key):
            work = work.drop(key) if node.due is None else work.put_at(key, node.due)
        if node.is_newly_silent:
            work = work.put(key)
        return replace(
            self,
            nodes=self.nodes.set(key, node),
            unhealthy=self._mark_unhealthy(key, node.pool, is_marked=bool(node.health.problems)),
            work=work,
        )

    def without_node(self, key: MachineKey) -> "State":
        """Return the state without this Node."""
        pool, members = self.nodes[key].pool, self.members
        rest = members[pool].delete(key)
        return replace(
            self,
            nodes=self.nodes.delete(key),
            unhealthy=self._mark_unhealthy(key, pool, is_marked=False),
            members=members.set(pool, rest) if rest else members.delete(pool),
            work=self.work.drop(key),
        )

    def _mark_unhealthy(
        self, key: MachineKey, pool: PoolKey, *, is_marked: bool
    ) -> Map[PoolKey, Map[MachineKey, bool]]:
        marked = mark(self.unhealthy.get(pool, Map()), key, is_in=is_marked)
        return put(self.unhealthy, pool, marked or None)

    def with_areas(self, before: "State", key: MachineKey, context: Context) -> "State":
        """Return the state with the zone and the cluster of a Node that changed since `before`.

        All silent Nodes of an area change if its silence becomes widespread, or ceases to be so.
        """
        old, new = before._standing(key), self._standing(key)
        if old == new:
            return self
        areas, turned = move_node(self.areas, key, old, new)
        state = replace(self, areas=areas)
        for each in {key: True, **dict.fromkeys(find_silent(areas, turned))}:
            state = state._with_excuse(each, context)
        return state

    def _standing(self, key: MachineKey) -> Standing | None:
        """Return how a Node counts in its areas; None before the Node has joined its cluster."""
        node, (zone, _) = self.nodes.get(key), machine_parts(key)
        if node is None or node.is_booting:
            return None
        is_silent = node.health.silence is not None and not node.restarts
        return Standing((zone, cluster_of(node.pool)), is_silent)

    def _with_excuse(self, key: MachineKey, context: Context) -> "State":
        """Return the state with a silent Node, excused if the silence of its area is widespread."""
        node, standing = self.nodes.get(key), self._standing(key)
        if node is None or standing is None or node.health.silence is None:
            return self
        silence = node.health.silence
        is_wide = standing.is_silent and is_excused(self.areas, standing.areas)
        if is_wide is silence.is_excused:
            return self
        after = silence.excuse(context.time, is_excused=is_wide)
        state = self.with_node(key, replace(node, health=node.health._replace(silence=after)))
        return replace(state, work=state.work.put(key)) if silence.is_lasting else state

    def find_commanded_node(self, command: PhaseCommand) -> Node | None:
        """Return the Node that a command is about; None if its NodePool has no such Node."""
        template = self.templates.get(command.key)
        node = template and self.nodes.get(machine_key(template.zone, command.node))
        return node if node and node.pool == command.key else None

    def node(self, message: OfStay) -> Node | None:
        """Return the Node that a message is about; None if the message is about an earlier stay.

        Also return None for an observation of a service that does not observe this cluster.
        """
        node = self.nodes.get(message.machine_key)
        if node is None or node.assignment != message.assignment:
            return None
        match message:
            case on.NodeReported() | on.NodeConditionReported():
                is_its_own = message.key == node.pool and self.templates[node.pool].has_agent
                return node if is_its_own else None
            case on.NodeObserved():
                return None if self.templates[node.pool].has_agent else node
        return node
