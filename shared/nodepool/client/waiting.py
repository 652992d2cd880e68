"""Waiting until objects are in a state, or are gone."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from nodepool.client.errors import NotFound, TimedOut
from nodepool.client.names import checked
from nodepool.client.read_model import Document, ReadModel, document_of
from nodepool.client.session import FILTERS_MAX
from nodepool.contract.keys import token
from nodepool.contract.log import Entry

if TYPE_CHECKING:
    from nodepool.contract.model import ConditionStatus

READ_MODEL_LAG_S: Final = 0.2
"""A NodePool that the read model has not shown for so many seconds is looked up in the log."""

Waited = Literal["nodepools", "nodes"]
"""The buckets whose objects can be waited for."""
_SINGULAR: Final[Mapping[Waited, str]] = {"nodepools": "nodepool", "nodes": "node"}


class Accepted(NamedTuple):
    """What the log says of a NodePool: which one it is, its newest generation, and where."""

    uid: str
    generation: int
    position: int


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
        """The NodePool, once the condition has that status for its newest generation.

        That is the generation of the last command that was accepted before the call, also where
        the read model is still behind it. Raises `NotFound` where there is no such NodePool or it
        is deleted, and `TimedOut` after `timeout_s` seconds; None waits without limit.
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
        """The object, once `is_met` is true of it.

        what: what is waited for, to name it in the error.

        Raises `NotFound` where there is no such object or it is deleted, and `TimedOut` after
        `timeout_s` seconds; None waits without limit.
        """
        try:
            async with asyncio.timeout(timeout_s), aclosing(self.follow(bucket, name)) as changes:
                async for document in changes:
                    if document is None:
                        raise self._not_found(bucket, name)
                    if is_met(document):
                        return document
        except TimeoutError:
            pass
        raise TimedOut(f"timed out waiting for {what} on {_SINGULAR[bucket]}/{name}")

    async def wait_until_created(
        self, bucket: Waited, name: str, *, timeout_s: float | None = None
    ) -> Document:
        """The object, once it exists; raises `TimedOut` after `timeout_s` seconds."""
        try:
            async with asyncio.timeout(timeout_s), aclosing(self.follow(bucket, name)) as changes:
                async for document in changes:
                    if document is not None:
                        return document
        except TimeoutError:
            pass
        raise TimedOut(f"timed out waiting for {_SINGULAR[bucket]}/{name} to be created")

    async def wait_until_gone(
        self, *names: str, timeout_s: float | None = None, bucket: Waited = "nodepools"
    ) -> None:
        """Returns once none of the objects exists.

        Raises `TimedOut` after `timeout_s` seconds; None waits without limit.
        """
        left = set(names)
        try:
            async with (
                asyncio.timeout(timeout_s),
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
        """An object and each change of it; None while it does not exist. It never ends by itself.

        A NodePool of the read model that is older than what the log has accepted is passed over.
        """
        accepted = await self._accepted(name) if bucket == "nodepools" else None
        async with aclosing(self._changes(bucket, name)) as changes:
            async for _, document in changes:
                if document is None or not is_outdated(document, accepted):
                    yield document

    async def _accepted(self, pool: str) -> Accepted | None:
        """The newest generation of a NodePool in the log; None where it never existed."""
        from nodepool.contract.events import NodePoolValidated

        entry = await self._last_event(NodePoolValidated, token(checked("name", pool)))
        return accepted_in(entry) if entry is not None else None

    async def _changes(
        self, bucket: Waited, *names: str
    ) -> AsyncGenerator[tuple[str, Document | None], None]:
        """Each of the objects, and each change of them; None for one that does not exist."""
        prefix = self._prefix(bucket)
        wanted = frozenset(checked("name", name) for name in names)
        unseen = set(wanted)
        async with self._reader(f"KV_{bucket}", _filters(prefix, wanted), newest=True) as reader:
            while True:
                entries = await reader.next(READ_MODEL_LAG_S if unseen else None)
                for entry in entries:
                    name = entry.subject[len(prefix) :]
                    if name in wanted:
                        unseen.discard(name)
                        yield name, document_of(entry)
                for name in sorted(unseen) if not entries else ():
                    # Under load the read model may be behind the log.
                    if bucket == "nodes" or not await self._exists_in_log(name):
                        unseen.discard(name)
                        yield name, None

    async def _exists_in_log(self, pool: str) -> bool:
        """Whether the NodePool was created and not deleted since, as the log has it."""
        from nodepool.contract.events import CWNodePoolDeleted, NodePoolValidated

        created = await self._last_event(NodePoolValidated, token(pool))
        deleted = await self._last_event(CWNodePoolDeleted, token(pool))
        return created is not None and (deleted is None or deleted.position < created.position)

    def _not_found(self, bucket: Waited, name: str) -> NotFound:
        return NotFound(f'{_SINGULAR[bucket]} "{name}" not found in {self.org}/{self.cluster}')


def _filters(prefix: str, names: frozenset[str]) -> Sequence[str]:
    if len(names) > FILTERS_MAX:
        return [f"{prefix}>"]
    return [prefix + name for name in sorted(names)]


def accepted_in(entry: Entry) -> Accepted | None:
    """What a `NodePoolValidated` says of its NodePool; None where it cannot be read."""
    from nodepool.contract.decode import decode
    from nodepool.contract.events import NodePoolValidated
    from nodepool.contract.messages import Envelope

    envelope = decode(NodePoolValidated, entry.subject, entry.content, {}, entry.position)
    if not isinstance(envelope, Envelope):
        return None
    return Accepted(envelope.data.uid, envelope.data.generation, entry.position)


def is_outdated(document: Document, accepted: Accepted | None) -> bool:
    """Whether a NodePool of the read model is older than what the log has accepted.

    That is: an earlier one of the same name, or an earlier generation, last changed before that.
    """
    metadata = document.get("metadata")
    if accepted is None or not isinstance(metadata, Mapping):
        return False
    version, generation = str(metadata.get("resourceVersion", "")), metadata.get("generation")
    if version.isdecimal() and int(version) >= accepted.position:
        return False
    is_earlier = isinstance(generation, int) and generation < accepted.generation
    return is_earlier or metadata.get("uid", accepted.uid) != accepted.uid


def has_condition(document: Document, condition: str, status: str) -> bool:
    """Whether a condition, in any case, has this status for the object's newest generation.

    A condition without an `observedGeneration`, as Nodes have them, is taken as it is.
    """
    metadata, state = document.get("metadata"), document.get("status")
    conditions = state.get("conditions") if isinstance(state, Mapping) else None
    generation = metadata.get("generation") if isinstance(metadata, Mapping) else None
    for candidate in conditions or ():
        if str(candidate.get("type")).lower() == condition.lower():
            is_current: bool = candidate.get("observedGeneration", generation) == generation
            return is_current and str(candidate.get("status")).lower() == status.lower()
    return False
