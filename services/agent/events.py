"""The Kubernetes Events about an object, which `kubectl describe` shows.

https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/ lists its fields.
"""

from datetime import UTC, datetime, timedelta
from typing import Final

from agent.actions import RecordEvent
from agent.agreement import digest
from agent.bus import Document
from nodepool.contract.grammar import DNS_SUBDOMAIN, SUBDOMAIN_LIMIT
from nodepool.contract.model import API_VERSION
from nodepool.contract.moments import rfc3339

NAMESPACE: Final = "default"
"""The namespace of Events about objects that have no namespace."""
MESSAGE_MAX: Final = 1024
"""The maximum length of a message in characters, as limited by `events.k8s.io/v1`."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_VERSIONS: Final = {"NodePool": API_VERSION, "Node": "v1", "Pod": "v1"}


def log_key(position: int, moment: datetime, kind: str) -> str:
    """Return the key of an event of the log: its position, its moment and the kind of its object.

    A log that was restored from a backup has other events at the positions that it has lost.
    """
    return f"{position:x}.{microseconds(moment):x}.{'n' if kind == 'Node' else 'p'}"


def microseconds(moment: datetime) -> int:
    """Return a moment in microseconds since 1970."""
    return (moment - _EPOCH) // timedelta(microseconds=1)


def event_name(event: RecordEvent) -> str:
    """Return the name of the Event; an Event that is recorded again has the same name.

    It is a DNS subdomain (RFC 1123) of at most 253 characters: what is longer ends with a digest.
    """
    key = event.key if _is_subdomain(event.key) else digest(event.key)
    name = f"{event.name}.{key}"
    if _is_subdomain(name):
        return name
    key = key if len(key) <= SUBDOMAIN_LIMIT // 2 else digest(key)
    tail = f".{digest(event.name)}.{key}"
    start = event.name[: SUBDOMAIN_LIMIT - len(tail)].rstrip("-.")
    name = f"{start}{tail}"
    return name if _is_subdomain(name) else f"{digest(event.name)}.{key}"


def _is_subdomain(text: str) -> bool:
    return len(text) <= SUBDOMAIN_LIMIT and DNS_SUBDOMAIN.fullmatch(text) is not None


def event_document(event: RecordEvent, now: datetime) -> Document:
    """Return the Event (core/v1) to record; `now` is its time if `event` has no time."""
    time = rfc3339(event.time or now)
    namespace = event.namespace or NAMESPACE
    regarding = {"apiVersion": _VERSIONS[event.kind], "kind": event.kind, "name": event.name}
    if event.namespace:
        regarding["namespace"] = event.namespace
    if event.uid:
        regarding["uid"] = event.uid
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": event_name(event), "namespace": namespace},
        "involvedObject": regarding,
        "type": event.severity,
        "reason": event.reason,
        "message": _cut(event.message),
        "firstTimestamp": time,
        "lastTimestamp": time,
        "count": 1,
        "source": {"component": event.component},
        "reportingComponent": event.component,
        "reportingInstance": "",
    }


def _cut(message: str) -> str:
    return message if len(message) <= MESSAGE_MAX else f"{message[: MESSAGE_MAX - 1]}…"
