"""A pull consumer without acknowledgements: creating it, pulling messages, and deleting it."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from nodepool.nats.api import Json, request
from nodepool.nats.connection import Connection
from nodepool.nats.consumers import Delivery, consumer_config, kept_of, new_name, pull_request
from nodepool.nats.errors import STREAM_NOT_FOUND, Conflict, InDoubt, ServerRefusal

if TYPE_CHECKING:
    from nats.aio.subscription import Subscription

PULL = 2_048
"""The most messages that the server delivers for one pull request."""
GONE = frozenset({10014, STREAM_NOT_FOUND})
"""The error codes for a consumer or a stream that does not exist."""
LOOK_S = 5.0
"""How often to check that nobody has changed the consumer: a paused consumer sends only heartbeats,
and a consumer with changed filters leaves out messages."""


class PullConsumer:
    """One consumer at a time, and the messages that are requested from it.

    receive: awaited for each message that arrives, from this consumer or an earlier consumer.
    changed: called if the server says that the consumer is gone, or that somebody has changed it.
    requested: how many requested messages may still arrive, at most.
    """

    def __init__(
        self,
        client: Connection,
        stream: str,
        receive: Callable[[Msg], Awaitable[None]],
        changed: Callable[[], None],
    ) -> None:
        self._client = client
        self._stream = stream
        self._receive = receive
        self._changed = changed
        self._looking: asyncio.Task[None] | None = None
        self._name = self._inbox = ""
        self._subscription: Subscription | None = None
        self.requested = self._received = 0

    @property
    def name(self) -> str:
        """The name of the consumer on the server; empty while there is no consumer."""
        return self._name

    async def create(
        self, filters: Sequence[str], start: int, metadata: Mapping[str, str], *, newest: bool
    ) -> int:
        """Create a consumer from position `start` on; return how many messages await it.

        metadata: what the consumer shows of its reader. newest: as for `consumer_config`.
        """
        name = new_name()
        await self.drop()
        self._inbox = self._client.new_inbox()
        self.requested = self._received = 0
        self._subscription = await self._client.subscribe(
            self._inbox, cb=self._receive, pending_msgs_limit=0, pending_bytes_limit=0
        )
        config = consumer_config(name, filters, start, newest=newest) | {"metadata": metadata}
        body = {"stream_name": self._stream, "config": config}
        subject = f"$JS.API.CONSUMER.CREATE.{self._stream}.{name}"
        if len(filters) == 1:  # Its subject lets the server permit some filters only.
            subject = f"{subject}.{filters[0]}"
        info = await request(self._client, subject, body)
        self._name = name
        self._looking = asyncio.create_task(self._look(name, kept_of(info)))
        return int(str(info.get("num_pending", 0)))

    async def drop(self) -> None:
        """Delete the consumer, which the server otherwise would forget only after a while."""
        subscription, name = self._subscription, self._name
        self._subscription, self._name = None, ""  # Pull nothing during the deletion.
        if self._looking is not None:
            self._looking.cancel()
        if subscription is not None:
            with suppress(NatsError, OSError):
                await subscription.unsubscribe()
                if name and self._client.is_connected:
                    await self._client.publish(f"$JS.API.CONSUMER.DELETE.{self._stream}.{name}")

    async def _look(self, name: str, made: Json) -> None:
        """Poll until the server no longer has the consumer as created; then report that."""
        subject = f"$JS.API.CONSUMER.INFO.{self._stream}.{name}"
        is_same = True
        while is_same:
            await asyncio.sleep(LOOK_S)
            if self._client.is_closed:
                return
            try:
                is_same = kept_of(await request(self._client, subject)) == made
            except ServerRefusal as refusal:  # Other errors pass, as during elections.
                is_same = refusal.code not in GONE
            except (Conflict, InDoubt, NatsError, OSError):
                continue  # A missing reply means nothing; the reader notices a silent server.
        self._changed()

    async def pull(self, room: int, heartbeat_s: float) -> None:
        """Request more messages while `room` for another request remains."""
        while self._name and self.requested <= room - PULL:
            self.requested += PULL
            subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{self._name}"
            try:
                await self._client.publish(
                    subject, pull_request(PULL, heartbeat_s), reply=self._inbox
                )
            except (NatsError, OSError):
                return

    def is_of(self, delivery: Delivery) -> bool:
        """Return whether a message is of this consumer, and not of one that was given up."""
        return delivery.consumer == self._name

    def took(self, delivery: Delivery) -> bool:
        """Count a message; return False if a message before it is missing."""
        self._received += 1
        self.requested -= 1
        return delivery.number == self._received

    def missed(self, count: int) -> None:
        """Note that `count` requested messages will not come."""
        self.requested -= count
