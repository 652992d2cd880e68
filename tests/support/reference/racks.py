"""Racks as a second specification: what a NodePool can be given of them, and which may leave.

* A rack is `size` machines of one NVLink domain; machines without a domain have one in common.
* What a NodePool lacks of a rack comes first, the rack that lacks least before the others, and only
  all of it together, or all that its goal leaves. Whole racks follow, as many as it has fewer than
  its goal, by domain. A rack that is given up, or that it has beyond its target, gets none: of more
  racks than it wants, the fullest stay.
* It gives up racks while it has more than its target: those with the fewest Nodes.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from nodepool.contract.catalog import INSTANCE_TYPES

DOMAIN = "ds.coreweave.com/nvlink.domain"


def size_of(instance_type: str) -> int:
    """How many machines are a rack; 0 for a type that comes one by one, or is unknown."""
    kind = INSTANCE_TYPES.get(instance_type)
    return kind.rack_size if kind is not None else 0


def by_domain(labels: Iterable[Mapping[str, str]]) -> Counter[str]:
    """How many machines there are of each domain, from the labels of each."""
    return Counter(each.get(DOMAIN, "") for each in labels)


def parts(
    size: int, target: int, held: Mapping[str, int], leaving: Mapping[str, int]
) -> list[tuple[int, str]]:
    """What each rack lacks that stays in part, of `target` Nodes that are wanted in all."""
    stay = {domain: count - leaving.get(domain, 0) for domain, count in held.items()}
    lacks = sorted((-count % size, domain) for domain, count in stay.items() if count % size)
    whole = sum(count // size for count in stay.values())
    return lacks[: max(0, target // size - whole)]


def given(
    size: int,
    goal: int,
    held: Mapping[str, int],
    free: Mapping[str, int],
    lacking: Iterable[tuple[int, str]],
) -> Counter[str]:
    """How many machines of each domain a NodePool can be given that may have `goal` Nodes."""
    now, left, part = Counter(held), Counter(free), Counter[str]()

    def take(domain: str, count: int) -> None:
        for counts, change in ((now, count), (left, -count), (part, count)):
            counts[domain] += change

    for lack, domain in lacking:
        count = min(lack, goal - now.total())
        if 0 < count <= left[domain]:
            take(domain, count)
    for domain in sorted(left):
        while (
            left[domain] >= size and racks(size, now) < goal // size and now.total() + size <= goal
        ):
            take(domain, size)
    return +part


def racks(size: int, held: Mapping[str, int]) -> int:
    """How many racks there are, those included of which machines are missing."""
    return sum((count + size - 1) // size for count in held.values())


def surplus(size: int, target: int, held: Mapping[str, int]) -> int:
    """How many Nodes the racks have that are too many: the smallest ones."""
    sizes = sorted(
        each
        for count in held.values()
        for each in ([size] * (count // size) + [count % size] * (count % size > 0))
    )
    return sum(sizes[: max(0, len(sizes) - -(-target // size))])


def why(size: int, wanted: int, lacking: list[tuple[int, str]], free: Mapping[str, int]) -> str:
    """The end of a message that says why there are not enough racks."""
    named = [(lack, domain) for lack, domain in lacking if domain]
    texts = [
        f"NVLink domain {domain} lacks {lack} and has {free.get(domain, 0)} free"
        for lack, domain in named[:3]
    ]
    if more := len(named[3:]):
        texts.append("1 more domain lacks some" if more == 1 else f"{more} more domains lack some")
    labelled = [count for domain, count in free.items() if domain]
    if labelled and wanted > sum(lack for lack, _ in lacking):
        texts.append(f"of {sum(labelled)} free at most {max(labelled)} share an NVLink domain")
    return f", in racks of {size}" + (f": {'; '.join(texts)}" if texts else "")
