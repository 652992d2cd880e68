"""What a program needs that keeps up with one cluster: its objects, and its part of the log.

There is a mirror for each of the two ways in which a client works.
"""

from collections.abc import AsyncGenerator, Collection
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from nodepool.client.backend import Heard
from nodepool.client.errors import ClientError
from nodepool.client.objects import Listed, Object
from nodepool.client.session import Session
from nodepool.contract.buckets import Bucket
from nodepool.contract.log import LogId
from nodepool.nats.log.pages import Page
from nodepool.nats.wire.errors import ConnectionClosed, InDoubt, ServerRefusal, StreamChanged
from nodepool.nats.wire.library import NatsError

if TYPE_CHECKING:
    from nodepool.contract.messages import Event

PAGE: Final = 1_000
"""The most events of a page."""
FAULTS: Final = (
    ClientError,
    ConnectionClosed,
    InDoubt,
    NatsError,
    OSError,
    ServerRefusal,
    StreamChanged,
)
"""What a mirror raises: passing errors, and `StreamChanged`, after which everything is
to be read anew, since the log or the read model is another one."""


class LogState(NamedTuple):
    """The identity of the log, the position of its newest message, and when that was so."""

    id: LogId
    end: int
    time: datetime


class Mirror(Protocol):
    """Reads what the control plane says of the cluster of a client.

    Every method may raise one of `FAULTS`.
    """

    async def open(self) -> LogState:
        """Return the state of the log, as soon as there is a log."""
        ...

    async def find_state(self) -> LogState:
        """Return the state of the log now."""
        ...

    def objects(self, bucket: Bucket, not_older_than: int) -> AsyncGenerator[Object | Listed, None]:
        """Yield all objects of the cluster, `Listed`, and every change from then on.

        not_older_than: a position up to which `catch_up` has found the read model to be current.
        """
        ...

    async def read(
        self,
        names: Collection[str],
        *,
        pool: str = "",
        after: int = 0,
        since: datetime | None = None,
        limit: int = PAGE,
    ) -> Page:
        """Return events of these names about the cluster, or about a NodePool of the cluster.

        The page says where the log begins: what was trimmed may be missing.
        """
        ...

    async def newest(self, names: Collection[str], pool: str) -> Page:
        """Return the newest event of each of these few names about a NodePool."""
        ...

    def follow(self, names: Collection[str], after: int) -> AbstractAsyncContextManager[Heard]:
        """Read all events of these names about the cluster that are stored after a position."""
        ...

    async def publish(self, event: "Event") -> None:
        """Have an observation stored; an error says that it may or may not be stored."""
        ...


def mirror_of(session: Session, release: str) -> Mirror:
    """Return the mirror for the way in which the client of a session works.

    release: that of the agent which reads, for `nodepool doctor`.
    """
    if session.through == "gateway":
        from nodepool.client.gateway_mirror import GatewayMirror

        return GatewayMirror(session, release)
    from nodepool.client.bus_mirror import BusMirror

    return BusMirror(session, release)
