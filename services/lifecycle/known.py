"""What the lifecycle service knows: NodePools, their Nodes, and how those should look."""

from dataclasses import dataclass, replace

from immutables import Map

from lifecycle import ConditionObserved, Observed
from lifecycle.node import Node
from lifecycle.racks import Racks
from lifecycle.requests import PhaseCommand
from lifecycle.silence import Areas
from lifecycle.template import NodeTemplate
from nodepool.contract import events as on
from nodepool.contract.keys import ClusterKey, MachineKey, PoolKey, machine_key
from nodepool.contract.messages import OfNode
from nodepool.state.work import WithWork

Report = on.MachineBooted | on.MachineFailed | on.NodeVerified
"""What a machine reports of its boots."""
OfStay = OfNode | Report | Observed | ConditionObserved
"""The messages about one stay of a machine in a NodePool."""


@dataclass(frozen=True, slots=True)
class State(WithWork[PoolKey | MachineKey]):
    """NodePools and their Nodes.

    agents: the clusters that an agent connects to Kubernetes.
    templates: what the Nodes of each NodePool look like.
    announced: the version of each template that the last `CWNodePoolMetadata` was about.
    published: the revision of each large template that the last `NodeTemplateChanged` was about.
    nodes: every Node, by its machine.
    members: the Nodes of each NodePool that has any.
    unhealthy: those of them that have a problem.
    racks: their racks, where their type comes in racks.
    areas: their zones and clusters, with the silent Nodes of each.
    refused: how often each message asked for a move that cannot follow on a phase, by phase.
    failures: the last internal error of each NodePool with Nodes that could not be updated.
    work: when each Node is given up whose machine has to boot, or to answer; the NodePools with so
        many Nodes that one step could not update them all; and those that failed.
    """

    agents: Map[ClusterKey, bool] = Map()
    templates: Map[PoolKey, NodeTemplate] = Map()
    announced: Map[PoolKey, int] = Map()
    published: Map[PoolKey, int] = Map()
    nodes: Map[MachineKey, Node] = Map()
    members: Map[PoolKey, Map[MachineKey, bool]] = Map()
    failures: Map[PoolKey, str] = Map()
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
        return replace(self, nodes=self.nodes.set(key, node), work=work)

    def commanded(self, command: PhaseCommand) -> Node | None:
        """The Node that a command is about; None where its NodePool has none of this name."""
        template = self.templates.get(command.key)
        node = template and self.nodes.get(machine_key(template.zone, command.node))
        return node if node and node.pool == command.key else None

    def node(self, message: OfStay) -> Node | None:
        """The Node that a message is about; None where it is about an earlier stay.

        None also for what is observed by a part of the system that does not observe its cluster.
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
