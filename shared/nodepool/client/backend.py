"""The operations that a client is made of, for its two backends: the bus, and the gateway."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import TYPE_CHECKING, Literal, Protocol

from nodepool.contract.buckets import Bucket
from nodepool.contract.log import Entry

if TYPE_CHECKING:
    from nodepool.client.audit import CommandRecord, Place, Trail
    from nodepool.client.events import ObjectEvent
    from nodepool.client.objects import Document, Listed, Object
    from nodepool.client.recent_events import RecentEvents, Regarded
    from nodepool.client.sender import A, PendingOutcomes, Sender
    from nodepool.contract.events import NodePoolValidated

Through = Literal["bus", "gateway"]
"""How a client works: with JetStream itself, as operators may, or through the gateway."""


class Heard(Protocol):
    """The messages on some subjects, from the moment at which a program began to hear them."""

    async def next(self) -> Sequence[Entry]:
        """Return the messages that have arrived since the previous call, at least one."""
        ...


class Backend(Protocol):
    """What a client does with objects, events and commands.

    Every method may raise `Unreachable`, and `Refused` for what the user may not see.
    """

    async def get(self, bucket: Bucket, key: str) -> "Document | None":
        """Return an object as the read model shows it; None if there is no such object."""
        ...

    def watch(
        self, bucket: Bucket, prefix: str, *, everywhere: bool
    ) -> "AsyncGenerator[Object | Listed, None]":
        """Yield objects, `Listed` and changes, as `Objects.watch` describes."""
        ...

    def follow(self, bucket: Bucket, name: str) -> "AsyncGenerator[Document | None, None]":
        """Yield an object and each change of it, as `Objects.follow` describes."""
        ...

    def changes(
        self, bucket: Bucket, *names: str
    ) -> "AsyncGenerator[tuple[str, Document | None], None]":
        """Yield each object, and each change of an object; None if the object does not exist."""
        ...

    async def catch_up(self, bucket: Bucket, *, everywhere: bool = False) -> bool:
        """Wait until reading shows what the log has accepted; return False if it does not yet."""
        ...

    async def find_stored(self, pool: str) -> "NodePoolValidated | None":
        """Return the newest spec of a NodePool, with its verdict; None without a NodePool."""
        ...

    async def find_zone(self) -> str | None:
        """Return the zone of the client's cluster; None if the cluster is not registered."""
        ...

    async def list_clusters(self) -> Sequence[tuple[str, str]]:
        """Return organisation and name of each cluster that the user may see, in their order."""
        ...

    async def explain(self, pool: str) -> "Document | None":
        """Return why a NodePool lacks Nodes, as `Explanation.document` does.

        Returns None if the explanation has to be computed from the objects.
        """
        ...

    def events(
        self, pool: str, node: str, *, since: datetime | None, after: int, follow: bool
    ) -> "AsyncGenerator[ObjectEvent, None]":
        """Yield events of the cluster, as `Events.read` describes."""
        ...

    async def recent_events(
        self, since: "Mapping[Regarded, datetime]", pools: Sequence[str]
    ) -> "RecentEvents":
        """Return the events of some objects, as `Events.recent` describes."""
        ...

    async def read_audit(self, trail: "Trail", place: "Place") -> None:
        """Read commands and their outcomes into a trail, as `AuditLog.read` describes."""
        ...

    async def find_last_change(self, pool: str) -> "CommandRecord | None":
        """Return the command that changed a NodePool last, as `AuditLog` describes."""
        ...

    async def newest_position(self) -> int:
        """Return the position of the newest message in the log; 0 while the log is empty."""
        ...

    def hear(self, filters: Sequence[str]) -> AbstractAsyncContextManager[Heard]:
        """Hear events that are stored from now on, for the time of the context."""
        ...

    def sender(self, outcomes: "PendingOutcomes[A]") -> "Sender[A]":
        """Return what sends commands; `outcomes` receives what is heard of them."""
        ...

    async def settle(self) -> None:
        """Return once reading can show what the commands so far have changed."""
        ...
