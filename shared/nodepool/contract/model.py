"""The NodePool object, and what its Nodes are made of: Taints and phases.

Names, fields and defaults are those of
https://docs.coreweave.com/products/cks/reference/node-pool.
"""

from typing import Annotated, Final, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import InitErrorDetails, PydanticCustomError

from nodepool.contract.affinity import Affinity, with_rules
from nodepool.contract.catalog import RACK_SIZE, rack_size
from nodepool.contract.words import Word

API_VERSION: Final = "compute.coreweave.com/v1alpha1"
KIND: Final = "NodePool"
FINALIZER: Final = "compute.coreweave.com/node-pool"
COMPUTE_CLASS: Final = "compute.coreweave.com/compute-class"
"""The label of a Node whose value is the compute class of its NodePool."""


class Value(BaseModel):
    """An immutable value, written in camelCase as Kubernetes writes its fields.

    A reader ignores unknown fields; commands are read with `extra="forbid"`.
    """

    model_config = ConfigDict(
        # A program uses few of the classes: the rest is a tenth of the time of a command.
        defer_build=True,
        frozen=True,
        extra="ignore",
        alias_generator=to_camel,
        validate_by_alias=True,
        validate_by_name=True,
        serialize_by_alias=True,
    )


class ScaleDownStrategy(Word):
    """Which Nodes may be removed when a NodePool shrinks: idle ones only, or idle ones first."""

    IDLE_ONLY = "IdleOnly"
    PREFER_IDLE = "PreferIdle"


class ReleaseTrain(Word):
    """The release channel of a boot image."""

    STABLE = "stable"
    LATEST = "latest"


class ComputeClass(Word):
    """Whether the Nodes of a NodePool may be preempted; those of class `spot` may.

    See https://docs.coreweave.com/platform/capacity-plans/spot-node-pools.
    """

    DEFAULT = "default"
    SPOT = "spot"


def _canonical_class(value: object) -> object:
    # The product's documentation uses both spellings.
    return "spot" if value == "Spot" else value


class Image(Value):
    """The boot image of a NodePool's Nodes.

    kernel: the kernel that it has.
    name: its name.
    release_train: the channel that it comes from.
    """

    kernel: str | None = None
    name: str | None = None
    release_train: ReleaseTrain = ReleaseTrain.STABLE


class Lifecycle(Value):
    """How Nodes leave a NodePool.

    disable_unhealthy_node_eviction: whether an unhealthy Node is cordoned and reported only, until
        a command asks for more; else what runs there ends, and it is rebooted or replaced.
    scale_down_strategy: which Nodes may be removed when the NodePool shrinks.
    """

    disable_unhealthy_node_eviction: bool = True
    scale_down_strategy: ScaleDownStrategy = ScaleDownStrategy.IDLE_ONLY


class Taint(Value):
    """A taint of a Node.

    See https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/.

    key: its key.
    value: its value; absent and empty are the same.
    effect: what it does to Pods without a toleration: NoSchedule, PreferNoSchedule or NoExecute.
    """

    key: str
    value: str = ""
    effect: str


CPU_TAINT: Final = Taint(key="is_cpu_compute", effect="NoSchedule")
GPU_TAINT: Final = Taint(key="is_gpu", value="true", effect="PreferNoSchedule")
CORDON: Final = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
"""The taint that Kubernetes itself gives to a cordoned Node."""
LOCK_TAINT: Final = Taint(key="sunk.coreweave.com/lock", value="true", effect="NoExecute")
"""The taint of a Node that a Slurm job has locked, or is about to."""
LOCK: Final = "sunk.coreweave.com/lock"
"""The annotation of such a Node: `pending` while Pods are evicted for it, then `locked`."""
RESERVED: Final = "node.coreweave.cloud/reserved"
"""The label that says for which organisation or purpose a Node is, and the key of its taint."""
MANAGED_TAINTS: Final = (
    CPU_TAINT,
    GPU_TAINT,
    CORDON,
    Taint(key=RESERVED, effect="NoExecute"),
    Taint(key="sunk.coreweave.com/lock", effect="NoExecute"),
)
"""The taints, by key and effect, that the control plane sets and a NodePool cannot ask for.

See https://docs.coreweave.com/products/cks/clusters/scheduling/workload-scheduling.
"""


class SchedulingPriority(Value):
    """Which NodePool gets machines first when they are short.

    value: within an organisation, NodePools with higher values come first.
    """

    value: Annotated[int, Field(ge=-(2**31), le=2**31 - 1)] = 0


NODES_MAX = 1_000_000
"""The most Nodes of one type that a NodePool wants, or a query asks for."""
Count = Annotated[int, Field(ge=0, le=NODES_MAX)]
"""A number of Nodes."""


class NodePoolSpec(Value):
    """The desired state of a NodePool.

    instance_type: the type of its Nodes; it cannot be changed.
    target_nodes: how many Nodes it is to have; this or `targetRacks` is required. While autoscaling
        is true, the target may be left to the autoscaler, which begins with `minNodes`.
    target_racks: how many racks it is to have instead, of a type that comes in whole racks.
    autoscaling: whether an autoscaler may set the target.
    min_nodes: the fewest Nodes that the target may be while autoscaling is true; else ignored.
    max_nodes: the most Nodes that the target may be while autoscaling is true; else ignored.
    lifecycle: how Nodes leave it.
    node_labels: the labels that each of its Nodes carries, beside those of the control plane.
    node_annotations: the annotations that each of its Nodes carries.
    node_taints: the taints that each of its Nodes carries.
    image: what its Nodes boot.
    compute_class: whether its Nodes may be preempted; it cannot be changed.
    region: the zone that it expects to be in.
    affinity: which machines may become its Nodes.
    scheduling_priority: its place among the NodePools that wait for machines.
    """

    instance_type: Annotated[str, Field(min_length=1, max_length=63)]
    target_nodes: Count | None = None
    target_racks: Annotated[int, Field(ge=0, le=NODES_MAX // RACK_SIZE)] | None = None
    min_nodes: Count | None = None
    max_nodes: Count | None = None
    autoscaling: bool = False
    lifecycle: Lifecycle = Lifecycle()
    node_labels: dict[str, str] = {}
    node_annotations: dict[str, str] = {}
    node_taints: tuple[Taint, ...] = ()
    image: Image | None = None
    compute_class: Annotated[
        ComputeClass,
        BeforeValidator(_canonical_class, json_schema_input_type=ComputeClass | Literal["Spot"]),
    ] = ComputeClass.DEFAULT
    region: str | None = None
    affinity: Annotated[Affinity | None, AfterValidator(with_rules)] = None
    scheduling_priority: SchedulingPriority | None = None

    @model_validator(mode="after")
    def _has_one_target(self) -> Self:
        """Raise an error that names the field if the spec has no target, or more than one target.

        While autoscaling is true, the target may be left to the autoscaler.
        """
        if self.autoscaling and self.target_nodes is None and self.target_racks is None:
            return self
        if (self.target_nodes is None) is not (self.target_racks is None):
            return self
        fault = InitErrorDetails(type="missing", loc=("targetNodes",), input=None)
        if self.target_nodes is not None:
            text = "cannot be given beside targetNodes; leave one of the two out"
            error, place = PydanticCustomError("both", text), ("targetRacks",)
            fault = InitErrorDetails(type=error, loc=place, input=None)
        raise ValidationError.from_exception_data("NodePoolSpec", [fault])

    @property
    def target(self) -> int:
        """Return how many Nodes the spec asks for, in Nodes or racks; else `minNodes` or 0."""
        if self.target_nodes is None and self.target_racks is None:
            return self.min_nodes or 0
        return self.target_nodes if self.target_nodes is not None else self._target_of_racks

    @property
    def _target_of_racks(self) -> int:
        return (self.target_racks or 0) * (self.rack_size or RACK_SIZE)

    @property
    def rack_size(self) -> int:
        """How many of its Nodes are a rack; 0 for a type that comes one by one, or is unknown."""
        return rack_size(self.instance_type)

    @property
    def priority(self) -> int:
        """The scheduling priority; 0 if the spec sets no priority."""
        return self.scheduling_priority.value if self.scheduling_priority else 0


class ManifestMetadata(Value):
    """The metadata that a manifest may have.

    name: the name of the object.
    labels, annotations: what the object gets.
    resource_version: the version that it was edited from; it must still be the newest.
    uid, generation, creation_timestamp, deletion_timestamp, finalizers: ignored; what was read from
        the control plane has them, and may be applied as it is.
    """

    name: str
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    resource_version: str | None = None
    uid: str | None = None
    generation: int | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    finalizers: tuple[str, ...] = ()


class NodePhase(Word):
    """Where a Node is between its assignment to a NodePool and its deletion."""

    BOOTING = "booting"
    PRODUCTION = "production"
    CORDONED = "cordoned"
    DRAINING = "draining"
    DELETED = "deleted"
    VERIFYING = "verifying"
    REBOOTING = "rebooting"


class RemovalReason(Word):
    """Why a Node leaves: the reasons of the Node condition CWNodeRemoval."""

    SCALE_DOWN = "ScaleDown"
    POOL_DELETED = "PoolDeleted"
    PREEMPTED = "Preempted"
    UNHEALTHY = "Unhealthy"


class NodeAction(Word):
    """What is to be done, or is being done, to a Node that stays in its NodePool.

    The values of the reboots are those of the label `node.coreweave.cloud/state` during them.
    """

    DRAIN = "drain"
    REBOOT = "production-reboot"
    POWERRESET = "production-powerreset"


def spec_document(spec: NodePoolSpec) -> dict[str, object]:
    """Return the spec as a Kubernetes client sees it: with defaults, without empty fields."""
    document: dict[str, object] = spec.model_dump(mode="json", exclude_none=True)
    if spec.compute_class is ComputeClass.DEFAULT:
        del document["computeClass"]
    return {key: value for key, value in document.items() if not _is_empty(value)}


def _is_empty(value: object) -> bool:
    return isinstance(value, dict | list) and not value
