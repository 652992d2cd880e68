"""The parts of a Node object that the control plane owns, and the patch that sets them.

Marks that others have set stay when the control plane no longer asks for them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from agent.nodes.conditions import is_ready
from agent.nodes.objects import NodeObject, WantedNode
from agent.nodes.record import Managed
from agent.reading import Document, version_number
from nodepool.contract.grammar import reserved_namespace
from nodepool.contract.log import LogId
from nodepool.contract.model import CORDON, LOCK_TAINT, MANAGED_TAINTS, RESERVED, Taint
from nodepool.contract.pods import reserved_taint
from nodepool.contract.well_known import MANAGED

POOL_UID: Final = "compute.coreweave.com/node-pool-uid"
"""The label of a Node that holds the uid of its NodePool."""
STARTUP_TAINT: Final = Taint(key=RESERVED, value="booting", effect="NoSchedule")
"""Keeps Pods away from a Node until it has its own taints."""
STARTUP_TAINTS: Final = frozenset((STARTUP_TAINT, reserved_taint("onboard")))
"""The taints with which the kubelet of a machine of the control plane registers its Node."""

ALWAYS_MANAGED: Final = frozenset(taint.key for taint in MANAGED_TAINTS) - {CORDON.key}
"""The keys of the taints that belong to the control plane, even if somebody else set them."""


def lock_of(found: NodeObject, state: Managed) -> int:
    """Return the number of the lock whose taint a Node has; 0 without the taint."""
    has_taint = any((each.key, each.effect) == _LOCK for each in found.taints)
    return state.lock if has_taint else 0


_LOCK: Final = (LOCK_TAINT.key, LOCK_TAINT.effect)


def labels_of(wanted: WantedNode, pool_uid: str) -> Mapping[str, str]:
    """Return the labels that a Node needs, with the uid of its NodePool in the cluster, if any."""
    return {**wanted.labels, POOL_UID: pool_uid} if pool_uid else wanted.labels


def annotations_of(wanted: WantedNode) -> Mapping[str, str]:
    """Return the annotations that a Node needs, without the annotation that remembers them."""
    return {key: value for key, value in wanted.annotations.items() if key != MANAGED}


def taints_of(wanted: WantedNode) -> Sequence[Taint]:
    """Return the taints that a Node needs; Kubernetes itself sets the taint of a cordon."""
    return [taint for taint in wanted.taints if taint.key != CORDON.key]


def claim(
    wanted: WantedNode,
    log: LogId,
    before: Managed | None = None,
    conditions: Mapping[str, str] | None = None,
) -> Managed:
    """Return the record of a Node in its stay, with its conditions and nothing else made yet.

    before: what is remembered of the same stay.
    """
    # Take the earlier of the two positions in the stay: if the log was restored from a backup, the
    # remembered position may belong to a history of the log that is lost.
    known = (before.version if before is not None else 0, version_number(wanted.version))
    version = min((each for each in known if each), default=0)
    return Managed(log, wanted.assignment, version, conditions=conditions or {})


def is_of_stay(state: Managed, wanted: WantedNode, log: LogId) -> bool:
    """Whether what is remembered of a Node is of this stay of its machine, by the same log."""
    return (state.log, state.assignment) == (log, wanted.assignment)


def is_of_earlier_stay(state: Managed, wanted: WantedNode, log: LogId) -> bool:
    """Return whether an object is left of an earlier stay, so that it is no part of this one.

    False for a record of another log, and for a later stay, as after a restored backup: then the
    stay is not known.
    """
    return state.log == log and 0 < state.assignment < wanted.assignment


def adopt_record(state: Managed | None, wanted: WantedNode, log: LogId) -> Managed:
    """Return the record of a Node, as far as the record counts for this stay.

    Of a record of another log only the keys count: its numbers mean nothing in this log.
    """
    if state is None:
        return claim(wanted, log)
    if is_of_stay(state, wanted, log):
        return state
    return replace(
        claim(wanted, log),
        labels=state.labels,
        annotations=state.annotations,
        taints=state.taints,
    )


def build_record(
    wanted: WantedNode, pool_uid: str, claimed: Managed, unschedulable: bool | None, cordon: int
) -> Managed:
    """Return the record of a Node that has everything that the bus wants for it."""
    return replace(
        claimed,
        labels=tuple(sorted(labels_of(wanted, pool_uid))),
        annotations=tuple(sorted(annotations_of(wanted))),
        taints=tuple(sorted(taint_key(taint) for taint in taints_of(wanted))),
        unschedulable=unschedulable,
        cordon=cordon,
        lock=wanted.lock,
    )


def spec_marks(found: NodeObject, before: Managed, after: Managed) -> dict[str, object]:
    """Return the record to write with taints and cordon, as metadata of the same merge patch."""
    text = replace(after, labels=before.labels, annotations=before.annotations).text()
    return {} if found.annotations.get(MANAGED) == text else {"annotations": {MANAGED: text}}


def metadata_patch(
    found: NodeObject, before: Managed | None, wanted: WantedNode, pool_uid: str, after: Managed
) -> dict[str, object]:
    """Return the labels and annotations that a Node lacks, as the metadata of a merge patch."""
    old = before or Managed(LogId(""))
    annotations = {**annotations_of(wanted), MANAGED: after.text()}
    changes = {
        "labels": _changes(found.labels, labels_of(wanted, pool_uid), old.labels),
        "annotations": _changes(found.annotations, annotations, old.annotations),
    }
    return {name: change for name, change in changes.items() if change}


def _changes(
    found: Mapping[str, str], wanted: Mapping[str, str], before: Iterable[str]
) -> dict[str, str | None]:
    changes: dict[str, str | None] = {
        key: value for key, value in wanted.items() if found.get(key) != value
    }
    gone = (key for key in before if key in found and key not in wanted and key != MANAGED)
    return {**changes, **dict.fromkeys(gone)}


def has_startup_taint(found: NodeObject) -> bool:
    """Whether a kubelet of ours has registered a Node that the control plane has not taken yet.

    A Node that is reserved for something else, such as the control plane, is somebody else's.
    """
    return not STARTUP_TAINTS.isdisjoint(found.taints)


def loses_reservation(found: NodeObject, wanted: WantedNode) -> bool:
    """Return whether a taint of a Node that keeps Pods away is to go."""
    own = {taint_key(taint) for taint in taints_of(wanted)}
    return any(each.key == RESERVED and taint_key(each) not in own for each in found.taints)


def foreign_taints(found: NodeObject, state: Managed) -> Sequence[Taint]:
    """Return the taints of a Node that neither the control plane nor Kubernetes itself has set."""
    return [
        taint
        for taint in found.taints
        if taint.key not in ALWAYS_MANAGED
        and taint_key(taint) not in state.taints
        and not taint.key.startswith("node.kubernetes.io/")
    ]


def missing_taints(
    found: NodeObject, before: Managed | None, wanted: WantedNode
) -> list[Document] | None:
    """Return all taints that a Node needs, foreign taints in their order; None if it has them."""
    own = {taint_key(taint): taint for taint in taints_of(wanted)}
    if STARTUP_TAINT in found.taints and not is_ready(found):
        own.setdefault(taint_key(STARTUP_TAINT), STARTUP_TAINT)
    old = frozenset(before.taints) if before is not None else frozenset()
    after = []
    for taint in found.taints:
        key = taint_key(taint)
        if key in own:
            after.append(own.pop(key))
        elif taint.key not in ALWAYS_MANAGED and (key not in old or taint.key == CORDON.key):
            after.append(taint)
    after += own.values()
    return None if tuple(after) == found.taints else taint_documents(after, found.taints_added)


def taint_documents(taints: Iterable[Taint], added: Mapping[str, str]) -> list[Document]:
    """Return taints as in the spec of a Node, each with the moment from which the taint counts."""
    return [
        {
            "key": taint.key,
            "effect": taint.effect,
            **({"value": taint.value} if taint.value else {}),
            **({"timeAdded": added[taint_key(taint)]} if taint_key(taint) in added else {}),
        }
        for taint in taints
    ]


def taint_key(taint: Taint) -> str:
    """Return a taint as `key:effect`, which is unique on a Node."""
    return f"{taint.key}:{taint.effect}"


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
