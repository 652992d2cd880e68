"""Uses the bus as any program does: sends and reads messages with the library of NATS."""

import asyncio
import json
from array import array
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping
from contextlib import aclosing, suppress
from hashlib import blake2b
from typing import NamedTuple

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error, TimeoutError
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from nodepool.contract.log import LOG

PATIENCE = 3
"""How many reads may return no message until a consumer is made again."""
BATCH, WAIT_S, PAUSE_S = 1_000, 1.0, 0.1
CANCEL_S = 1.0
REPLY_S = 3.0
"""How long a reply may take before a command is sent again, in seconds."""
FULL = 10_023
"""The code with which the server refuses a message that it has no room for."""
FAULTS = (Error, OSError)
TRANSPORT = {"Nats-Batch-Id", "Nats-Batch-Sequence", "Nats-Batch-Commit", "Content-Type"}
"""Headers with which services store what they say; readers, and so the archive, leave them out."""


class Message(NamedTuple):
    """A message of the log; `time` is in microseconds."""

    position: int
    time: int
    subject: str
    headers: Mapping[str, str]
    content: bytes

    def digest(self) -> int:
        """Return a digest that identifies the message."""
        headers = sorted(each for each in self.headers.items() if each[0] not in TRANSPORT)
        text = repr((self.position, self.time, self.subject, headers)).encode()
        return int.from_bytes(blake2b(text + self.content, digest_size=8).digest())


async def connected(url: str) -> Client:
    """Return a connection that reconnects whenever the server is back."""

    async def ignore(_error: Exception) -> None:
        """Ignore that a server was killed."""

    return await nats.connect(
        url,
        error_cb=ignore,
        max_reconnect_attempts=-1,
        reconnect_time_wait=0.2,
        connect_timeout=5,
    )


def message_of(found: Msg) -> Message:
    """Return a message from its delivery by a consumer."""
    # $JS.ACK.stream.consumer.delivered.POSITION.number.TIME.pending, or with two more before these.
    position, time = (int(found.reply.split(".")[index]) for index in (-4, -2))
    return Message(position, time // 1_000, found.subject, found.headers or {}, found.data)


async def follow(
    client: Client, stream: str, subject: str, start: int
) -> AsyncGenerator[list[Message]]:
    """What a stream holds from a position on, again and again what is new, perhaps nothing.

    The consumer is made anew whenever it may be gone.
    """
    context = client.jetstream(timeout=REPLY_S)
    while True:
        try:
            config = ConsumerConfig(
                ack_policy=AckPolicy.NONE,
                deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
                opt_start_seq=start,
                inactive_threshold=10,
                mem_storage=True,
            )
            consumer = await context.pull_subscribe(subject, stream=stream, config=config)
            try:
                quiet = 0
                while quiet < PATIENCE:
                    try:
                        found = await consumer.fetch(BATCH, timeout=WAIT_S)
                    except TimeoutError:
                        found = []
                    quiet = 0 if found else quiet + 1
                    read = [message_of(each) for each in found]
                    start = read[-1].position + 1 if read else start
                    yield read
            finally:
                with suppress(*FAULTS):
                    await consumer.unsubscribe()
        except FAULTS:
            yield []
            await asyncio.sleep(PAUSE_S)


class Record:
    """What a reader of the log has seen live: the digest of each message, by its position.

    broken: where it had to begin again behind a gap; empty where it never had to.
    """

    def __init__(self) -> None:
        self.digests = array("Q", [0])
        self.broken: list[str] = []

    @property
    def last(self) -> int:
        """Return the newest position."""
        return len(self.digests) - 1

    async def keep(self, client: Client) -> None:
        """Read until cancelled."""
        async with aclosing(follow(client, LOG, ">", 1)) as found:
            async for messages in found:
                self._note(messages)

    def _note(self, messages: Iterable[Message]) -> None:
        for message in messages:
            if message.position != self.last + 1:
                self.broken.append(f"{message.position} came after {self.last}")
                self.digests.extend([0] * (message.position - self.last - 1))
            self.digests.append(message.digest())


class Sender:
    """Publishes each message until it is acknowledged.

    stored: by position, the digest of subject and content of what was acknowledged.
    full_since: since when the server refuses for want of room, by the loop's clock; 0 if it takes.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self.stored: dict[int, int] = {}
        self.full_since = 0.0
        self.retries = 0

    async def send(self, subject: str, content: bytes, id: str) -> None:
        """Return once the message is stored."""
        clock = asyncio.get_running_loop().time
        while True:
            try:
                reply = await self._client.request(
                    subject, content, timeout=REPLY_S, headers={"Nats-Msg-Id": id}
                )
                answer = json.loads(reply.data)
            except (*FAULTS, ValueError):
                answer = {}
            if answer.get("seq"):
                self.full_since = 0.0
                self.stored[answer["seq"]] = digest_of(subject, content)
                return
            if answer.get("error", {}).get("err_code") == FULL:
                self.full_since = self.full_since or clock()
            self.retries += 1
            await asyncio.sleep(PAUSE_S)


async def end(tasks: Collection["asyncio.Task[None]"]) -> None:
    """Cancel tasks until all have ended.

    On Python 3.11 `asyncio.wait_for`, by which the library of NATS waits, hides that its task was
    cancelled if what it waits for comes at that moment (https://bugs.python.org/issue42130).
    """
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=CANCEL_S)


def digest_of(subject: str, content: bytes) -> int:
    """Return a digest of the subject and the content of a message."""
    return int.from_bytes(blake2b(subject.encode() + b"\0" + content, digest_size=8).digest())
