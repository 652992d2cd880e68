"""The fields of a NodePool as its model declares them: types, limits, documentation."""

from collections.abc import Mapping, Sequence

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from nodepool.contract.conditions import ConditionStatus
from nodepool.contract.model import ManifestMetadata, NodePoolSpec
from nodepool.contract.reference import Field, describe_model
from nodepool.contract.suggest import did_you_mean


class _Shape(BaseModel):
    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True)


class ConditionShape(_Shape):
    """One statement about the NodePool: Validated, Capacity, Quota, AtTarget, NodesRemoved.

    type: which statement it is.
    status: whether it holds.
    reason: why, in one word.
    message: why, in a sentence with the numbers of now.
    last_transition_time: when the status changed last.
    observed_generation: the generation that the statement is about.
    log_position: where in the log the statement changed last; absent where that is not known.
    """

    type: str
    status: ConditionStatus
    reason: str
    message: str
    last_transition_time: str
    observed_generation: int
    log_position: int | None = None


class AutoscaledShape(_Shape):
    """Why the autoscaler has set the target; absent where a command did.

    message: from how many to how many Nodes, and why.
    since: when.
    log_position: where in the log.
    """

    message: str
    since: str
    log_position: int


class RackStatusShape(_Shape):
    """The counts of a NodePool in racks.

    target: how many racks it is to have.
    current: how many of its racks have joined the cluster whole.
    queued: how many racks its quota allows it that it has no machines for yet.
    """

    target: int
    current: int
    queued: int


class StatusShape(_Shape):
    """What has become of the NodePool so far; the control plane sets it.

    conditions: what is true of the NodePool, and why.
    current_nodes: how many of its Nodes have joined the cluster; Nodes that are reserved for the
        control plane do not count.
    in_progress: how many Nodes are assigned to it and have not joined yet.
    node_profile: the node configuration that new Nodes boot with, `<instanceType>/<image>`.
    granted_nodes: how many Nodes its quota allows it.
    queued_nodes: how many of these have no machine yet; absent if all have.
    awaited_spot_nodes: how many spot Nodes are being preempted for it; absent if none is.
    queue_position: the place of its first Node that waits for a machine; absent if none waits.
    machines_needed: how many machines have to become free until it has all Nodes; absent if none.
    missing_nodes: how many Nodes it lacked when Capacity was evaluated last; absent if none.
    other_node_profiles: how many of its Nodes were booted with which other node configurations.
    observed_generation: the newest generation that every check has evaluated.
    specified: when the newest version of the spec was stored.
    targeted: when the target changed last.
    checked: when a check decided on the newest version last, so that the next check was due.
    progressed: when its Nodes, its grant, or what Capacity says changed last; absent before that.
    autoscaled: why the autoscaler has set the target; absent where a command did.
    rack_status: the same in racks, where its type comes in whole racks.
    """

    conditions: tuple[ConditionShape, ...]
    current_nodes: int
    in_progress: int
    node_profile: str
    granted_nodes: int
    queued_nodes: int | None = None
    awaited_spot_nodes: int | None = None
    queue_position: int | None = None
    machines_needed: int | None = None
    missing_nodes: int | None = None
    other_node_profiles: Mapping[str, int] | None = None
    observed_generation: int | None = None
    specified: str | None = None
    targeted: str | None = None
    checked: str | None = None
    progressed: str | None = None
    autoscaled: AutoscaledShape | None = None
    rack_status: RackStatusShape | None = None


class NodePoolShape(_Shape):
    """A pool of machines of one type, which join a cluster as its Nodes.

    api_version: the version of this format.
    kind: the type of the object.
    metadata: the name of the NodePool, and what identifies this version of it.
    spec: the desired state.
    status: what has become of it so far.
    """

    api_version: str
    kind: str
    metadata: ManifestMetadata
    spec: NodePoolSpec
    status: StatusShape | None = None


class NoSuchFieldError(LookupError):
    """A path names a field that does not exist; the text says which, and what there is instead."""


def find_field(path: Sequence[str]) -> Field:
    """Return the field of a NodePool at a path of names; the NodePool for the empty path.

    The keys of a map are not fields: a path into a map leads to the map. Raises
    `NoSuchFieldError`.
    """
    field = nodepool()
    for name in path:
        if field.type.startswith("map["):
            return field
        inner = {each.name: each for each in field.fields}
        if name not in inner:
            hint = did_you_mean(name, inner) or f"; its fields: {', '.join(inner) or 'none'}"
            raise NoSuchFieldError(f"{field.name} has no field {name!r}{hint}")
        field = inner[name]
    return field


def nodepool() -> Field:
    """Return a NodePool as the field that `explain nodepool` is about."""
    return describe_model(NodePoolShape, "nodepool")
