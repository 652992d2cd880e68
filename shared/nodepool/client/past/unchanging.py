"""What each backend of the past refuses: nothing changes there, and nothing can be changed."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from nodepool.client.backend import Heard
from nodepool.client.objects import Document
from nodepool.client.past.errors import refuse
from nodepool.contract.buckets import Bucket

if TYPE_CHECKING:
    from nodepool.client.sender import A, PendingOutcomes, Sender


class Unchanging:
    """Refuses to wait for changes and to send commands; the methods are those of `Backend`."""

    def follow(self, bucket: Bucket, name: str) -> AsyncGenerator[Document | None, None]:
        """Refuse: nothing changes."""
        raise refuse("wait")

    def changes(
        self, bucket: Bucket, *names: str
    ) -> AsyncGenerator[tuple[str, Document | None], None]:
        """Refuse: nothing changes."""
        raise refuse("wait")

    def hear(self, filters: Sequence[str]) -> AbstractAsyncContextManager[Heard]:
        """Refuse: nothing is said any more."""
        raise refuse("wait for events")

    def sender(self, outcomes: "PendingOutcomes[A]") -> "Sender[A]":
        """Refuse: nothing can be changed."""
        raise refuse("change anything")

    async def settle(self) -> None:
        """Return at once: there are no commands."""
