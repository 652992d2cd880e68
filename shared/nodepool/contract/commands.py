"""Everything one may ask of the control plane; each class is a message for anyone entitled."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from nodepool.contract.messages import Command, OfCluster, OfMachine, OfOrg, OfPool, OfZone
from nodepool.contract.model import API_VERSION, KIND, Count, ManifestMetadata, NodePoolSpec, Pod


class RegisterCluster(Command, OfCluster):
    """Makes a cluster known; it lies in exactly one zone for ever."""

    zone: str


class ApplyNodePool(Command, OfPool):
    """Creates a NodePool or changes it to what the manifest says; the data is the manifest itself.

    A `metadata.resourceVersion` from before the last change of the object is refused. `dryRun`
    answers as if, and changes nothing.
    """

    api_version: Literal["compute.coreweave.com/v1alpha1"] = API_VERSION
    kind: Literal["NodePool"] = KIND
    metadata: ManifestMetadata
    spec: NodePoolSpec
    status: dict[str, object] | None = Field(default=None, exclude=True)
    dry_run: bool = False


class ScaleNodePool(Command, OfPool):
    """Changes `spec.targetNodes` alone."""

    target_nodes: Count
    resource_version: str | None = None
    dry_run: bool = False


class DeleteNodePool(Command, OfPool):
    """Removes every Node of a NodePool, then the NodePool."""

    resource_version: str | None = None
    dry_run: bool = False


class SetQuota(Command, OfOrg):
    """Sets how many Nodes of a type an organisation may hold in a zone, over all its clusters."""

    zone: str
    instance_type: str
    limit: Count


class PreemptNode(Command, OfPool):
    """Gives a spot Node back: the seven minutes of its preemption begin now."""

    node: str


class AddMachines(Command, OfZone):
    """Puts simulated machines of one type into a zone; `labels` are their topology labels.

    Names are `g` and six hex digits, counted on from those the zone has. `bootSeconds` is how long
    each takes to boot and join.
    """

    instance_type: str
    count: Annotated[int, Field(ge=1, le=500)]
    labels: Mapping[str, str] = {}
    boot_seconds: Annotated[float, Field(ge=0, le=86_400)] = 0


class RepairMachine(Command, OfMachine):
    """Returns a machine from triage to the free ones."""


class BreakMachine(Command, OfMachine):
    """Makes a simulated machine behave badly the next `times` times that it boots.

    `boot` fails to boot, `registration` boots and is turned away, `silence` never reports.
    """

    fault: Literal["boot", "registration", "silence"]
    times: Annotated[int, Field(ge=0, le=1_000_000)] = 1
    cause: str = ""


class RunPod(Command, OfMachine):
    """Starts a Pod on a simulated Node; refused where the Node is cordoned or not in a cluster."""

    pod: Pod


class StopPod(Command, OfMachine):
    """Ends a Pod on a simulated Node, as finished work does."""

    name: str


COMMANDS = frozenset(
    kind.__name__
    for kind in (
        RegisterCluster,
        ApplyNodePool,
        ScaleNodePool,
        DeleteNodePool,
        SetQuota,
        PreemptNode,
        AddMachines,
        RepairMachine,
        BreakMachine,
        RunPod,
        StopPod,
    )
)
"""The name of every command; what comes on another is refused."""
