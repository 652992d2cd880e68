"""The objects of the read model as readers see them: JSON documents, typed as far as tests read."""

from collections.abc import Mapping
from typing import Any, NotRequired, TypedDict

from nodepool.engine.world import World
from nodepool.service import Projection

Document = Mapping[str, object]
POOL_LABEL = "compute.coreweave.com/node-pool"
"""The Node label that names the NodePool."""
ZONE_LABEL = "topology.kubernetes.io/zone"


class Metadata(TypedDict):
    """The metadata of a NodePool or a Node."""

    name: str
    uid: NotRequired[str]
    generation: NotRequired[int]
    labels: NotRequired[dict[str, str]]
    annotations: NotRequired[dict[str, str]]


class Condition(TypedDict):
    """A condition of a NodePool or a Node."""

    type: str
    status: str
    reason: str
    message: str
    lastTransitionTime: str


class NodePoolSpec(TypedDict):
    """The spec of a NodePool."""

    targetNodes: int


class Autoscaled(TypedDict):
    """Why the autoscaler has set the target of a NodePool."""

    message: str


class NodePoolStatus(TypedDict):
    """The status of a NodePool; both counts are of Nodes."""

    conditions: list[Condition]
    inProgress: int
    grantedNodes: int
    currentNodes: int
    queuedNodes: NotRequired[int]
    awaitedSpotNodes: NotRequired[int]
    queuePosition: NotRequired[int]
    machinesNeeded: NotRequired[int]
    observedGeneration: NotRequired[int]
    autoscaled: NotRequired[Autoscaled]


class NodePool(TypedDict):
    """A NodePool."""

    metadata: Metadata
    spec: NodePoolSpec
    status: NodePoolStatus


class NodeStatus(TypedDict):
    """The status of a Node; what it has is shown once it has joined."""

    phase: str
    conditions: list[Condition]
    capacity: dict[str, str]
    allocatable: dict[str, str]
    reboots: int
    answerBy: NotRequired[str]


class Node(TypedDict):
    """A Node."""

    metadata: Metadata
    spec: Document
    status: NodeStatus


class Quota(TypedDict):
    """A limit and its use, in Nodes; the limit is None where none was set."""

    limit: int | None
    used: int


class Capacity(TypedDict):
    """The machines of one type in one zone, counted by what they are at."""

    free: int
    assigned: int
    triage: int
    reclaimed: int
    zap: NotRequired[int]
    toReclaim: int


def documents_of(world: World, bucket: str) -> dict[str, Document]:
    """The objects in a bucket of a world's read model, by key."""
    projection, _ = _projection(world)
    return {key: projection.render(item) for key, item in world.objects(bucket).items()}


def document_of(world: World, bucket: str, key: str) -> Document | None:
    """One object of a world's read model; None where there is none."""
    projection, state = _projection(world)
    item = projection.get(state, bucket, key)
    return None if item is None else projection.render(item)


def _projection(world: World) -> tuple[Projection[Any, Any], Any]:
    for service in world.services:
        if service.projection is not None:
            return service.projection, world.state(service.name)
    raise AssertionError("no service of this world has a read model")
