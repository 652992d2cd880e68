"""What others have set on a Node: it stays when the control plane no longer asks for it."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from agent.bus import WantedNode
from agent.cluster import NodeObject
from agent.marks import ALWAYS_MANAGED, Managed, taint_key
from nodepool.contract.grammar import reserved_namespace


def without_foreign(
    after: Managed, before: Managed, found: NodeObject, wanted: WantedNode
) -> Managed:
    """Return the record without the keys that the Node already had with the wanted value.

    before: what is remembered. The keys of the platform are always the control plane's.
    """
    labels = _same(found.labels, wanted.labels, before.labels)
    annotations = _same(found.annotations, wanted.annotations, before.annotations)
    taints = {
        taint_key(each)
        for each in found.taints
        if each in wanted.taints and each.key not in ALWAYS_MANAGED
    }
    return replace(
        after,
        labels=tuple(key for key in after.labels if key not in labels),
        annotations=tuple(key for key in after.annotations if key not in annotations),
        taints=tuple(key for key in after.taints if key not in taints - {*before.taints}),
    )


def _same(
    found: Mapping[str, str], wanted: Mapping[str, str], before: Iterable[str]
) -> frozenset[str]:
    """Return the keys that already have the wanted value and that the control plane has not set."""
    same = (key for key, value in wanted.items() if found.get(key) == value)
    return frozenset(key for key in same if not reserved_namespace(key)) - {*before}
