"""The rules that hold for each machine as its controller sees it, whatever faults happened."""

from collections.abc import Iterator, Sequence

from conformance.requests import CLUSTER, ORG, POOL
from metal.host.sending import RESETS
from nodepool.contract.events import CWNodeAssigned, MachineBooted, MachineWiped, PowerRequested
from redfish.site import Rig, Site
from support.constants import H100, ZONE


def stay_of(machine: str, assignment: int) -> CWNodeAssigned:
    """A stay of a machine in a NodePool."""
    return CWNodeAssigned(
        org=ORG,
        cluster=CLUSTER,
        pool=POOL,
        node=machine,
        zone=ZONE,
        assignment=assignment,
        uid="u",
        instance_type=H100,
        message="assigned",
    )


def audit(site: Site) -> None:
    """Raise AssertionError if a machine was reset without an intention, or handed over unwiped."""
    for rig in site.rigs.values():
        _audit_resets(rig, site.said(PowerRequested, rig.name))
        _audit_wipes(site, rig)


def _audit_resets(rig: Rig, requests: Sequence[PowerRequested]) -> None:
    """Raise AssertionError unless each reset has an intention, and no intention has two resets."""
    rest: Iterator[PowerRequested] = iter(requests)
    for number, kind in enumerate(rig.front.resets):
        of_it = next((each for each in rest if RESETS[each.action] == kind), None)
        assert of_it is not None, f"{rig.name}: no wish for reset {number} of {rig.front.resets}"
        assert kind != "On" or of_it.assignment or of_it.wipe or of_it.wish, f"{rig.name}: {of_it}"


def _audit_wipes(site: Site, rig: Rig) -> None:
    """Raise AssertionError if a stay boots a machine that was not wiped after an earlier stay."""
    wiped = {each.assignment for each in site.said(MachineWiped, rig.name)}
    booted = [each.assignment for each in site.said(MachineBooted, rig.name) if not each.boot]
    if site.wipes:
        assert {*booted[:-1]} <= wiped, f"{rig.name}: {booted} and wiped {wiped}"
        assert sum("wipe" in image for image in rig.booted) >= len(wiped)
