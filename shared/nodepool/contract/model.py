"""The nouns of the specification: the NodePool object, and the Taints and Pods around it."""

from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from nodepool.contract.affinity import Affinity

API_VERSION: Final = "compute.coreweave.com/v1alpha1"
KIND: Final = "NodePool"
FINALIZER: Final = "compute.coreweave.com/node-pool"
COMPUTE_CLASS: Final = "compute.coreweave.com/compute-class"
"""The Node label that tells spot Nodes from others."""


class Value(BaseModel):
    """A frozen value written in camelCase, as Kubernetes writes its fields.

    Readers ignore fields they do not know; whoever takes commands asks for `extra="forbid"`.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        alias_generator=to_camel,
        validate_by_alias=True,
        validate_by_name=True,
        serialize_by_alias=True,
    )


class ScaleDownStrategy(StrEnum):
    """Which Nodes may go when a NodePool shrinks (seed: lifecycle.scaleDownStrategy)."""

    IDLE_ONLY = "IdleOnly"
    PREFER_IDLE = "PreferIdle"


class ReleaseTrain(StrEnum):
    """The release channel of a boot image (seed: image.releaseTrain)."""

    STABLE = "stable"
    LATEST = "latest"


class ComputeClass(StrEnum):
    """How firmly a NodePool holds its Nodes; `spot` may be preempted (seed: Spot Node Pools)."""

    DEFAULT = "default"
    SPOT = "spot"


def _canonical_class(value: object) -> object:
    return "spot" if value == "Spot" else value


class Image(Value):
    """The boot image of a NodePool's Nodes (seed: Image)."""

    kernel: str | None = None
    name: str | None = None
    release_train: ReleaseTrain = ReleaseTrain.STABLE


class Lifecycle(Value):
    """How Nodes leave a NodePool (seed: lifecycle; the first field: the describe output)."""

    disable_unhealthy_node_eviction: bool = True
    scale_down_strategy: ScaleDownStrategy = ScaleDownStrategy.IDLE_ONLY


class Taint(Value):
    """A Kubernetes taint; an absent value and an empty one are the same."""

    key: str
    value: str = ""
    effect: str


class SchedulingPriority(Value):
    """Who is served first when machines are short: higher values, within the int32 range."""

    value: Annotated[int, Field(ge=-(2**31), le=2**31 - 1)] = 0


Count = Annotated[int, Field(ge=0, le=1_000_000)]


class NodePoolSpec(Value):
    """The desired state of a NodePool (seed: Node Pool Spec)."""

    instance_type: Annotated[str, Field(min_length=1, max_length=63)]
    target_nodes: Count
    min_nodes: Count | None = None
    max_nodes: Count | None = None
    autoscaling: bool = False
    lifecycle: Lifecycle = Lifecycle()
    node_labels: dict[str, str] = {}
    node_annotations: dict[str, str] = {}
    node_taints: tuple[Taint, ...] = ()
    image: Image | None = None
    compute_class: Annotated[ComputeClass, BeforeValidator(_canonical_class)] = ComputeClass.DEFAULT
    region: str | None = None
    affinity: Affinity | None = None
    scheduling_priority: SchedulingPriority | None = None

    @property
    def priority(self) -> int:
        """The scheduling priority; a NodePool that names none has 0."""
        return self.scheduling_priority.value if self.scheduling_priority else 0


class ManifestMetadata(Value):
    """The metadata a manifest may carry; most of what the control plane owns is left unread."""

    name: str
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    resource_version: str | None = None
    uid: str | None = None
    generation: int | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    finalizers: tuple[str, ...] = ()


class PodClass(StrEnum):
    """How a Pod may be interrupted (seed: Pod interruption)."""

    BLOCKING = "blocking"
    INTERRUPTABLE = "interruptable"
    GRACEFUL = "graceful"


class Pod(Value):
    """A Pod on a Node, as far as a Node's way depends on it; `grace_s` in seconds."""

    name: str
    daemon_set: bool = False
    verification: bool = False
    interruption: PodClass = PodClass.BLOCKING
    grace_s: Annotated[int, Field(ge=0, le=86_400)] = 30
    terminating: bool = False

    @property
    def counts_as_work(self) -> bool:
        """Whether this Pod makes its Node active: DaemonSet and verification Pods do not."""
        return not (self.daemon_set or self.verification)


class NodePhase(StrEnum):
    """Where a Node is on its way through a NodePool."""

    BOOTING = "booting"
    PRODUCTION = "production"
    CORDONED = "cordoned"
    DRAINING = "draining"
    DELETED = "deleted"


class RemovalReason(StrEnum):
    """Why a Node leaves (the reasons of the Node condition CWNodeRemoval)."""

    SCALE_DOWN = "ScaleDown"
    POOL_DELETED = "PoolDeleted"
    PREEMPTED = "Preempted"
    UNHEALTHY = "Unhealthy"


ConditionStatus = Literal["True", "False", "Unknown"]


def spec_document(spec: NodePoolSpec) -> dict[str, object]:
    """The spec as a Kubernetes client sees it: defaults that S1 shows stay, empty fields go."""
    document: dict[str, object] = spec.model_dump(mode="json", exclude_none=True)
    if spec.compute_class is ComputeClass.DEFAULT:
        del document["computeClass"]
    return {key: value for key, value in document.items() if not _is_empty(value)}


def _is_empty(value: object) -> bool:
    return isinstance(value, dict | list) and not value
