"""The status of a NodePool object: from the read model, but with generations of the object."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from agent.actions import Patch
from agent.pools.objects import PoolObject, WantedPool, merge_patch, read_spec
from agent.reading import Document
from nodepool.contract.conditions import Validated
from nodepool.contract.model import NodePoolSpec
from nodepool.contract.progress import STALLED

CONDITION: Final = (
    "lastTransitionTime",
    "message",
    "observedGeneration",
    "reason",
    "status",
    "type",
)
"""The fields of a condition that the status of the object shows."""
COUNTS: Final = ("currentNodes", "inProgress")
TEXTS: Final = ("nodeProfile",)
COUNTED: Final = ("rackStatus", "otherNodeProfiles")
"""The fields that are counts by name."""
OPTIONAL: Final = (
    "queuedNodes",
    "awaitedSpotNodes",
    "queuePosition",
    "machinesNeeded",
    "missingNodes",
)


def shown_status(
    bus: WantedPool, cluster: PoolObject, agreed_generation: int, *, is_same_spec: bool
) -> Document:
    """Return the status of the read model as the object shows it.

    A condition claims the object's generation only where it was judged for the spec that the object
    has: what waits for a condition ignores those of an older generation. The deletion of an object
    is a generation of its own, in which its spec counts no more.

    agreed_generation: the object's generation when both sides agreed last; 0 where they have not.
    is_same_spec: whether the object has the spec that the bus has.
    """
    older = min(agreed_generation, cluster.generation - 1)

    def generation(observed: object) -> int:
        if cluster.deleting:
            return cluster.generation
        return cluster.generation if is_same_spec and observed == bus.generation else older

    status: dict[str, object] = {
        "conditions": [
            {
                **_choose_fields(condition),
                "observedGeneration": generation(_read_observed_generation(condition)),
            }
            for condition in _conditions(bus.status)
        ],
        # Show it before the first evaluation too: tools treat an object without it as current.
        "observedGeneration": generation(_read_observed_generation(bus.status)),
    }
    status |= {name: _count(bus.status, name) or 0 for name in COUNTS}
    status |= {name: count for name in OPTIONAL if (count := _count(bus.status, name))}
    granted = _count(bus.status, "grantedNodes")
    if granted is not None and granted != _target(bus.spec):
        status["grantedNodes"] = granted
    return {**status, **_sections(bus.status)}


def _sections(status: Document) -> Document:
    """Return the fields of a status that are texts or objects of their own."""
    shown: dict[str, object] = {name: status[name] for name in TEXTS if name in status}
    for field in COUNTED:
        counts = status.get(field)
        if isinstance(counts, Mapping):
            shown[field] = {str(name): count for name, count in counts.items()}
    autoscaled = status.get("autoscaled")
    if isinstance(autoscaled, Mapping):
        names = ("message", "since")
        shown["autoscaled"] = {name: str(autoscaled.get(name, "")) for name in names}
    return shown


def invalid_status(cluster: PoolObject, message: str) -> Document:
    """Return the status of an object that the bus does not take: Validated is False."""
    validated = {
        "lastTransitionTime": _since(cluster),
        "message": message,
        "observedGeneration": cluster.generation,
        "reason": Validated.INVALID.value,
        "status": "False",
        "type": Validated.__name__,
    }
    return {
        "conditions": [validated, {**validated, "status": "True", "type": STALLED}],
        "observedGeneration": cluster.generation,
        **dict.fromkeys(COUNTS, 0),
    }


def status_patches(cluster: PoolObject, status: Document) -> Sequence[Patch]:
    """Return the patch that gives an object a status; nothing if the object has the status."""
    patch = merge_patch(cluster.status, status)
    if not patch:
        return ()
    return (Patch("NodePool", cluster.name, {"status": patch}, "status"),)


def is_progress(patch: Document, status: Document) -> bool:
    """Return whether a patch of a status changes only counts and messages, and no verdict."""
    after = {**status, **patch}
    return _verdicts(after) == _verdicts(status) and "observedGeneration" not in patch


def _verdicts(status: Document) -> set[tuple[object, ...]]:
    names = ("type", "status", "reason", "observedGeneration")
    return {tuple(each.get(name) for name in names) for each in _conditions(status)}


def _since(cluster: PoolObject) -> str:
    """Return since when Validated is False: the recorded time, or the creation of the object."""
    for condition in _conditions(cluster.status):
        if condition.get("type") == Validated.__name__ and condition.get("status") == "False":
            return str(condition.get("lastTransitionTime", cluster.created))
    return cluster.created


def _conditions(status: Document) -> Iterator[Document]:
    conditions = status.get("conditions")
    if isinstance(conditions, list | tuple):
        yield from (each for each in conditions if isinstance(each, Mapping))


def _read_observed_generation(condition: Document) -> object:
    return condition.get("observedGeneration")


def _choose_fields(condition: Document) -> dict[str, object]:
    return {name: condition[name] for name in CONDITION if name in condition}


def _count(status: Document, name: str) -> int | None:
    value = status.get(name)
    return value if type(value) is int else None


def _target(spec: Document) -> int | None:
    read = read_spec(spec)
    return read.target if isinstance(read, NodePoolSpec) else None
