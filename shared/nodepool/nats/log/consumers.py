"""Consumers without acknowledgements: how a consumer is configured, and what it delivers."""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from nodepool.nats.log.api import Json, request
from nodepool.nats.wire.client import BusClient
from nodepool.nats.wire.errors import STREAM_NOT_FOUND, Conflict, InDoubt, ServerRefusal

if TYPE_CHECKING:
    from nats.aio.subscription import Subscription


SERVICE, VERSION, REPLICA = "nodepool.service", "nodepool.version", "nodepool.replica"
"""The metadata keys of a replica's consumer: its service, its release and its process."""
AGENT = "nodepool.agent"
"""The metadata key of an agent's consumer, in addition to VERSION: its `<org>/<cluster>`."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_OPEN_NS = 30_000_000_000
_INACTIVE_NS = 60_000_000_000
"""How long a consumer may go without a request until the server removes it."""


class Delivery(NamedTuple):
    """How a consumer delivered a message.

    consumer: the consumer's name.
    position: the position of the message in the stream.
    number: how many messages the consumer has delivered, including this message.
    nanoseconds: when the server stored the message, since 1970.
    remaining: how many more messages match the consumer's filters.
    """

    consumer: str
    position: int
    number: int
    nanoseconds: int
    remaining: int

    @property
    def time(self) -> datetime:
        """When the server stored the message, truncated to microseconds."""
        return _EPOCH + timedelta(microseconds=self.nanoseconds // 1000)


def new_name() -> str:
    """Return the name of a new consumer."""
    return f"r{os.urandom(8).hex()}"


def delivery_of(reply: str) -> Delivery:
    """Return the Delivery that the reply subject of a delivered message describes.

    $JS.ACK[.<domain>.<account>].<stream>.<consumer>.<deliveries>.<position>.<number>.<time>
    .<remaining> has nine tokens, or more with the domain.
    """
    tokens = reply.split(".")
    first = 5 if len(tokens) == 9 else 7
    position, number, nanoseconds, remaining = map(int, tokens[first : first + 4])
    return Delivery(tokens[first - 2], position, number, nanoseconds, remaining)


def pull_request(batch: int, heartbeat_s: float) -> bytes:
    """Return the body of a pull request for up to `batch` messages, with heartbeats when idle.

    The request stays open for 30 seconds.
    """
    heartbeat = int(heartbeat_s * 1e9)
    return json.dumps({"batch": batch, "expires": _OPEN_NS, "idle_heartbeat": heartbeat}).encode()


def missing_of(headers: Mapping[str, str]) -> int | None:
    """Return how many messages a pull request will no longer bring, by a status message.

    0 for a heartbeat; None if the pull request cannot be relied on.
    """
    match headers.get("Status"):
        case "100":
            return 0
        case "408" | "409" if "Nats-Pending-Messages" in headers:
            return int(headers["Nats-Pending-Messages"])
    return None


def kept_of(info: Mapping[str, object]) -> dict[str, object]:
    """Return the configuration in the server's description of a consumer, without metadata.

    The metadata names the release of the server, which changes with an upgrade.
    """
    config = info.get("config")
    return {k: v for k, v in config.items() if k != "metadata"} if isinstance(config, dict) else {}


def consumer_config(
    name: str, filters: Sequence[str], start: int, *, newest: bool
) -> dict[str, object]:
    """Return the configuration of a consumer that reads from position `start` on.

    newest: if `start` is the start of the stream, deliver only the newest message per subject.
    """
    if start > 1:
        policy = {"deliver_policy": "by_start_sequence", "opt_start_seq": start}
    else:
        policy = {"deliver_policy": "last_per_subject" if newest else "all"}
    chosen = {"filter_subject": filters[0]} if len(filters) == 1 else {"filter_subjects": filters}
    return {
        "name": name,
        **chosen,
        **policy,
        "ack_policy": "none",
        "mem_storage": True,
        "num_replicas": 1,
        "inactive_threshold": _INACTIVE_NS,
    }


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
        client: BusClient,
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
