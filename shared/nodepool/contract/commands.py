"""Every command that the control plane carries out."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from nodepool.contract.availability import CapacitySelections
from nodepool.contract.messages import Command, OfCluster, OfMachine, OfOrg, OfPool, OfZone
from nodepool.contract.model import API_VERSION, KIND, Count, ManifestMetadata, NodePoolSpec
from nodepool.contract.pods import Pod, Seconds

MachineFault = Literal["boot", "registration", "silence", "hang"]
"""How a simulated machine fails: it does not boot, cannot join its cluster, never reports that it
has booted, or joins its cluster and reports nothing more: no cordon, no drain, no Pod."""
MACHINES_MAX = 500
"""The most machines that one command adds."""


class RegisterCluster(Command, OfCluster):
    """Registers a cluster.

    zone: the zone that it is in, which never changes.
    """

    zone: str


class ApplyNodePool(Command, OfPool):
    """Creates a NodePool, or changes it to what the manifest says; the data is the manifest itself.

    api_version, kind: the version and the type of the manifest.
    metadata: the name of the NodePool, and what else a manifest says about the object.
    spec: its desired state.
    status: accepted and ignored, so that an object can be applied as it was read.
    dry_run: with it nothing changes, and the outcome is what it would be.
    create_only: with it a NodePool that exists already is not changed, and the command is refused.
    """

    api_version: Literal["compute.coreweave.com/v1alpha1"] = API_VERSION
    kind: Literal["NodePool"] = KIND
    metadata: ManifestMetadata
    spec: NodePoolSpec
    status: dict[str, object] | None = Field(default=None, exclude=True)
    dry_run: bool = False
    create_only: bool = False


class ScaleNodePool(Command, OfPool):
    """Changes `spec.targetNodes` alone.

    target_nodes: how many Nodes the NodePool is to have.
    resource_version: refused where it is not the newest.
    dry_run: with it nothing changes, and the outcome is what it would be.
    """

    target_nodes: Count
    resource_version: str | None = None
    dry_run: bool = False


class DeleteNodePool(Command, OfPool):
    """Deletes every Node of a NodePool, then the NodePool.

    resource_version: refused where it is not the newest.
    dry_run: with it nothing changes, and the outcome is what it would be.
    """

    resource_version: str | None = None
    dry_run: bool = False


class SetQuota(Command, OfOrg):
    """Sets how many Nodes of a type an organisation may have in a zone, in all its clusters.

    zone, instance_type: what is limited.
    limit: the most Nodes.
    """

    zone: str
    instance_type: str
    limit: Count


class DeleteQuota(Command, OfOrg):
    """Unsets a limit, so that it is as if it had never been set: NodePools wait, none is removed.

    Refused as `NotFound` where no limit is set.

    zone, instance_type: what is limited.
    """

    zone: str
    instance_type: str


class FindCapacity(Command, OfOrg):
    """Asks which zones are likely to have so many spot Nodes now; changes and reserves nothing.

    The event `CapacityFound` answers it, with every General Access zone, the best first.

    selections: how many Nodes of which instance types; each type once, and no Superchip.
    """

    selections: CapacitySelections


class PreemptNode(Command, OfPool):
    """Preempts a spot Node: the seven minutes that it has left begin now.

    node: its name.
    """

    node: str


class AddMachines(Command, OfZone):
    """Adds simulated machines to a zone; their names are `g` and six hex digits, counted upwards.

    instance_type: their type.
    labels: their topology labels.
    count: how many.
    boot_seconds: how long each takes to boot, in seconds.
    """

    instance_type: str
    count: Annotated[int, Field(ge=1, le=MACHINES_MAX)]
    labels: Mapping[str, str] = {}
    boot_seconds: Annotated[float, Field(ge=0, le=86_400)] = 0


class RepairMachine(Command, OfMachine):
    """Makes a machine that is in triage free again."""


class BreakMachine(Command, OfMachine):
    """Makes a simulated machine fail the next times that it boots.

    fault: how it fails. A machine that is a Node already hangs at once.
    times: how many times; 0 ends it, and a machine that hangs answers again.
    cause: the cause that is reported.
    """

    fault: MachineFault
    times: Annotated[int, Field(ge=0, le=1_000_000)] = 1
    cause: str = ""


class RunPod(Command, OfMachine):
    """Starts a Pod on a simulated Node; refused where it is cordoned or in no cluster.

    pod: the Pod.
    """

    pod: Pod


class StopPod(Command, OfMachine):
    """Ends a Pod on a simulated Node, as if its work were done.

    name: the name of the Pod.
    """

    name: str


class CreatePod(Command, OfPool):
    """Creates a Pod that waits until a Node of the NodePool can take it; `PodChanged` tells of it.

    Refused where the NodePool does not exist, no Node of its instance type could ever take the Pod,
    its name is in use in the NodePool, or too many Pods wait there.

    pod: the Pod; none of a DaemonSet, and none that verifies a Node.
    """

    pod: Pod


class DeletePod(Command, OfPool):
    """Deletes a Pod that `CreatePod` created: one that runs ends after its grace period.

    name: its name.
    grace_s: the grace period in seconds, in place of the Pod's own; with 0 it is gone at once.
    """

    name: str
    grace_s: Seconds | None = None


class LockNode(Command, OfPool):
    """Takes the lock of a Node for a Slurm job: the prolog of the job.

    Pods that do not tolerate the lock are evicted; when the last of them is gone, `NodeLockChanged`
    says that the Node is locked. If the job has the lock or waits for it, that event is said again.
    Refused for a Node that another job has locked, that is not in production, or that leaves.

    node: its name.
    job: the id of the job.
    """

    node: str
    job: str


class UnlockNode(Command, OfPool):
    """Releases the lock of a Node, or ends the wait for it: the epilog of a Slurm job.

    Refused where another job has the lock; a Node without a lock stays as it is.

    node: its name.
    job: the id of the job that took the lock.
    """

    node: str
    job: str


COMMANDS = frozenset(
    kind.__name__
    for kind in (
        RegisterCluster,
        ApplyNodePool,
        ScaleNodePool,
        DeleteNodePool,
        SetQuota,
        DeleteQuota,
        FindCapacity,
        PreemptNode,
        AddMachines,
        RepairMachine,
        BreakMachine,
        RunPod,
        StopPod,
        CreatePod,
        DeletePod,
        LockNode,
        UnlockNode,
    )
)
"""The name of every command; a command of any other name is refused."""
