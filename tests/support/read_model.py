"""What tests assert on the read model: NodePools, their conditions and counts, and Nodes."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import NamedTuple, cast

from support.documents import POOL_LABEL, Condition, Document, Node, NodePool
from support.paths import pool_path


class NodeCounts(NamedTuple):
    """How many Nodes a NodePool wants, how many are on their way to it, and how many it has."""

    target: int
    in_progress: int
    current: int


class ReadModel(ABC):
    """The read model as readers see it, with machines by number as in `EventLog`."""

    @abstractmethod
    def documents(self, bucket: str) -> Mapping[str, Document]:
        """The objects in a bucket, by key."""

    @abstractmethod
    def document(self, bucket: str, key: str) -> Document | None:
        """One object; None where there is none."""

    @abstractmethod
    def machine_name(self, node: str) -> str:
        """The name of the machine with this number."""

    @abstractmethod
    def with_machine_numbers(self, text: str) -> str:
        """The text with numbers in place of the names of machines."""

    def node_pool(self, pool: str) -> NodePool | None:
        """A NodePool; None where there is none."""
        return cast("NodePool | None", self.document("nodepools", "/".join(pool_path(pool))))

    def conditions(self, pool: str) -> dict[str, str]:
        """The reason of each condition of a NodePool, in the order shown."""
        return {condition["type"]: condition["reason"] for condition in self._conditions(pool)}

    def condition(self, pool: str, kind: str) -> str:
        """A condition of a NodePool in one line: status, reason and message."""
        condition = next(each for each in self._conditions(pool) if each["type"] == kind)
        return self.with_machine_numbers("{status} {reason}: {message}".format_map(condition))

    def _conditions(self, pool: str) -> list[Condition]:
        node_pool = self.node_pool(pool)
        return node_pool["status"]["conditions"] if node_pool is not None else []

    def node_counts(self, pool: str) -> NodeCounts:
        """How many Nodes a NodePool wants, awaits and has."""
        node_pool = self.node_pool(pool)
        assert node_pool is not None, f"there is no NodePool {pool}"
        status = node_pool["status"]
        target = node_pool["spec"]["targetNodes"]
        return NodeCounts(target, status["inProgress"], status["currentNodes"])

    def granted_nodes(self, pool: str) -> int:
        """Return how many Nodes the grant of a NodePool is."""
        node_pool = self.node_pool(pool)
        assert node_pool is not None, f"there is no NodePool {pool}"
        return node_pool["status"]["grantedNodes"]

    def queued_nodes(self, pool: str) -> int:
        """Return how many Nodes of a NodePool are granted and have no machine yet."""
        node_pool = self.node_pool(pool)
        assert node_pool is not None, f"there is no NodePool {pool}"
        return node_pool["status"].get("queuedNodes", 0)

    def nodes(self, pool: str = "") -> list[str]:
        """All Nodes, or those of a NodePool, in the order of their machines."""
        names = [
            self.with_machine_numbers(key.rpartition("/")[2])
            for key, document in self.documents("nodes").items()
            if not pool or _pool_of(document) == pool_path(pool)[2]
        ]
        return sorted(names, key=lambda name: int(name[1:]))

    def node(self, node: str) -> Node:
        """A Node."""
        name = self.machine_name(node)
        documents = self.documents("nodes").items()
        return cast(
            "Node", next(document for key, document in documents if key.endswith(f"/{name}"))
        )

    def node_conditions(self, node: str) -> dict[str, str]:
        """Status and reason of each condition of a Node."""
        return {
            condition["type"]: f"{condition['status']} {condition['reason']}"
            for condition in self.node(node)["status"]["conditions"]
        }

    def node_condition_times(self, node: str) -> dict[str, str]:
        """Return the transition time of each condition of a Node."""
        return {
            condition["type"]: condition["lastTransitionTime"]
            for condition in self.node(node)["status"]["conditions"]
        }


def _pool_of(document: Document) -> str:
    return cast("Node", document)["metadata"]["labels"][POOL_LABEL]
