"""Records the Kubernetes Events about objects, which `kubectl describe` shows.

https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/ lists their fields.
"""

import hashlib
import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, Literal, NamedTuple

from nodepool.contract.grammar import DNS_SUBDOMAIN, SUBDOMAIN_LIMIT
from nodepool.contract.moments import rfc3339
from nodepool.kube.api import Api, Resource
from nodepool.kube.failures import TERMINATING, ApiFailure, Document
from nodepool.kube.pacing import Pauses

EVENTS: Final = Resource("api/v1", "events", "Event")
NAMESPACE: Final = "default"
"""The namespace of Events about objects that have no namespace."""
COMBINED: Final = "(combined from similar events): "
"""How the message of an Event begins that stands for several events, as client-go writes it."""
MESSAGE_MAX: Final = 1024
"""The maximum length of a message in characters, as limited by `events.k8s.io/v1`."""
KEPT_S: Final = 3_600.0
"""For how long the API server keeps an Event by default (`--event-ttl`). If the cause of an Event
still exists after that, the Event is recorded again."""
KNOWN_MAX: Final = 4_096
"""How many recorded Events are remembered."""


class Regarding(NamedTuple):
    """The object that an Event is about; its uid and its namespace are empty if it has none."""

    version: str
    kind: str
    name: str
    uid: str = ""
    namespace: str = ""


class Event(NamedTuple):
    """An Event.

    key: distinguishes the Event from all others about the object; its name is derived from it.
    component: the program that records the Event.
    times: how many events it stands for; its message is that of the last of them.
    """

    regarding: Regarding
    severity: Literal["Normal", "Warning"]
    reason: str
    message: str
    key: str
    component: str
    times: int = 1

    @property
    def name(self) -> str:
        """The name of the Event; an Event that is recorded again has the same name.

        It is a DNS subdomain (RFC 1123) of at most 253 characters; a digest shortens longer names.
        """
        about, key = self.regarding.name, self.key
        key = key if _is_subdomain(key) else _digest(key)
        name = f"{about}.{key}"
        if _is_subdomain(name):
            return name
        key = key if len(key) <= SUBDOMAIN_LIMIT // 2 else _digest(key)
        tail = f".{_digest(about)}.{key}"
        name = f"{about[: SUBDOMAIN_LIMIT - len(tail)].rstrip('-.')}{tail}"
        return name if _is_subdomain(name) else f"{_digest(about)}.{key}"

    def document(self, first: datetime, last: datetime | None = None) -> Document:
        """Return the object (core/v1) to create; without `last`, `first` is both its times."""
        regarding = self.regarding
        involved = {"apiVersion": regarding.version, "kind": regarding.kind, "name": regarding.name}
        others = {"namespace": regarding.namespace, "uid": regarding.uid}
        message = self.message if self.times == 1 else f"{COMBINED}{self.message}"
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": self.name, "namespace": regarding.namespace or NAMESPACE},
            "involvedObject": involved | {name: value for name, value in others.items() if value},
            "type": self.severity,
            "reason": self.reason,
            "message": message if len(message) <= MESSAGE_MAX else f"{message[: MESSAGE_MAX - 1]}…",
            "firstTimestamp": rfc3339(first),
            "lastTimestamp": rfc3339(last or first),
            "count": self.times,
            "source": {"component": self.component},
            "reportingComponent": self.component,
            "reportingInstance": "",
        }


def _is_subdomain(text: str) -> bool:
    return len(text) <= SUBDOMAIN_LIMIT and DNS_SUBDOMAIN.fullmatch(text) is not None


def _digest(text: str) -> str:
    return hashlib.sha256(json.dumps(text).encode()).hexdigest()[:16]


class Recorder:
    """Records each Event once, as far as this program remembers."""

    def __init__(self, api: Api, clock: Callable[[], float] = time.monotonic) -> None:
        self._api, self._clock = api, clock
        self._recorded: Pauses[tuple[str, str]] = Pauses(KNOWN_MAX)

    async def record(
        self, event: Event, first: datetime | None = None, last: datetime | None = None
    ) -> None:
        """Record an Event; an existing Event of the same name stays as it is.

        first, last: the times of its first and last event; None for the current time, and for one
          time.
        Raise ApiFailure or ApiUnreachable, but not if the namespace of the Event is being deleted.
        """
        namespace = event.regarding.namespace or NAMESPACE
        key = namespace, event.name
        if not self._recorded.is_over(key, self._clock()):
            return
        document = event.document(first or datetime.now(UTC), last)
        try:
            await self._api.create(EVENTS, document, namespace=namespace)
        except ApiFailure as failure:
            is_going = TERMINATING in failure.causes or failure.reason == "NotFound"
            if failure.reason != "AlreadyExists" and not is_going:
                raise
        self._recorded.begin(key, self._clock() + KEPT_S)
