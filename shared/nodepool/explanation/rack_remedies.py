"""What would complete the racks of a NodePool whose instance type comes in whole racks.

A rack that lost some of its machines can only be completed by machines of its own NVLink domain. A
whole rack comes from a domain whose machines are all free.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from nodepool.contract.counting import format_count
from nodepool.explanation.facts import Domain, Facts
from nodepool.explanation.leaving import SCALE_DOWN, without_lost
from nodepool.explanation.outlook import count_pending, foresee_loss
from nodepool.explanation.remedies import (
    AddMachines,
    Remedy,
    RepairMachines,
    ReturnMachines,
    Wait,
)
from nodepool.explanation.sharing import down_to_racks, of_domain, rack_of, up_to_racks
from nodepool.placement.racks import Delivery, lacking

NAMED_MAX: Final = 18
"""The most machines to repair that are named: the machines of one rack."""
DOMAINS_MAX: Final = 3
"""The most NVLink domains that are named."""


def rack_details(facts: Facts) -> Iterator[str]:
    """Yield what each rack lacks that the NodePool has in part, and what could complete it."""
    for domain, missing in _parts(facts)[:DOMAINS_MAX]:
        found = _domains(facts).get(domain, Domain())
        wiped = f", {found.zap} being wiped" if found.zap else ""
        yield (
            f"{of_domain(domain)} lacks {format_count(missing)}; "
            f"{found.free} of its machines are free{wiped} and {len(found.triage)} out of service"
        )
    room = facts.allowed - facts.held
    if 0 < room < min((missing for _, missing in _parts(facts)), default=0):
        what = "target" if facts.allowed == facts.target else "quota"
        yield f"its {what} leaves room for {format_count(room)}, which completes none of its racks"


def rack_remedies(facts: Facts) -> Iterator[Remedy]:
    """Yield what completes the racks that the NodePool has in part, and gives it whole ones.

    A rack that lacks Nodes only once its unhealthy Nodes are gone comes last.
    """
    lacks_now, held = dict(_parts(facts)), _domains(facts)
    facts = without_lost(facts)
    shorts = sorted(_to_complete(facts), key=lambda short: short[0] not in lacks_now)[:DOMAINS_MAX]
    for domain, short in shorts:
        if domain in lacks_now:
            yield from _complete(facts, domain, short)
    size, domains = rack_of(facts), _domains(facts)
    begun = sum(up_to_racks(facts, domain.held) for domain in domains.values())
    # The machines may be known later than the Nodes.
    missing = min(facts.allowed - begun, facts.allowed - facts.held)
    if missing >= size:
        ends = any(each.held and not domains[name].held for name, each in held.items())
        yield from _whole_racks(facts, down_to_racks(facts, missing), ends_a_rack=ends)
    for domain, short in shorts:
        if domain not in lacks_now:
            yield from _complete(facts, domain, short, " once its unhealthy Nodes are gone")


def _complete(facts: Facts, domain: str, short: int, later: str = "") -> Iterator[Remedy]:
    """Yield what completes a rack that lacks `short` machines, now or `later`.

    Machines of its domain that are being wiped come by themselves.
    """
    found = _domains(facts).get(domain, Domain())
    ahead = _ahead(facts) if found.others else 0
    wiped = 0 if facts.has_affinity else found.zap
    count, names = short + ahead - wiped, found.triage
    before = f", up to {min(ahead, count)} of them for what is served before it" if ahead else ""
    if count <= 0:
        if not later:
            yield _await_wipe(wiped, f" of {of_domain(domain)}")
    elif len(names) >= count and not facts.has_affinity:
        yield _repair(names[:count], domain, later + before + foresee_loss(facts, domain))
    else:
        machines = (
            f"{format_count(count, 'machine')} of {of_domain(domain)}{_fitting(facts, count)}"
        )
        text = f"add {machines} to the zone{before}: no other completes its rack{later}"
        yield Remedy(text + foresee_loss(facts, domain), AddMachines(count, domain))


def _to_complete(facts: Facts) -> Iterator[tuple[str, int]]:
    """Yield the racks that more machines complete, as far as there is room, and how many they are.

    A rack gets Nodes only where all that it lacks, or that there is room for, can be had; see
    `deliveries` in `nodepool.placement.racks`. With a node affinity no free machine counts, since
    Facts do not say which machines satisfy the affinity.
    """
    room = facts.allowed - facts.held
    for domain, missing in _parts(facts):
        free = 0 if facts.has_affinity else _domains(facts).get(domain, Domain()).free
        count = min(missing, room)
        if count <= free:
            room -= max(0, count)
        else:
            yield domain, count - free


def _whole_racks(facts: Facts, missing: int, *, ends_a_rack: bool = False) -> Iterator[Remedy]:
    """Yield what gives the NodePool so many Nodes in whole racks, after all that is served before.

    What is served before takes whole racks of these machines. All else that it waits for completes
    racks of its own, with machines of their domains.

    ends_a_rack: whether a rack ends with its unhealthy Nodes, in whose place a free one can come.
    """
    size, ahead = rack_of(facts), down_to_racks(facts, _ahead(facts))
    # Facts do not say which machines satisfy a node affinity.
    known = {} if facts.has_affinity else _domains(facts)
    domains = {name: domain for name, domain in known.items() if not domain.held}
    free = sum(down_to_racks(facts, domain.free) for domain in domains.values())
    if free > ahead and ends_a_rack:
        there = f"{format_count(free - ahead, 'machine')} are free in whole racks"
        yield Remedy(f"wait until its unhealthy Nodes are gone: {there}", Wait())
    count = missing + ahead - free
    if count <= 0:
        return
    wiped = sum(down_to_racks(facts, each.free + each.zap) for each in domains.values()) - free
    count -= wiped
    if count <= 0:
        yield _await_wipe(wiped, " in whole racks")
        return
    if count == size:
        by_triage = sorted(
            (len(domain.triage), name)
            for name, domain in domains.items()
            if domain.triage and len(domain.triage) + domain.free + domain.zap == size
        )
        for _, name in by_triage[:1]:
            yield _repair(domains[name].triage, name)
    yield from _return(facts, count)
    which = _fitting(facts, count) or " of the type"
    text = f"add {format_count(count, 'machine')}{which} to the zone, in whole racks"
    if wiped:
        text += f"; {wiped} more are being wiped"
    yield Remedy(text, AddMachines(count, in_racks=True))


def _return(facts: Facts, count: int) -> Iterator[Remedy]:
    """Yield the return of `count` reclaimed machines, if an operator has as many whole racks."""
    machines = facts.machines
    if machines is None or facts.has_affinity or count_pending(machines):
        return
    out = rack_of(facts) * sum(domain.held_out > 0 for domain in machines.domains.values())
    if count + out <= machines.to_reclaim == down_to_racks(facts, machines.reclaimed):
        reclaimed = format_count(machines.to_reclaim, "reclaimed machine")
        yield Remedy(f"return {count} of {reclaimed}", ReturnMachines(count))


def _await_wipe(count: int, which: str) -> Remedy:
    verb = "is" if count == 1 else "are"
    return Remedy(f"wait: {format_count(count, 'machine')}{which} {verb} being wiped", Wait())


def _ahead(facts: Facts) -> int:
    """Return how many machines what is served before may take of those that come."""
    return max(0, facts.machines_needed + facts.spot_awaited - (facts.allowed - facts.held))


def _fitting(facts: Facts, count: int) -> str:
    """Return which machines help a NodePool with a node affinity; empty for a NodePool without."""
    verb = "satisfies" if count == 1 else "satisfy"
    return f" that {verb} the node affinity" if facts.has_affinity else ""


def _repair(names: tuple[str, ...], domain: str, before: str = "") -> Remedy:
    noun = "machine" if len(names) == 1 else "machines"
    text = f"repair {noun} {', '.join(names[:NAMED_MAX])} of {of_domain(domain)}{before}"
    return Remedy(text, RepairMachines(len(names), names))


def _parts(facts: Facts) -> list[Delivery]:
    """Return what completes the racks that the NodePool has in part, without those that leave."""
    size = rack_of(facts)
    if size == 1:
        return []
    held = {name: domain.held for name, domain in _domains(facts).items()}
    leaving = Counter(node.domain for node in facts.counted_nodes if node.removal == SCALE_DOWN)
    return lacking(size, facts.target // size, held, leaving)


def _domains(facts: Facts) -> Mapping[str, Domain]:
    return facts.machines.domains if facts.machines is not None else {}
