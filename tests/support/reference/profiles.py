"""Node configurations as a second specification: with which one each Node was booted.

* The active one of a NodePool is `<instanceType>/<image>` of its newest spec: the name of the image
  or `default`, then `:<kernel>`, then `@latest` on the latest release train.
* A Node has the one that was active when it was assigned, or when its last reboot was over.
* A NodePool counts its Nodes of each other one.

From the log: which spec was stored before a Node was assigned or has booted.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from nodepool.contract.events import (
    CWNodeAssigned,
    CWNodePoolDeleted,
    NodePoolValidated,
    NodeUpdated,
)
from nodepool.contract.model import NodePoolSpec
from nodepool.engine.world import World
from support.documents import documents_of
from support.reference.history import History
from support.reference.pools import Expected


def faults(world: World, history: History, expected: Expected) -> Iterator[str]:
    """Each configuration that is not shown, or shown wrongly, as a sentence."""
    booted = _booted(history)
    counts: dict[str, Counter[str]] = {}
    for key, node in _shown(world, "nodes").items():
        status = node["status"]
        shown, (pool, wanted) = status.get("nodeProfile", ""), booted[status["assignment"]]
        if shown != wanted:
            yield f"the Node {key} shows the profile {shown!r}, and was booted with {wanted!r}"
        counts.setdefault(pool, Counter())[wanted] += 1
    for key, document in _shown(world, "nodepools").items():
        desired = expected.pools.get(key)
        if desired is None or desired.deleting:
            continue
        active = _profile(desired.spec)
        others = {name: count for name, count in counts.get(key, {}).items() if name != active}
        status = document["status"]
        found = status["nodeProfile"], status.get("otherNodeProfiles", {})
        if found != (active, others):
            yield f"{key} shows the profiles {found}, and has {(active, others)}"


def _shown(world: World, bucket: str) -> Mapping[str, Any]:
    return documents_of(world, bucket)


def _profile(spec: NodePoolSpec) -> str:
    image = spec.image
    name = (image.name if image else "") or "default"
    kernel = f":{image.kernel}" if image and image.kernel else ""
    train = "@latest" if image and image.release_train.value == "latest" else ""
    return f"{spec.instance_type}/{name}{kernel}{train}"


def _booted(history: History) -> Mapping[int, tuple[str, str]]:
    """Return the NodePool of each Node by its assignment, and what it was booted with last."""
    active: dict[str, str] = {}
    booted: dict[int, tuple[str, str]] = {}
    boots: dict[int, int] = {}
    for stored in history.messages:
        match stored.message:
            case NodePoolValidated(key=key, spec=spec):
                active[key] = _profile(spec)
            case CWNodePoolDeleted(key=key):
                active.pop(key, None)
            case CWNodeAssigned(key=key, assignment=assignment):
                booted[assignment] = key, active[key]
            case NodeUpdated(key=key, assignment=number, boot=boot) if number in booted:
                if boot != boots.get(number, 0) and key in active:
                    booted[number] = key, active[key]
                boots[number] = boot
            case _:
                pass
    return booted
