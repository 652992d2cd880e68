"""Waiting until NodePools have a condition, or are gone."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Final

from nodepool.client.errors import NotFound, TimedOut
from nodepool.client.names import checked
from nodepool.client.read_model import Document, ReadModel, document_of
from nodepool.client.session import FILTERS_MAX
from nodepool.contract.events import CWNodePoolDeleted, NodePoolValidated
from nodepool.contract.model import ConditionStatus
from nodepool.contract.subjects import token

READ_MODEL_LAG_S: Final = 0.2
"""A NodePool that the read model has not shown for so many seconds is looked up in the log."""


class Waiting(ReadModel):
    """The part of a client that waits for a state of NodePools."""

    async def wait(
        self,
        pool: str,
        condition: str,
        status: ConditionStatus = "True",
        *,
        timeout_s: float | None = None,
    ) -> Document:
        """The NodePool, once the condition has that status for its newest generation.

        Raises `NotFound` where there is no such NodePool or it is deleted, and `TimedOut` after
        `timeout_s` seconds; None waits without limit.
        """
        try:
            async with asyncio.timeout(timeout_s), aclosing(self._changes(pool)) as changes:
                async for _, document in changes:
                    if document is None:
                        raise NotFound(f'nodepool "{pool}" not found in {self.org}/{self.cluster}')
                    if has_condition(document, condition, status):
                        return document
        except TimeoutError:
            pass
        raise TimedOut(f"timed out waiting for {condition}={status} on nodepool/{pool}")

    async def wait_until_gone(self, *pools: str, timeout_s: float | None = None) -> None:
        """Returns once none of the NodePools exists.

        Raises `TimedOut` after `timeout_s` seconds; None waits without limit.
        """
        left = set(pools)
        try:
            async with asyncio.timeout(timeout_s), aclosing(self._changes(*pools)) as changes:
                while left:
                    pool, document = await anext(changes)
                    if document is None:
                        left.discard(pool)
        except TimeoutError:
            names = f"nodepool/{min(left)}"
            if len(left) > 1:
                names += f" and {len(left) - 1} more"
            raise TimedOut(f"timed out waiting for {names} to be deleted") from None

    async def _changes(self, *pools: str) -> AsyncGenerator[tuple[str, Document | None], None]:
        """Each of the NodePools, and each change of them; None for one that does not exist."""
        prefix = self._prefix("nodepools")
        wanted = frozenset(checked("name", pool) for pool in pools)
        unseen = set(wanted)
        filters = [prefix + pool for pool in sorted(wanted)]
        if len(filters) > FILTERS_MAX:
            filters = [f"{prefix}>"]
        async with self._reader("KV_nodepools", filters, newest=True) as reader:
            while True:
                entries = await reader.next(READ_MODEL_LAG_S if unseen else None)
                for entry in entries:
                    pool = entry.subject[len(prefix) :]
                    if pool in wanted:
                        unseen.discard(pool)
                        yield pool, document_of(entry)
                for pool in sorted(unseen) if not entries else ():
                    # Under load the read model may be behind the log.
                    if not await self._exists_in_log(pool):
                        unseen.discard(pool)
                        yield pool, None

    async def _exists_in_log(self, pool: str) -> bool:
        """Whether the NodePool was created and not deleted since, as the log has it."""
        created = await self._last_event(NodePoolValidated, token(pool))
        deleted = await self._last_event(CWNodePoolDeleted, token(pool))
        return created is not None and (deleted is None or deleted.position < created.position)


def has_condition(document: Document, condition: str, status: str) -> bool:
    """Whether a condition, in any case, has this status for the object's newest generation."""
    metadata, state = document.get("metadata"), document.get("status")
    conditions = state.get("conditions") if isinstance(state, Mapping) else None
    generation = metadata.get("generation") if isinstance(metadata, Mapping) else None
    for candidate in conditions or ():
        if str(candidate.get("type")).lower() == condition.lower():
            is_current: bool = candidate.get("observedGeneration") == generation
            return is_current and str(candidate.get("status")).lower() == status.lower()
    return False
