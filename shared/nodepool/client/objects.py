"""The objects of the control plane: reading an object, following it, and waiting for it."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from nodepool.client.errors import NotFound, TimedOut
from nodepool.client.names import check_name
from nodepool.client.session import Session
from nodepool.contract.buckets import Bucket
from nodepool.contract.conditions import ConditionStatus
from nodepool.contract.log import Entry

READ_S: Final = 2.0
"""How long reading the present state of an object may take, in seconds."""

Document = Mapping[str, object]
"""An object as Kubernetes would show it, as a JSON value."""


@dataclass(frozen=True, slots=True)
class Object:
    """An object of the read model.

    key: the object's name within the client's organisation and cluster; begins with the names of
      both if the objects of all organisations and clusters were requested.
    document: its content; None for an object that has been deleted.
    position: the position of this version in the bucket's stream.
    deleted_at: the position in the log of its deletion; 0 if it exists, or if that is not known.
    """

    key: str
    document: Document | None
    position: int
    deleted_at: int = 0


@dataclass(frozen=True, slots=True)
class Listed:
    """The mark that `watch` yields once, after all objects that existed when the watch began."""


class Objects:
    """The objects of one bucket of the read model, as `client.objects(bucket)`.

    The key of a NodePool, Node or cluster is its name; of a machine, `<zone>.<name>`; of a quota
    and of a capacity, `<zone>.<type>`. `catch_up` waits until the bucket shows the effect of all
    commands whose outcome came before the call.

    Every method may raise `Unreachable`.
    """

    def __init__(self, session: Session, bucket: Bucket) -> None:
        self._session = session
        self._backend = session.backend
        self._bucket = bucket
        self.catch_up = partial(session.backend.catch_up, bucket)
        self._singular = bucket.removesuffix("s")

    async def get(self, key: str) -> Document | None:
        """Return the object with this key; None if the bucket has no such object."""
        return await self._backend.get(self._bucket, check_name("name", key))

    async def list(self, prefix: str = "", *, everywhere: bool = False) -> Sequence[Object]:
        """Return every object whose key begins with `prefix`, ordered by key.

        With `everywhere`, the objects of all organisations and clusters are included.
        """
        objects: dict[str, Object] = {}
        async with aclosing(self.watch(prefix, everywhere=everywhere)) as changes:
            async for change in changes:
                if isinstance(change, Listed):
                    break
                objects[change.key] = change
        return [objects[key] for key in sorted(objects) if objects[key].document is not None]

    async def watch(
        self, prefix: str = "", *, everywhere: bool = False
    ) -> AsyncGenerator[Object | Listed, None]:
        """Yield each object whose key begins with `prefix`, then `Listed`, then each change.

        The iterator never ends by itself. A deleted object comes with `document` None. If changes
        follow each other closely, only the last of them may come. With `everywhere`, the objects
        of all organisations and clusters are included.
        """
        async with aclosing(
            self._backend.watch(self._bucket, prefix, everywhere=everywhere)
        ) as changes:
            async for change in changes:
                yield change

    async def wait(
        self,
        name: str,
        condition: str,
        status: ConditionStatus = "True",
        *,
        timeout_s: float | None = None,
    ) -> Document:
        """Return the object once the condition has this status for its newest generation.

        The newest generation of a NodePool is the generation of the last command that was accepted
        before the call, even if the read model is still behind it. Raises `NotFound` if the object
        does not exist or is deleted, and `TimedOut` after `timeout_s` seconds; None waits without
        limit.
        """
        return await self.wait_for(
            name,
            lambda document: has_condition(document, condition, status),
            f"{condition}={status}",
            timeout_s=timeout_s,
        )

    async def wait_for(
        self,
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
                place = f"{self._session.org}/{self._session.cluster}"
                raise NotFound(f'{self._singular} "{name}" not found in {place}')
            return is_met(document)

        reached = await self._wait_until_met(name, is_reached, timeout_s)
        if reached is None:
            raise TimedOut(f"timed out waiting for {what} on {self._singular}/{name}")
        return reached

    async def wait_until_created(self, name: str, *, timeout_s: float | None = None) -> Document:
        """Return the object once it exists; raise `TimedOut` after `timeout_s` seconds."""
        created = await self._wait_until_met(name, lambda each: each is not None, timeout_s)
        if created is None:
            raise TimedOut(f"timed out waiting for {self._singular}/{name} to be created")
        return created

    async def _wait_until_met(
        self,
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
                aclosing(self.follow(name)) as changes,
                asyncio.timeout_at(first) as limit,
            ):
                async for document in changes:
                    if is_met(document):
                        return document
                    limit.reschedule(deadline)
        return None

    async def wait_until_gone(self, *names: str, timeout_s: float | None = None) -> None:
        """Wait until all the objects are gone.

        Raises `TimedOut` after `timeout_s` seconds; None waits without limit.
        """
        left = {check_name("name", name) for name in names}
        try:
            async with (
                asyncio.timeout(None if timeout_s is None else max(timeout_s, READ_S)),
                aclosing(self._backend.changes(self._bucket, *names)) as changes,
            ):
                while left:
                    name, document = await anext(changes)
                    if document is None:
                        left.discard(name)
        except TimeoutError:
            shown = f"{self._singular}/{min(left)}"
            if len(left) > 1:
                shown += f" and {len(left) - 1} more"
            raise TimedOut(f"timed out waiting for {shown} to be deleted") from None

    async def follow(self, name: str) -> AsyncGenerator[Document | None, None]:
        """Yield an object and each change of it, without end; None while the object does not exist.

        Skips a NodePool of the read model that is older than what the log has accepted. A NodePool
        that is deleted in the log does not exist.
        """
        check_name("name", name)
        async with aclosing(self._backend.follow(self._bucket, name)) as changes:
            async for document in changes:
                yield document


def document_of(entry: Entry) -> Document | None:
    """Return the object that a message of a bucket holds; None for the mark of its deletion.

    Also returns None if the content is not a JSON object, or holds lone surrogates, which cannot be
    printed. Another client wrote such content, and the aggregator overwrites it.
    """
    if not entry.content or entry.headers.get("KV-Operation") in ("DEL", "PURGE"):
        return None
    try:
        text = entry.content.decode()  # Rejects lone surrogates; json.loads does not.
        document = json.loads(text)
        if "\\u" in text:  # Escapes can also stand for lone surrogates.
            json.dumps(document, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


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
