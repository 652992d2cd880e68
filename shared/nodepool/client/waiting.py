"""Waiting until objects reach a state, or are gone."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Final, Literal

from nodepool.client.accepted import Accepted, is_outdated, read_accepted
from nodepool.client.errors import NotFound, TimedOut
from nodepool.client.names import checked
from nodepool.client.read_model import Document, ReadModel, document_of
from nodepool.client.session import FILTERS_MAX
from nodepool.contract.keys import token

if TYPE_CHECKING:
    from nodepool.contract.model import ConditionStatus

READ_MODEL_LAG_S: Final = 0.2
"""If the read model has not shown a NodePool after this many seconds, the log is read instead."""

READ_S: Final = 2.0
"""How long reading the present state of an object may take, in seconds."""

Waited = Literal["nodepools", "nodes"]
"""The buckets whose objects can be waited for."""
_SINGULAR: Final[Mapping[Waited, str]] = {"nodepools": "nodepool", "nodes": "node"}


class Waiting(ReadModel):
    """The part of a client that waits for a state of NodePools and Nodes."""

    async def wait(
        self,
        pool: str,
        condition: str,
        status: "ConditionStatus" = "True",
        *,
        timeout_s: float | None = None,
    ) -> Document:
        """Return the NodePool once the condition has this status for its newest generation.

        The newest generation is the generation of the last command that was accepted before the
        call, even if the read model is still behind it. Raises `NotFound` if the NodePool does not
        exist or is deleted, and `TimedOut` after `timeout_s` seconds; None waits without limit.
        """
        return await self.wait_for(
            "nodepools",
            pool,
            lambda document: has_condition(document, condition, status),
            f"{condition}={status}",
            timeout_s=timeout_s,
        )

    async def wait_for(
        self,
        bucket: Waited,
        name: str,
        is_met: Callable[[Document], bool],
        what: str,
        *,
        timeout_s: float | None = None,
    ) -> Document:
        """Return the object once `is_met` is true of it.

        what: the expected state, as the error names it.

        Raises `NotFound` if the object does not exist or is deleted, and `TimedOut` after
        `timeout_s` seconds; None waits without limit. The current state is always read.
        """

        def is_reached(document: Document | None) -> bool:
            if document is None:
                raise self._not_found(bucket, name)
            return is_met(document)

        reached = await self._reached(bucket, name, is_reached, timeout_s)
        if reached is None:
            raise TimedOut(f"timed out waiting for {what} on {_SINGULAR[bucket]}/{name}")
        return reached

    async def wait_until_created(
        self, bucket: Waited, name: str, *, timeout_s: float | None = None
    ) -> Document:
        """Return the object once it exists; raise `TimedOut` after `timeout_s` seconds."""
        created = await self._reached(bucket, name, lambda each: each is not None, timeout_s)
        if created is None:
            raise TimedOut(f"timed out waiting for {_SINGULAR[bucket]}/{name} to be created")
        return created

    async def _reached(
        self,
        bucket: Waited,
        name: str,
        is_met: Callable[[Document | None], bool],
        timeout_s: float | None,
    ) -> Document | None:
        """Return the object once `is_met` is true of it; None if that takes too long.

        The current state is always read, even if no time is left.
        """
        loop = asyncio.get_running_loop()
        deadline = None if timeout_s is None else loop.time() + timeout_s
        first = None if deadline is None else max(deadline, loop.time() + READ_S)
        with suppress(TimeoutError):
            async with (
                aclosing(self.follow(bucket, name)) as changes,
                asyncio.timeout_at(first) as limit,
            ):
                async for document in changes:
                    if is_met(document):
                        return document
                    limit.reschedule(deadline)
        return None

    async def wait_until_gone(
        self, *names: str, timeout_s: float | None = None, bucket: Waited = "nodepools"
    ) -> None:
        """Wait until all the objects are gone.

        Raises `TimedOut` after `timeout_s` seconds; None waits without limit.
        """
        left = set(names)
        try:
            async with (
                asyncio.timeout(None if timeout_s is None else max(timeout_s, READ_S)),
                aclosing(self._changes(bucket, *names)) as changes,
            ):
                while left:
                    name, document = await anext(changes)
                    if document is None:
                        left.discard(name)
        except TimeoutError:
            shown = f"{_SINGULAR[bucket]}/{min(left)}"
            if len(left) > 1:
                shown += f" and {len(left) - 1} more"
            raise TimedOut(f"timed out waiting for {shown} to be deleted") from None

    async def follow(self, bucket: Waited, name: str) -> AsyncGenerator[Document | None, None]:
        """Yield an object and each change of it, without end; None while the object does not exist.

        Skips a NodePool of the read model that is older than what the log has accepted. A NodePool
        that is deleted in the log does not exist.
        """
        accepted = await self._accepted(name) if bucket == "nodepools" else None
        async with aclosing(self._changes(bucket, name)) as changes:
            async for _, document in changes:
                if document is None or not is_outdated(document, accepted):
                    yield document
                elif accepted is not None and accepted.state == "deleted":
                    yield None

    async def _accepted(self, pool: str) -> Accepted | None:
        """Return what the log says of a NodePool; None if the NodePool never existed."""
        name = token(checked("name", pool))
        return await read_accepted(lambda event: self._last_event(event, name))

    async def _changes(
        self, bucket: Waited, *names: str
    ) -> AsyncGenerator[tuple[str, Document | None], None]:
        """Yield each object, and each change of an object; None if the object does not exist."""
        prefix = self._prefix(bucket)
        wanted = frozenset(checked("name", name) for name in names)
        unseen = set(wanted)
        async with self._reader(f"KV_{bucket}", _filters(prefix, wanted), newest=True) as reader:
            while True:
                entries = await reader.next(READ_MODEL_LAG_S if unseen else None)
                for entry in entries:
                    name, document = entry.subject[len(prefix) :], document_of(entry)
                    # The marker of an earlier deletion says nothing about a new object.
                    if name in wanted and (document is not None or name not in unseen):
                        unseen.discard(name)
                        yield name, document
                for name in sorted(unseen) if not entries else ():
                    # Under load, the read model may lag behind the log.
                    if bucket == "nodes" or not await self._is_in_log(name):
                        unseen.discard(name)
                        yield name, None

    async def _is_in_log(self, pool: str) -> bool:
        accepted = await self._accepted(pool)
        return accepted is not None and accepted.state != "deleted"

    def _not_found(self, bucket: Waited, name: str) -> NotFound:
        return NotFound(f'{_SINGULAR[bucket]} "{name}" not found in {self.org}/{self.cluster}')


def _filters(prefix: str, names: frozenset[str]) -> Sequence[str]:
    if len(names) > FILTERS_MAX:
        return [f"{prefix}>"]
    return [prefix + name for name in sorted(names)]


def has_condition(document: Document, condition: str, status: str) -> bool:
    """Return whether a condition has this status for the object's newest generation.

    Names and statuses match in any case. A condition without an `observedGeneration`, as Nodes
    have, is accepted for any generation.
    """
    metadata, state = document.get("metadata"), document.get("status")
    conditions = state.get("conditions") if isinstance(state, Mapping) else None
    generation = metadata.get("generation") if isinstance(metadata, Mapping) else None
    for candidate in conditions if isinstance(conditions, list) else ():
        # Any program may have written this value.
        if not isinstance(candidate, Mapping):
            continue
        if str(candidate.get("type")).lower() == condition.lower():
            is_current: bool = candidate.get("observedGeneration", generation) == generation
            return is_current and str(candidate.get("status")).lower() == status.lower()
    return False
