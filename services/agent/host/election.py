"""Decides which of several replicas holds the Lease, in the same way as client-go; pure.

Timestamps of other machines are never compared with the clock of this machine: a Lease counts as
expired if it has not changed for its duration, by the monotonic clock of the observing replica.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from agent.bus import Document

DURATION_S: Final = 15
"""How long other replicas leave alone a Lease that is not renewed."""
DEADLINE_S: Final = 10.0
"""How long a holder continues to work after the start of its last successful renewal."""
RETRY_S: Final = 2.0
"""The interval at which the holder renews the Lease and the others read it."""
Step = Literal["create", "take", "renew", "wait"]


@dataclass(frozen=True, slots=True)
class Seen:
    """A Lease as it was read.

    holder: its `holderIdentity`; empty if it was released.
    duration_s: for how long others leave it alone.
    version: its `resourceVersion`.
    transitions: how often it changed hands.
    acquired: its `acquireTime`, as text.
    progress: the annotation in which the holder stores its progress.
    """

    holder: str
    duration_s: int
    version: str
    transitions: int
    acquired: str
    progress: str = ""


class Election:
    """The part of one replica in the election; every `now` is in seconds of one monotonic clock."""

    def __init__(self, identity: str) -> None:
        self._identity = identity
        self._seen: Seen | None = None
        self._changed_at = 0.0
        self._renewed_at = float("-inf")

    def holds(self, now: float) -> bool:
        """Whether this replica may act."""
        return now < self.ends_at

    @property
    def ends_at(self) -> float:
        """When this replica must stop unless it renews the Lease."""
        return self._renewed_at + DEADLINE_S

    @property
    def holder(self) -> str:
        """The holder of the Lease when it was last seen; empty if nobody held it."""
        return "" if self._seen is None else self._seen.holder

    def step(self, seen: Seen | None, now: float) -> Step:
        """Return the next step for the Lease as it is now; `seen` is None if there is no Lease."""
        if seen is None:
            return "create"
        if self._seen is None or seen.version != self._seen.version:
            self._seen, self._changed_at = seen, now
        if seen.holder == self._identity:
            return "renew"
        if not seen.holder or now >= self._changed_at + max(seen.duration_s, 1):
            return "take"
        return "wait"

    def written(self, seen: Seen, began: float, now: float) -> None:
        """Note the Lease as this replica wrote it, in a write that began at `began`."""
        self._seen, self._changed_at, self._renewed_at = seen, now, began

    def lost(self) -> None:
        """Note that this replica stops, or has released the Lease."""
        self._renewed_at = float("-inf")


def seen_lease(lease: Document, annotation: str) -> Seen:
    """Return a Lease from its document, whatever others have written into the document."""
    metadata, spec = _mapping(lease, "metadata"), _mapping(lease, "spec")
    return Seen(
        holder=str(spec.get("holderIdentity") or ""),
        duration_s=_number(spec.get("leaseDurationSeconds")),
        version=str(metadata.get("resourceVersion") or ""),
        transitions=_number(spec.get("leaseTransitions")),
        acquired=str(spec.get("acquireTime") or ""),
        progress=str(_mapping(metadata, "annotations").get(annotation) or ""),
    )


def _mapping(document: Document, name: str) -> Document:
    value = document.get(name)
    return value if isinstance(value, Mapping) else {}


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0
