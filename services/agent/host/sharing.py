"""Keeps objects in less memory: a text that many objects have is stored only once."""

import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

from agent.bus import Document
from agent.cluster import NodeObject, PodObject
from agent.node_documents import node_object
from agent.pods import pod_object
from agent.waiting import Demand, demand_of


def shared_node(document: Document) -> NodeObject:
    """Return a Node of a cluster; raise UnreadableDocument for any other document."""
    node = node_object(document)
    return replace(
        node,
        labels=_texts(node.labels),
        annotations=_texts(node.annotations),
        conditions=tuple(_shared(each) for each in node.conditions),
    )


def shared_pod(document: Document) -> PodObject | None:
    """Return a Pod that is bound to a Node and has not ended; None for any other Pod."""
    pod = pod_object(document)
    if pod is None:
        return None
    return replace(pod, namespace=sys.intern(pod.namespace), node=sys.intern(pod.node))


def shared_demand(document: Document) -> Demand | None:
    """Return what a waiting Pod asks of its Node; None for any other Pod."""
    demand = demand_of(document)
    return None if demand is None else _one(demand)


@lru_cache(maxsize=1_024)
def _one(demand: Demand) -> Demand:
    """Return the first of all equal demands, while the cache holds it."""
    return demand


def _texts(texts: Mapping[str, str]) -> Mapping[str, str]:
    return {sys.intern(key): sys.intern(value) for key, value in texts.items()}


def _shared(document: Document) -> Document:
    return {
        sys.intern(key): sys.intern(value) if isinstance(value, str) else value
        for key, value in document.items()
    }
