"""A whole cell on a site: a NodePool of real machines, from its manifest to Nodes and back."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from bus.harness import ReplicaProcess
from nodepool.contract.commands import (
    ApplyNodePool,
    DeleteNodePool,
    RegisterCluster,
    SetQuota,
)
from nodepool.contract.commands_metal import MaintainMachine
from nodepool.contract.events import (
    CWNodeDeleted,
    CWNodeRegistered,
    MachineAdded,
    MachineBooted,
    MachineStateChanged,
    MachineWiped,
    NodeVerified,
    PowerAnswered,
    PowerRequested,
)
from nodepool.contract.model import ManifestMetadata, NodePoolSpec
from redfish.audit import audit
from redfish.site import NODE_IMAGE, Site
from support.constants import CLUSTER, H100, ORG, ZONE


@dataclass(frozen=True)
class Tenant:
    """An organisation with one cluster and one NodePool there."""

    org: str = ORG
    cluster: str = CLUSTER
    pool: str = "train"

    @property
    def boot(self) -> dict[str, object]:
        """What machines boot for this cluster; the address of the image names the organisation."""
        image = f"{NODE_IMAGE}?org={self.org}"
        return {"image": image, "org": self.org, "cluster": self.cluster}


FIRST, SECOND = Tenant(), Tenant("beta", "dev", "serve")


@contextmanager
def at_work(site: Site, *, hurry: bool = True) -> Iterator[ReplicaProcess]:
    """Every service of a cell at work, and the provider of real machines."""
    with site.services(), site.process(hurry=hurry) as process:
        yield process


async def make_nodes(site: Site, nodes: int, within_s: float, tenant: Tenant = FIRST) -> None:
    """Create a NodePool with a number of Nodes; return once each Node is in production."""
    org, cluster, pool = tenant.org, tenant.cluster, tenant.pool
    booted, verified = len(site.said(MachineBooted)), len(site.said(NodeVerified, passed=True))
    await site.tell(
        RegisterCluster(org=org, cluster=cluster, zone=ZONE),
        SetQuota(org=org, zone=ZONE, instance_type=H100, limit=nodes),
        ApplyNodePool(
            org=org,
            cluster=cluster,
            pool=pool,
            metadata=ManifestMetadata(name=pool),
            spec=NodePoolSpec(instance_type=H100, target_nodes=nodes),
        ),
    )
    await site.expect(MachineBooted, count=booted + nodes, within_s=within_s)
    await site.expect(CWNodeRegistered, count=nodes, within_s=within_s, org=org)
    await site.expect(NodeVerified, count=verified + nodes, within_s=within_s, passed=True)


async def remove_nodes(site: Site, nodes: int, within_s: float) -> None:
    """Delete the first NodePool; return once each of its machines is wiped and off."""
    await site.tell(DeleteNodePool(org=FIRST.org, cluster=FIRST.cluster, pool=FIRST.pool))
    await site.expect(CWNodeDeleted, count=nodes, within_s=within_s)
    resets = 2 * len(site.rigs) + 4 * nodes
    await site.expect(MachineWiped, count=len(site.rigs) + nodes, within_s=within_s)
    await site.expect(PowerAnswered, count=resets, within_s=within_s, outcome="done")


async def keep_unused_back(site: Site, within_s: float) -> None:
    """Take each machine that no NodePool has had into maintenance; return once none is free."""
    used = {each.machine for each in site.said(MachineBooted)}
    unused = [name for name in site.rigs if name not in used]
    await site.tell(*(MaintainMachine(zone=ZONE, machine=name, reason="spare") for name in unused))
    await site.expect(MachineStateChanged, count=len(unused), within_s=within_s, state="debug")


def audit_round(site: Site, nodes: int) -> None:
    """Raise AssertionError unless each Node took four resets, after the two of a new machine."""
    machines, resets = len(site.rigs), 2 * len(site.rigs) + 4 * nodes
    histories = Counter(tuple(rig.front.carried_out) for rig in site.rigs.values())
    wanted = {("On", "ForceOff"): machines - nodes, ("On", "ForceOff") * 3: nodes}
    assert histories == wanted, histories
    assert len(site.said(PowerRequested)) == resets
    assert len(site.said(PowerAnswered, outcome="done")) == resets
    assert len(site.said(MachineAdded)) == machines
    audit(site)
