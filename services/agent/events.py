"""What is told about an object, as the Kubernetes Event that `kubectl describe` shows.

https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/ lists its fields.
"""

from datetime import datetime
from typing import Final

from agent.actions import Tell
from agent.agreement import digest
from agent.bus import Document
from nodepool.contract.grammar import DNS_SUBDOMAIN, SUBDOMAIN_LIMIT
from nodepool.contract.model import API_VERSION
from nodepool.contract.moments import rfc3339

NAMESPACE: Final = "default"
"""Where Events are of objects that are in no namespace."""
MESSAGE_MAX: Final = 1024
"""The most characters of a message, as `events.k8s.io/v1` limits it."""
_VERSIONS: Final = {"NodePool": API_VERSION, "Node": "v1", "Pod": "v1"}


def log_key(position: int, kind: str) -> str:
    """The key of an event of the log: its position, and which object it regards."""
    return f"{position:x}.{'n' if kind == 'Node' else 'p'}"


def event_name(tell: Tell) -> str:
    """The name of the Event: the same whenever the same is told again.

    It is a DNS subdomain (RFC 1123) of at most 253 characters: what is longer ends with a digest.
    """
    key = tell.key if _is_subdomain(tell.key) else digest(tell.key)
    name = f"{tell.name}.{key}"
    if _is_subdomain(name):
        return name
    key = key if len(key) <= SUBDOMAIN_LIMIT // 2 else digest(key)
    tail = f".{digest(tell.name)}.{key}"
    start = tell.name[: SUBDOMAIN_LIMIT - len(tail)].rstrip("-.")
    name = f"{start}{tail}"
    return name if _is_subdomain(name) else f"{digest(tell.name)}.{key}"


def _is_subdomain(text: str) -> bool:
    return len(text) <= SUBDOMAIN_LIMIT and DNS_SUBDOMAIN.fullmatch(text) is not None


def event_document(tell: Tell, now: datetime) -> Document:
    """The Event (core/v1) that tells it; `now` is when it happened where `tell` does not say."""
    time = rfc3339(tell.time or now)
    namespace = tell.namespace or NAMESPACE
    regarding = {"apiVersion": _VERSIONS[tell.kind], "kind": tell.kind, "name": tell.name}
    if tell.namespace:
        regarding["namespace"] = tell.namespace
    if tell.uid:
        regarding["uid"] = tell.uid
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": event_name(tell), "namespace": namespace},
        "involvedObject": regarding,
        "type": tell.severity,
        "reason": tell.reason,
        "message": _cut(tell.message),
        "firstTimestamp": time,
        "lastTimestamp": time,
        "count": 1,
        "source": {"component": tell.component},
        "reportingComponent": tell.component,
        "reportingInstance": "",
    }


def _cut(message: str) -> str:
    return message if len(message) <= MESSAGE_MAX else f"{message[: MESSAGE_MAX - 1]}…"
