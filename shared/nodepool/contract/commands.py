"""Every command that the control plane carries out."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from nodepool.contract.availability import CapacitySelections
from nodepool.contract.commands_metal import (  # noqa: F401  # As all below.
    MaintainMachine,
    SetMachinePower,
    VerifyMachine,
)
from nodepool.contract.commands_slurm import LockNode, UnlockNode  # noqa: F401  # As all below.
from nodepool.contract.commands_spot import (  # noqa: F401  # As all below.
    AcknowledgePreemption,
    ReclaimCapacity,
    ReturnCapacity,
)
from nodepool.contract.health import NodeFault
from nodepool.contract.messages import Command, OfCluster, OfMachine, OfOrg, OfPool, OfZone
from nodepool.contract.model import API_VERSION, KIND, Count, ManifestMetadata, NodePoolSpec
from nodepool.contract.pods import Pod, Seconds

WipeFault = Literal["wipe", "wipe-hang"]
"""How the wipe of a simulated machine fails: at its end, or because it does not end in an hour."""
MachineFault = Literal[
    "boot", "registration", "silence", "hang", "verification", NodeFault, WipeFault
]
"""How a simulated machine fails: it does not boot, cannot join its cluster, never reports that it
has booted, joins its cluster and reports nothing more (no cordon, no drain, no Pod), or does not
pass its verification. Others come while it is a Node; `contract.health` says what they are. The
last two come when it is wiped."""
UID_MAX = 63
"""The most characters of the uid of a Kubernetes; Kubernetes itself makes UUIDs of 36."""
MACHINES_MAX = 500
"""The most machines that one command adds."""


class RegisterCluster(Command, OfCluster):
    """Registers a cluster.

    zone: the zone that it is in, which never changes.
    kubernetes: whether an agent connects it to Kubernetes, which then has its Nodes and Pods; once
        True it stays so.
    kubernetes_uid: which Kubernetes that is: the uid of its namespace `kube-system`; empty where
        that is not known. Refused where it is not the one that is registered.
    replaces: the one that is registered, where this one takes its place for good.
    """

    zone: str
    kubernetes: bool = False
    kubernetes_uid: str = Field(default="", max_length=UID_MAX)
    replaces: str = Field(default="", max_length=UID_MAX)


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
    """Changes `spec.targetNodes` alone, or `spec.targetRacks` of a NodePool that has that.

    target_nodes: how many Nodes the NodePool is to have; with racks a multiple of the rack's size.
    resource_version: refused where it is not the newest.
    dry_run: with it nothing changes, and the outcome is what it would be.
    """

    target_nodes: Count
    resource_version: str | None = None
    dry_run: bool = False


class DeleteNodePool(Command, OfPool):
    """Deletes every Node of a NodePool, then the NodePool.

    resource_version: refused where it is not the newest.
    uid: refused where the NodePool is another one, made again under the same name.
    dry_run: with it nothing changes, and the outcome is what it would be.
    """

    resource_version: str | None = None
    uid: str | None = None
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


class CordonNode(Command, OfPool):
    """Cordons a Node: nothing new is scheduled there, until `UncordonNode`.

    node: its name.
    reason: what `node.coreweave.cloud/cordonReason` names as its cause; without commas.
    """

    node: str
    reason: str = "AdminCordon"


class UncordonNode(Command, OfPool):
    """Takes back what was asked for a Node: its cordon, its drain, its reboot.

    Refused where the Node is cordoned for other causes only, which have to end by themselves.

    node: its name.
    """

    node: str


class DrainNode(Command, OfPool):
    """Cordons a Node and ends what runs there; an unhealthy one is then cured, or replaced.

    node: its name.
    force: whether no Pod may block the drain; Pods keep their grace period.
    reason: as in `CordonNode`.
    """

    node: str
    force: bool = False
    reason: str = "AdminDrain"


class RebootNode(Command, OfPool):
    """Reboots a Node in its NodePool, once nothing runs there that blocks; not cordoned until then.

    node: its name.
    force: whether its power is reset at once, whatever runs there.
    """

    node: str
    force: bool = False


class ReserveNode(Command, OfPool):
    """Changes what a Node is reserved for; nothing new is scheduled there until that is so.

    It changes once nothing runs there.

    node: its name.
    reserved_desired: `control-plane`, or the organisation of the NodePool.
    """

    node: str
    reserved_desired: str


class AddMachines(Command, OfZone):
    """Adds simulated machines to a zone; their names are `g` and six hex digits, counted upwards.

    instance_type: their type.
    labels: their topology labels.
    count: how many.
    boot_seconds: how long each takes to boot, in seconds.
    verify_seconds: how long each is verified after a boot, in seconds; 0 for no verification.
    failures_per_day: how often each fails while it is a Node, on average; 0 for never.
    repair_seconds: how long each is in triage until it is free again, in seconds; 0 for ever.
    wipe_seconds: how long each is wiped after a stay in a NodePool, in seconds; 0 for no wipe.
    seed: makes the failures of these machines others than those of machines with another seed.
    in_racks: whether each rack of them gets an NVLink domain of its own, as the topology label
        `ds.coreweave.com/nvlink.domain`; `count` is then a multiple of the rack's size.
    """

    instance_type: str
    count: Annotated[int, Field(ge=1, le=MACHINES_MAX)]
    labels: Mapping[str, str] = {}
    boot_seconds: Annotated[float, Field(ge=0, le=86_400)] = 0
    verify_seconds: Annotated[float, Field(ge=0, le=3_600)] = 0
    failures_per_day: Annotated[float, Field(ge=0, le=1_000)] = 0
    repair_seconds: Annotated[float, Field(ge=0, le=2_592_000)] = 0
    wipe_seconds: Annotated[float, Field(ge=0, le=3_600)] = 0
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    in_racks: bool = False


class RepairMachine(Command, OfMachine):
    """Makes a machine that is in triage free again, after a wipe if it is wiped after each stay."""


class BreakMachine(Command, OfMachine):
    """Makes a simulated machine fail the next times that it boots, or is wiped.

    fault: how it fails. A machine that is a Node already hangs at once, and has any fault at once
        that comes while it is a Node; one that hangs has it from its next boot on. A fault of a
        wipe comes with its next wipe.
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


COMMANDS = frozenset(
    name
    for name, kind in tuple(globals().items())
    if isinstance(kind, type) and issubclass(kind, Command) and kind is not Command
)
"""The name of every command; a command of any other name is refused."""
