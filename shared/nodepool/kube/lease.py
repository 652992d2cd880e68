"""Holds the Lease that one of several replicas has, by the rules of client-go.

Timestamps of other machines are never compared with the clock of this machine: a Lease counts as
expired if it has not changed for its duration, by the monotonic clock of the observing replica.
"""

import asyncio
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal
from uuid import uuid4

from structlog.typing import FilteringBoundLogger as Logger

from nodepool.kube.api import Api, Resource
from nodepool.kube.failures import ApiFailure, ApiUnreachable, Document, part

LEASES: Final = Resource("apis/coordination.k8s.io/v1", "leases", "Lease")
DURATION_S: Final = 15
"""How long other replicas leave alone a Lease that is not renewed."""
DEADLINE_S: Final = 10.0
"""How long a holder continues to work after the start of its last successful renewal."""
RETRY_S: Final = 2.0
"""The interval at which the holder renews the Lease and the others read it."""
RELEASE_TRIES: Final = 4
"""How often a stopping replica tries to release its Lease if the Lease changes meanwhile."""
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


def seen_lease(lease: Document, annotation: str) -> Seen:
    """Return a Lease from its document, whatever others have written into the document."""
    metadata, spec = part(lease, "metadata"), part(lease, "spec")
    numbers = (spec.get("leaseDurationSeconds"), spec.get("leaseTransitions"))
    duration_s, transitions = (each if isinstance(each, int) else 0 for each in numbers)
    return Seen(
        holder=str(spec.get("holderIdentity") or ""),
        duration_s=duration_s,
        version=str(metadata.get("resourceVersion") or ""),
        transitions=transitions,
        acquired=str(spec.get("acquireTime") or ""),
        progress=str(part(metadata, "annotations").get(annotation) or ""),
    )


class Election:
    """The part of one replica in the election; every `now` is in seconds of one monotonic clock."""

    def __init__(self, identity: str) -> None:
        self._identity = identity
        self._seen: Seen | None = None
        self._changed_at = 0.0
        self._renewed_at = float("-inf")

    def holds(self, now: float) -> bool:
        """Return whether this replica may act."""
        return now < self.ends_at

    @property
    def ends_at(self) -> float:
        """Return when this replica must stop unless it renews the Lease."""
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

    def note_write(self, seen: Seen, began: float, now: float) -> None:
        """Note the Lease as this replica wrote it, in a write that began at `began`."""
        self._seen, self._changed_at, self._renewed_at = seen, now, began

    def note_loss(self) -> None:
        """Note that this replica stops, or has released the Lease."""
        self._renewed_at = float("-inf")


class Lease:
    """The Lease, and whether this replica holds it.

    annotation: the key under which the Lease stores the progress of its holder.
    fault: why the Lease cannot be read or written, as one line; empty if it can.
    progress: the progress that the previous holder stored, or that this replica stores with each
      renewal.
    """

    def __init__(
        self, api: Api, namespace: str, name: str, *, annotation: str, log: Logger
    ) -> None:
        self.fault = "looking who holds the Lease"
        self.progress = ""
        self.identity = f"{socket.gethostname()}_{os.getpid()}_{uuid4().hex[:8]}"
        self._api, self._namespace, self._name, self._log = api, namespace, name, log
        self._annotation = annotation
        self._election = Election(self.identity)
        self._clock = asyncio.get_running_loop().time
        self._holder = ""
        self._written: Document | None = None

    @property
    def held(self) -> bool:
        """Return whether this replica may act now."""
        return self._election.holds(self._clock())

    @property
    def holder(self) -> str:
        """Who held the Lease when it was last seen."""
        return self._election.holder

    async def acquire(self) -> None:
        """Wait until this replica holds the Lease."""
        while True:
            await self._try()
            if self.held:
                self._log.info("leading", identity=self.identity)
                return
            if self.holder != self._holder:
                self._holder = self.holder
                self._log.info("following", leader=self.holder)
            await asyncio.sleep(RETRY_S)

    async def keep(self, progress: Callable[[], str]) -> None:
        """Renew the Lease until it is lost. Note `progress` with each renewal."""
        while True:
            left = self._election.ends_at - self._clock()
            await asyncio.sleep(min(RETRY_S, max(left, 0.0)))
            if not self.held:
                break
            self.progress = progress()
            try:
                async with asyncio.timeout_at(self._election.ends_at):
                    await self._try()
            except TimeoutError:
                break
        self._election.note_loss()
        self._log.warning("lost the Lease", leader=self.holder, cause=self.fault)

    async def release(self) -> None:
        """Release the Lease at once; if that fails, another replica begins after the duration."""
        was_held = self.held
        self._election.note_loss()
        if not was_held:
            return
        for tries_left in reversed(range(RELEASE_TRIES)):
            try:
                lease = await self._api.get(LEASES, self._name, self._namespace)
                seen = seen_lease(lease, self._annotation)
                if seen.holder == self.identity:
                    released = {"holderIdentity": "", "leaseDurationSeconds": 1}
                    await self._update(lease, {**self._spec(seen), **released})
            except (ApiFailure, ApiUnreachable) as error:
                # The API server may still write an abandoned renewal after the read above.
                if tries_left and isinstance(error, ApiFailure) and error.reason == "Conflict":
                    continue
                self._log.warning("Lease not released", cause=str(error))
            return

    async def _try(self) -> None:
        """Write the Lease if this replica holds it or may take it; otherwise read who holds it."""
        try:
            await self._step(self._clock())
            self.fault = ""
        except ApiFailure as failure:
            self._written = None
            if failure.reason in ("Conflict", "AlreadyExists"):
                self.fault = ""  # Another replica was faster; the Lease is read again soon.
                return
            self._note(f"cannot hold the Lease {self._namespace}/{self._name}: {failure.message}")
        except ApiUnreachable as error:
            self._note(str(error))

    def _note(self, fault: str) -> None:
        self.fault = fault
        self._log.warning("no Lease", cause=fault)

    async def _step(self, began: float) -> None:
        # A holder updates the Lease as it last wrote it: if the Lease has changed since, the API
        # server refuses the update.
        lease = self._written if self.held else None
        if lease is None:
            lease = await self._find_lease()
        seen = seen_lease(lease or {}, self._annotation)
        step = self._election.step(None if lease is None else seen, self._clock())
        if step == "wait":
            if self._election.holds(self._clock()):
                self._election.note_loss()  # Somebody gave the Lease to another replica.
            return
        if lease is None:
            first = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
            metadata = {"name": self._name, "namespace": self._namespace}
            body = {**first, "metadata": metadata, "spec": self._spec(seen, transitions=0)}
            self._written = await self._api.create(LEASES, body, namespace=self._namespace)
        else:
            is_taken = step == "take"
            # A holder that has noted nothing yet keeps what the previous holder noted.
            self.progress = seen.progress if is_taken else self.progress or seen.progress
            transitions = seen.transitions + 1 if is_taken else None
            spec = self._spec(seen, transitions=transitions)
            self._written = await self._update(lease, spec)
        self._election.note_write(seen_lease(self._written, self._annotation), began, self._clock())

    async def _find_lease(self) -> Document | None:
        try:
            return await self._api.get(LEASES, self._name, self._namespace)
        except ApiFailure as failure:
            if failure.reason != "NotFound":
                raise
            return None

    async def _update(self, lease: Document, spec: Document) -> Document:
        """Write the Lease with another spec; the API server refuses if the Lease has changed."""
        metadata = dict(part(lease, "metadata"))
        if self.progress:
            annotations = part(metadata, "annotations")
            metadata["annotations"] = {**annotations, self._annotation: self.progress}
        return await self._api.update(LEASES, {**lease, "metadata": metadata, "spec": spec})

    def _spec(self, seen: Seen, *, transitions: int | None = None) -> Document:
        """Return the spec of a Lease that this replica takes if `transitions` is given."""
        # These timestamps are for people and tools: no replica compares them.
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": DURATION_S,
            "acquireTime": seen.acquired if transitions is None and seen.acquired else now,
            "renewTime": now,
            "leaseTransitions": seen.transitions if transitions is None else transitions,
        }
