"""Holds the Lease of the agent, and takes it over from a replica that is gone."""

import asyncio
import os
import socket
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final
from uuid import uuid4

from agent.bus import Document
from agent.host.api import Api, Failure, Resource, Unreachable
from agent.host.election import DURATION_S, RETRY_S, Election, Seen, seen_lease
from nodepool.host.logs import Logger

LEASES: Final = Resource("apis/coordination.k8s.io/v1", "leases", "Lease")
PROGRESS: Final = "compute.coreweave.com/events"
"""The annotation that stores up to which position of which log all events are recorded."""

RELEASE_TRIES: Final = 4
"""How often a stopping replica tries to release its Lease if the Lease changes meanwhile."""


class Lease:
    """The Lease, and whether this replica holds it.

    fault: why the Lease cannot be read or written, as one line; empty if it can.
    progress: the progress that the previous holder stored, or that this replica stores with each
      renewal.
    """

    def __init__(self, api: Api, namespace: str, name: str, log: Logger) -> None:
        self.fault = "looking who holds the Lease"
        self.progress = ""
        self.identity = f"{socket.gethostname()}_{os.getpid()}_{uuid4().hex[:8]}"
        self._api, self._namespace, self._name, self._log = api, namespace, name, log
        self._election = Election(self.identity)
        self._clock = asyncio.get_running_loop().time
        self._holder = ""
        self._written: Document | None = None

    @property
    def held(self) -> bool:
        """Whether this replica may act now."""
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
        self._election.lost()
        self._log.warning("lost the Lease", leader=self.holder, cause=self.fault)

    async def release(self) -> None:
        """Release the Lease at once; if that fails, another replica begins after the duration."""
        was_held = self.held
        self._election.lost()
        if not was_held:
            return
        for tries_left in reversed(range(RELEASE_TRIES)):
            try:
                lease = await self._read()
                seen = seen_lease(lease, PROGRESS)
                if seen.holder == self.identity:
                    await self._update(lease, self._spec(seen, holder="", duration_s=1))
            except (Failure, Unreachable) as error:
                # The API server may still write an abandoned renewal after the read above.
                if tries_left and isinstance(error, Failure) and error.reason == "Conflict":
                    continue
                self._log.warning("Lease not released", cause=str(error))
            return

    async def _try(self) -> None:
        """Write the Lease if this replica holds it or may take it; otherwise read who holds it."""
        began = self._clock()
        try:
            await self._step(began)
            self.fault = ""
        except Failure as failure:
            self._written = None
            if failure.reason in ("Conflict", "AlreadyExists"):
                self.fault = ""  # Another replica was faster; the Lease is read again soon.
                return
            self._note(f"cannot hold the Lease {self._namespace}/{self._name}: {failure.message}")
        except Unreachable as error:
            self._note(str(error))

    def _note(self, fault: str) -> None:
        self.fault = fault
        self._log.warning("no Lease", cause=fault)

    async def _step(self, began: float) -> None:
        # A holder updates the Lease as it last wrote it: if the Lease has changed since, the API
        # server refuses the update.
        lease = self._written if self.held else None
        if lease is None:
            lease = await self._found()
        seen = None if lease is None else seen_lease(lease, PROGRESS)
        match self._election.step(seen, self._clock()):
            case "wait":
                assert seen is not None, "there is nothing to wait for without a Lease"
                if self._election.holds(self._clock()):
                    self._election.lost()  # Somebody gave the Lease to another replica.
                return
            case "create":
                reply = await self._create()
            case "take":
                assert lease is not None, "a Lease that is taken exists"
                assert seen is not None, "what exists was seen"
                self.progress = seen.progress
                reply = await self._update(lease, self._spec(seen, is_taken=True))
            case "renew":
                assert lease is not None, "a Lease that is renewed exists"
                assert seen is not None, "what exists was seen"
                self.progress = self.progress or seen.progress
                reply = await self._update(lease, self._spec(seen))
        self._written = reply
        self._election.written(seen_lease(reply, PROGRESS), began, self._clock())

    async def _found(self) -> Document | None:
        try:
            return await self._read()
        except Failure as failure:
            if failure.reason != "NotFound":
                raise
            return None

    async def _read(self) -> Document:
        return await self._api.send("get", LEASES, LEASES.path(self._name, self._namespace))

    async def _create(self) -> Document:
        body = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self._name, "namespace": self._namespace},
            "spec": self._spec(Seen("", 0, "", -1, ""), is_taken=True),
        }
        return await self._api.send("create", LEASES, LEASES.path(namespace=self._namespace), body)

    async def _update(self, lease: Document, spec: Document) -> Document:
        """Write the Lease with another spec; the API server refuses if the Lease has changed."""
        metadata = lease.get("metadata")
        metadata = dict(metadata) if isinstance(metadata, dict) else {}
        annotations = metadata.get("annotations")
        if self.progress:
            noted = {PROGRESS: self.progress}
            metadata["annotations"] = {**(annotations or {}), **noted}
        body = {**lease, "metadata": metadata, "spec": spec}
        path = LEASES.path(self._name, self._namespace)
        return await self._api.send("update", LEASES, path, body)

    def _spec(
        self,
        seen: Seen,
        *,
        is_taken: bool = False,
        holder: str | None = None,
        duration_s: int = DURATION_S,
    ) -> Document:
        # These timestamps are for people and tools: no replica compares them.
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        return {
            "holderIdentity": self.identity if holder is None else holder,
            "leaseDurationSeconds": duration_s,
            "acquireTime": now if is_taken or not seen.acquired else seen.acquired,
            "renewTime": now,
            "leaseTransitions": seen.transitions + 1 if is_taken else seen.transitions,
        }
