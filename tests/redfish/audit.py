"""The rules that hold for each machine as its controller sees it, whatever faults happened."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

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
    if not site.wipes:
        return
    wiped = {each.assignment: at for at, each in site.placed(MachineWiped, rig.name)}
    booted = [(at, each) for at, each in site.placed(MachineBooted, rig.name) if not each.boot]
    for (_, last), (at, following) in pairwise(booted):
        text = f"{rig.name}: {following.assignment} has booted, and {last.assignment} is not wiped"
        assert wiped.get(last.assignment, at) < at, text
    # As the machine itself saw it: between two boots for NodePools lies a boot of the wipe.
    images = ["wipe" if "wipe" in each else "node" for each in rig.booted if each]
    stays = sum(each.boot == 0 for _, each in booted)
    assert images.count("wipe") >= len(wiped) >= stays - 1, f"{rig.name}: {images}"
