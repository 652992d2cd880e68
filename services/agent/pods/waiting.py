"""Pods that the scheduler cannot place, and what each Pod requires of a Node."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Final, NamedTuple

from agent.pods.objects import gpus_asked_for, is_daemon_set, tolerations
from agent.pods.quantities import asked_for
from agent.reading import Document, UnreadableDocument, part, parts, text, texts
from nodepool.contract.affinity import NodeSelectorRequirement, holds
from nodepool.contract.model import Taint
from nodepool.contract.pods import ACCELERATOR, GPU, Toleration, find_repelling_taint

Term = tuple[NodeSelectorRequirement, ...]
"""Requirements that the labels of a Node must all meet; no Node meets an empty term."""

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


class Requests(NamedTuple):
    """The resources that a Pod requests.

    gpus, accelerators: how many GPUs, under each of the two resource names.
    cpu, memory: how many CPUs, and how many bytes of memory.
    """

    gpus: int
    accelerators: int = 0
    cpu: Decimal = Decimal(0)
    memory: Decimal = Decimal(0)


@dataclass(frozen=True, slots=True)
class Demand:
    """What a Pod requires of its Node; Pods of one template have equal demands.

    requests: the resources that it requests.
    selector: the labels that the Node must have, sorted by key.
    terms: the Node must also meet at least one of these terms; None if there are no terms.
    tolerations: the taints that it tolerates.
    """

    requests: Requests
    selector: tuple[tuple[str, str], ...] = ()
    terms: tuple[Term, ...] | None = None
    tolerations: tuple[Toleration, ...] = ()

    def accepts(self, labels: Mapping[str, str]) -> bool:
        """Return whether it may be on a Node with these labels."""
        if any(labels.get(key) != value for key, value in self.selector):
            return False
        return self.terms is None or any(_holds(term, labels) for term in self.terms)

    def is_repelled(self, taints: tuple[Taint, ...], *effects: str) -> bool:
        """Whether one of these taints has one of the effects, and it does not tolerate that."""
        return find_repelling_taint(taints, effects, self.tolerations) is not None


def _holds(term: Term, labels: Mapping[str, str]) -> bool:
    return bool(term) and all(holds(each, labels.get(each.key)) for each in term)


def demand_of(document: Document) -> Demand | None:
    """Return what a Pod asks of its Node, if the Pod waits and the scheduler has found no Node.

    Return None for any other Pod, for a Pod of a DaemonSet, which is for an existing Node, and for
    a Pod for which the scheduler makes room on a Node. Raise UnreadableDocument if the document is
    no Pod. See https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-conditions.
    """
    metadata, spec, status = (part(document, field) for field in ("metadata", "spec", "status"))
    is_placed = bool(text(spec, "nodeName") or text(status, "nominatedNodeName"))
    if is_placed or metadata.get("deletionTimestamp") is not None:
        return None
    if not _is_unschedulable(status) or is_daemon_set(metadata):
        return None
    selector = texts(spec, "nodeSelector")
    requests = Requests(
        gpus_asked_for(spec, GPU),
        gpus_asked_for(spec, ACCELERATOR),
        asked_for(spec, "cpu"),
        asked_for(spec, "memory"),
    )
    return _demand(requests, tuple(sorted(selector.items())), _terms(spec), tolerations(spec))


@lru_cache(maxsize=1_024)
def _demand(
    requests: Requests,
    selector: tuple[tuple[str, str], ...],
    terms: tuple[Term, ...] | None,
    tolerations: tuple[Toleration, ...],
) -> Demand:
    """Return the first of all equal demands, while the cache holds it."""
    return Demand(requests, selector, terms, tolerations)


def _is_unschedulable(status: Document) -> bool:
    return any(
        (each.get("type"), each.get("status"), each.get("reason"))
        == ("PodScheduled", "False", "Unschedulable")
        for each in parts(status, "conditions")
    )


def _terms(spec: Document) -> tuple[Term, ...] | None:
    """Return the terms of the required node affinity.

    A term that names fields matches no future Node: the only such field is the name of a Node.
    """
    affinity = part(part(spec, "affinity"), "nodeAffinity")
    if affinity.get(_REQUIRED) is None:
        return None
    listed = parts(part(affinity, _REQUIRED), "nodeSelectorTerms")
    return tuple(() if each.get("matchFields") else tuple(_term(each)) for each in listed)


def _term(term: Document) -> Iterator[NodeSelectorRequirement]:
    for each in parts(term, "matchExpressions"):
        values = each.get("values") or ()
        if not isinstance(values, list | tuple) or not all(isinstance(v, str) for v in values):
            raise UnreadableDocument("values", "a list of texts", values)
        yield NodeSelectorRequirement(
            key=text(each, "key", None), operator=text(each, "operator", None), values=tuple(values)
        )
