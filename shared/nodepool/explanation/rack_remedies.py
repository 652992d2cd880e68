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
from nodepool.explanation.remedies import AddMachines, Remedy, RepairMachines, Wait
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
        yield (
            f"{of_domain(domain)} lacks {format_count(missing)}; "
            f"{found.free} of its machines are free and {len(found.triage)} out of service"
        )
    room = facts.allowed - facts.held
    if 0 < room < min((missing for _, missing in _parts(facts)), default=0):
        what = "target" if facts.allowed == facts.target else "quota"
        yield f"its {what} leaves room for {format_count(room)}, which completes none of its racks"


def rack_remedies(facts: Facts) -> Iterator[Remedy]:
    """Yield what completes the racks that the NodePool has in part, or gives it whole ones.

    A rack that lacks Nodes only once its unhealthy Nodes are gone comes last.
    """
    lacks_now = dict(_parts(facts))
    facts = without_lost(facts)
    shorts = sorted(_to_complete(facts), key=lambda short: short[0] not in lacks_now)
    for domain, short in shorts[:DOMAINS_MAX]:
        found = _domains(facts).get(domain, Domain())
        ahead = _ahead(facts) if found.others else 0
        count, names = short + ahead, found.triage
        before = f", up to {ahead} of them for what is served before it" if ahead else ""
        later = "" if domain in lacks_now else " once its unhealthy Nodes are gone"
        if count <= found.zap and not (later or facts.has_affinity):
            wiped = f"{format_count(found.zap, 'machine')} of {of_domain(domain)}"
            verb = "is" if found.zap == 1 else "are"
            yield Remedy(f"wait: {wiped} {verb} being wiped", Wait())
        elif len(names) >= count and not facts.has_affinity:
            yield _repair(names[:count], domain, later + before)
        else:
            machines = (
                f"{format_count(count, 'machine')} of {of_domain(domain)}{_fitting(facts, count)}"
            )
            text = f"add {machines} to the zone{before}: no other completes its rack{later}"
            yield Remedy(text, AddMachines(count, domain))
    size = rack_of(facts)
    begun = sum(up_to_racks(facts, domain.held) for domain in _domains(facts).values())
    # The machines may be known later than the Nodes.
    missing = min(facts.allowed - begun, facts.allowed - facts.held)
    if missing >= size:
        yield from _whole_racks(facts, down_to_racks(facts, missing))


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


def _whole_racks(facts: Facts, missing: int) -> Iterator[Remedy]:
    """Yield what gives the NodePool so many Nodes in whole racks, after all that is served before.

    What is served before takes whole racks of these machines. All else that it waits for completes
    racks of its own, with machines of their domains.
    """
    size, domains = rack_of(facts), _domains(facts)
    count = missing + down_to_racks(facts, _ahead(facts))
    if count == size and not facts.has_affinity:
        by_triage = sorted(
            (len(domain.triage), name)
            for name, domain in domains.items()
            if domain.triage and not domain.held and len(domain.triage) + domain.free == size
        )
        for _, name in by_triage[:1]:
            yield _repair(domains[name].triage, name)
    which = _fitting(facts, count) or " of the type"
    text = f"add {format_count(count, 'machine')}{which} to the zone, in whole racks"
    yield Remedy(text, AddMachines(count))


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
