"""Ends the Pods of a Node, for a drain or because the Node is gone."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

from agent.actions import Action, Delete, Evict, RecordEvent
from agent.nodes.objects import NodeObject, WantedNode
from agent.pods.objects import PodObject
from nodepool.contract.keys import pod_parts
from nodepool.contract.pods import PodClass

SYSTEM: Final = "kube-system"
"""The namespace of the Pods of Kubernetes itself."""


def drain_node(
    wanted: WantedNode, found: NodeObject, pods: Sequence[PodObject], now: datetime
) -> Iterator[Action]:
    """Yield the actions that drain a Node; Pods of DaemonSets stay, as with `kubectl drain`.

    Safely, Pods are evicted that may be interrupted, which budgets can refuse; Events say so. By
    force, each Pod is deleted, and no budget blocks. Either way it has its own grace period. A Pod
    of kube-system is deleted in either case: the account of the agent may evict none there, since
    no policy can tell on which Node the Pod of an eviction runs.
    """
    running = [each for each in pods if not (each.pod.daemon_set or each.pod.terminating)]
    for each in sorted(running, key=lambda pod: pod.pod.name):
        is_safe = wanted.drain == "safe" and each.pod.interruption is not PodClass.BLOCKING
        if wanted.drain == "forced" or (is_safe and each.namespace == SYSTEM):
            yield Delete("Pod", _name(each), each.uid, each.namespace)
        elif is_safe:
            yield Evict(each.namespace, _name(each), each.uid)
            if each.blocked_by:
                yield from _report_blocked_drain(wanted, found, each, now)


def end_pods(pods: Sequence[PodObject]) -> Iterator[Action]:
    """Yield the immediate deletion of the Pods of a Node that is gone: nothing runs these Pods."""
    for each in sorted(pods, key=lambda pod: pod.pod.name):
        yield Delete("Pod", _name(each), each.uid, each.namespace, grace_s=0)


def _name(pod: PodObject) -> str:
    return pod_parts(pod.pod.name)[1]


def _report_blocked_drain(
    wanted: WantedNode, found: NodeObject, pod: PodObject, now: datetime
) -> Iterator[RecordEvent]:
    """Yield that a budget blocks the drain, about the Node and about the Pod, once per drain."""
    key = f"{found.uid}.{wanted.assignment}.drain.{wanted.cordon}.{pod.uid}"
    message = f"Node {found.name} cannot evict Pod {pod.pod.name}: {pod.blocked_by}"
    yield RecordEvent(
        "Node", found.name, found.uid, "Warning", "EvictionBlocked", message, key, now
    )
    yield RecordEvent(
        "Pod",
        _name(pod),
        pod.uid,
        "Warning",
        "EvictionBlocked",
        message,
        key,
        now,
        namespace=pod.namespace,
    )
