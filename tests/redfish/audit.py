"""The rules that hold for each machine as its controller sees it, whatever faults happened."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import NamedTuple

from yarl import URL

from metal.host.sending import RESETS
from nodepool.contract.events import (
    MachineBooted,
    MachineWiped,
    PowerAnswered,
    PowerOverdue,
    PowerRequested,
)
from redfish.site import WIPED, Rig, Site


@dataclass
class Intention:
    """A power request of the log, and the resets of its machine that arrived while it was open.

    begins, ends: when it was stored, and when the log says that it is overdue; None if it does not.
    outcome: what its process has said of it; empty if it has said nothing.
    resets: each reset by its kind, and whether it reached the machine.
    """

    request: PowerRequested
    begins: datetime
    ends: datetime | None = None
    outcome: str = ""
    resets: list[tuple[str, bool]] = field(default_factory=list)

    def find_faults(self) -> Iterator[str]:
        """Yield what is wrong: at most one reset, of its kind; one if done, no effect if not."""
        kinds = [kind for kind, _ in self.resets]
        effects = sum(has_effect for _, has_effect in self.resets)
        if len(kinds) > 1 or set(kinds) - {RESETS[self.request.action]}:
            yield f"request {self.request.number} ({self.request.action}) has the resets {kinds}"
        if self.outcome == "done" and effects != 1:
            yield f"request {self.request.number} is done, and has {effects} effects"
        if self.outcome == "refused" and effects:
            yield f"request {self.request.number} is refused, and has {effects} effects"
        is_wanted = self.request.assignment or self.request.wipe or self.request.wish
        if self.request.action == "on" and not is_wanted:
            yield f"request {self.request.number} powers on for nobody"


def audit(site: Site) -> None:
    """Raise AssertionError if a machine was reset without an intention, or handed over unwiped."""
    for rig in site.rigs.values():
        assert find_faults(list_intentions(site, rig.name), list_resets(rig)) == [], rig.name
        _audit_wipes(site, rig)
        assert not rig.is_wiped or all(h.is_wiped for h in list_handovers(rig.history)), rig.name


def list_intentions(site: Site, machine: str) -> list[Intention]:
    """The power requests of a machine, in the order of the log, without their resets."""
    answers = {each.number: each.outcome for each in site.said(PowerAnswered, machine)}
    overdue = {each.number: at for at, each in site.dated(PowerOverdue, machine)}
    return [
        Intention(
            request,
            begins=at,
            ends=overdue.get(request.number),
            outcome=answers.get(request.number, ""),
        )
        for at, request in site.dated(PowerRequested, machine)
    ]


def list_resets(rig: Rig) -> list[tuple[datetime, str, bool]]:
    """When each reset arrived at a machine, its kind, and whether it reached the machine."""
    arrived = zip(rig.front.arrivals, rig.front.resets, strict=True)
    return [(at, kind, n in rig.front.effects) for n, (at, kind) in enumerate(arrived)]


def find_faults(
    intentions: Sequence[Intention], resets: Sequence[tuple[datetime, str, bool]]
) -> list[str]:
    """What is wrong with the resets of one machine.

    A reset belongs to the last request that was stored before it arrived.
    """
    faults = []
    for number, (at, kind, has_effect) in enumerate(resets):
        begun = [each for each in intentions if each.begins <= at]
        if not begun or (begun[-1].ends or at) < at:
            faults.append(f"reset {number} ({kind}) arrived while no request was open")
            continue
        begun[-1].resets.append((kind, has_effect))
    return [*faults, *(fault for each in intentions for fault in each.find_faults())]


class Handover(NamedTuple):
    """A machine boots for another organisation than before. is_wiped: whether it was wiped."""

    before: str
    after: str
    is_wiped: bool


def list_handovers(history: Sequence[str]) -> list[Handover]:
    """Each handover of a machine, as the machine itself has seen it.

    An image names its organisation as `org`. A wipe counts once its report was accepted.
    """
    found, running, owner, is_wiped = list[Handover](), "", "", False
    for each in history:
        if each == WIPED:
            is_wiped = "wipe" in running
            continue
        running = each
        after = URL(each).query.get("org", "")
        if not after:
            continue
        if owner not in ("", after):
            found.append(Handover(owner, after, is_wiped))
        owner, is_wiped = after, False
    return found


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
