"""A whole cell on a site: a NodePool of real machines, from its manifest to Nodes and back."""

from collections.abc import Iterator
from contextlib import contextmanager

from bus.harness import ReplicaProcess
from nodepool.contract.commands import (
    ApplyNodePool,
    DeleteNodePool,
    RegisterCluster,
    SetQuota,
)
from nodepool.contract.events import (
    CWNodeDeleted,
    CWNodeRegistered,
    MachineAdded,
    MachineBooted,
    MachineWiped,
    NodeVerified,
    PowerAnswered,
    PowerRequested,
)
from nodepool.contract.model import ManifestMetadata, NodePoolSpec
from redfish.audit import audit
from redfish.site import Site
from support.constants import CLUSTER, H100, ORG, ZONE

POOL = "train"


@contextmanager
def at_work(site: Site, *, hurry: bool = True) -> Iterator[ReplicaProcess]:
    """Every service of a cell at work, and the provider of real machines."""
    with site.services(), site.process(hurry=hurry) as process:
        yield process


async def make_nodes(site: Site, nodes: int, within_s: float) -> None:
    """Create a NodePool with a number of Nodes; return once each Node is in production."""
    spec = NodePoolSpec(instance_type=H100, target_nodes=nodes)
    await site.tell(
        RegisterCluster(org=ORG, cluster=CLUSTER, zone=ZONE),
        SetQuota(org=ORG, zone=ZONE, instance_type=H100, limit=nodes),
        ApplyNodePool(
            org=ORG, cluster=CLUSTER, pool=POOL, metadata=ManifestMetadata(name=POOL), spec=spec
        ),
    )
    await site.expect(MachineBooted, count=nodes, within_s=within_s)
    await site.expect(CWNodeRegistered, count=nodes, within_s=within_s)
    await site.expect(NodeVerified, count=nodes, within_s=within_s, passed=True)


async def remove_nodes(site: Site, nodes: int, within_s: float) -> None:
    """Delete the NodePool; return once each of its machines is wiped and off."""
    await site.tell(DeleteNodePool(org=ORG, cluster=CLUSTER, pool=POOL))
    await site.expect(CWNodeDeleted, count=nodes, within_s=within_s)
    resets = 2 * len(site.rigs) + 4 * nodes
    await site.expect(MachineWiped, count=len(site.rigs) + nodes, within_s=within_s)
    await site.expect(PowerAnswered, count=resets, within_s=within_s, outcome="done")


def audit_round(site: Site, nodes: int) -> None:
    """Raise AssertionError unless each Node took four resets, after the two of a new machine."""
    machines, resets = len(site.rigs), 2 * len(site.rigs) + 4 * nodes
    histories = sorted((rig.front.carried_out for rig in site.rigs.values()), key=len)
    assert histories == [["On", "ForceOff"]] * (machines - nodes) + [["On", "ForceOff"] * 3] * nodes
    assert len(site.said(PowerRequested)) == resets
    assert len(site.said(PowerAnswered, outcome="done")) == resets
    assert len(site.said(MachineAdded)) == machines
    audit(site)
