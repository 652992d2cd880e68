"""The log on NATS JetStream: how it is set up, read by position, and written under a condition.

The client's own readers stay silent for many seconds after a server restart, and what it calls
published may still be in doubt. So reading, publishing and committing are done here.
"""

import asyncio
import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TypeVar

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import ConnectionReconnectingError, MaxPayloadError, NoServersError
from nats.errors import Error as NatsError

from nodepool.contract.log import Entry
from nodepool.contract.messages import CONTENT_TYPE
from nodepool.engine.replica import Outgoing, Proposal

S = TypeVar("S")
STREAM = "NODEPOOL"
SNAPSHOTS = "NODEPOOL_SNAPSHOTS"
BUCKETS = ("nodepools", "nodes", "quotas", "capacity")
RETRY_S = 0.05
ANSWER_S = 5.0
"""How long an output of the server is waited for."""
CONFLICTS = frozenset({10071, 10164, 10201})
"""Wrong last sequence, one in flight, a duplicate in a batch: another has spoken before us."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_OF_A_BATCH = b"NATS/1.0\r\nNats-Batch-Id:"
_ASKED_FOR = b"\r\nNats-Sequence:"

Config = Mapping[str, object]


class Unreachable(Exception):
    """No server outputs; the message is one line that says which and what to do."""


class Conflict(Exception):
    """The condition of a publish does not hold: somebody else was first. Nothing was stored."""


class InDoubt(Exception):
    """Nobody knows whether the message is stored; reading on will tell."""


class ServerRefusal(Exception):
    """The server will not do it, for a reason of its own (no space, wrong set-up); one line."""

    def __init__(self, code: int, description: str) -> None:
        super().__init__(f"the server refuses: {description} ({code})")
        self.code = code


class Connection(Client):
    """A connection that tells those who ask when it was lost and when it is back."""

    def __init__(self) -> None:
        super().__init__()
        self.on_lost: list[Callable[[], None]] = []
        self.on_back: list[Callable[[], None]] = []
        self.errors: list[Callable[[Exception], None]] = []

    async def _process_headers(self, headers: bytes | None) -> dict[str, str] | None:
        # Answers carry nothing in their headers that a reader needs, and taking headers apart is a
        # tenth of what a message costs. A client that does without this hook only reads slower.
        if headers is not None and headers.startswith(_OF_A_BATCH) and _ASKED_FOR not in headers:
            return None
        return await super()._process_headers(headers)

    async def lost(self) -> None:
        """Called by the client when the server is gone."""
        # Answers on their way are lost with it; left to itself the client waits for them.
        for waiting in tuple(self._resp_map.values()):
            if not waiting.done():
                waiting.set_exception(ConnectionReconnectingError())
        for listener in tuple(self.on_lost):
            listener()

    async def back(self) -> None:
        """Called by the client when a server was found again."""
        for listener in tuple(self.on_back):
            listener()

    async def failed(self, error: Exception) -> None:
        """Called by the client with errors that belong to no call, such as a denied publish."""
        for listener in tuple(self.errors):
            listener(error)


async def connect(url: str, name: str, *, patience_s: float | None = 5.0) -> Connection:
    """A connection that finds its server again by itself.

    Raises Unreachable where none outputs within `patience_s` seconds; None waits for ever.
    """
    connection = Connection()
    attempt = connection.connect(
        servers=[url],
        name=name,
        max_reconnect_attempts=-1,
        reconnect_time_wait=RETRY_S,  # type: ignore[arg-type]  # Any number will do.
        pending_size=8 << 20,
        allow_reconnect=True,
        connect_timeout=2,
        disconnected_cb=connection.lost,
        reconnected_cb=connection.back,
        error_cb=connection.failed,
    )
    try:
        await asyncio.wait_for(attempt, patience_s)
    except (TimeoutError, NoServersError, OSError) as error:
        with suppress(NatsError, OSError):
            await connection.close()
        raise Unreachable(
            f"no NATS server outputs at {url}: start one with 'make run', or set NODEPOOL_URL"
        ) from error
    return connection


async def ask(client: Client, subject: str, body: Config | None = None) -> dict[str, object]:
    """The output of the server's API; raises Conflict, ServerRefusal, InDoubt, or a NATS error."""
    content = json.dumps(body).encode() if body is not None else b""
    return _reply(await client.request(subject, content, timeout=ANSWER_S))


def _reply(message: Msg) -> dict[str, object]:
    if message.headers and message.headers.get("Status") == "503":
        raise InDoubt("JetStream does not output")
    reply: dict[str, object] = json.loads(message.data)
    error = reply.get("error")
    if isinstance(error, dict):
        code, description = int(error.get("err_code", 0)), str(error.get("description"))
        if code in CONFLICTS:
            raise Conflict(description)
        raise ServerRefusal(code, description)
    return reply


def streams(replicas: int = 1) -> dict[str, Config]:
    """Every stream there is, by name, as it is to be set up; buckets are streams too.

    The log never loses a message; rows and snapshots can be made again from it, so with one copy
    they need no fsync of their own.
    """
    rebuildable: Config = {"persist_mode": "async"} if replicas == 1 else {}
    log: Config = {
        "name": STREAM,
        "subjects": ["np.>"],
        "storage": "file",
        "num_replicas": replicas,
        "allow_atomic": True,
        "allow_direct": True,
        "deny_delete": True,
        "deny_purge": True,
        "discard": "new",
        "duplicate_window": 120_000_000_000,
    }
    snapshots: Config = {
        "name": SNAPSHOTS,
        "subjects": ["np-snapshot.>"],
        "storage": "file",
        "num_replicas": replicas,
        "max_msgs_per_subject": 1,
        "allow_direct": True,
        **rebuildable,
    }
    found = {STREAM: log, SNAPSHOTS: snapshots}
    for bucket in BUCKETS:
        found[f"KV_{bucket}"] = {
            "name": f"KV_{bucket}",
            "subjects": [f"$KV.{bucket}.>"],
            "storage": "file",
            "num_replicas": replicas,
            "max_msgs_per_subject": 1,
            "allow_direct": True,
            "allow_rollup_hdrs": True,
            "allow_msg_ttl": True,
            "deny_delete": True,
            "discard": "new",
            **rebuildable,
        }
    return found


async def provision(client: Client, replicas: int = 1) -> None:
    """Makes every stream that is missing; one that is there with other settings is updated."""
    for name, config in streams(replicas).items():
        try:
            await ask(client, f"$JS.API.STREAM.CREATE.{name}", config)
        except ServerRefusal as refusal:
            if refusal.code != 10058:  # The name is in use with other settings.
                raise
            await ask(client, f"$JS.API.STREAM.UPDATE.{name}", config)


async def last_position(client: Client, stream: str) -> int:
    """The position of the newest message of a stream; 0 for an empty one."""
    state = (await ask(client, f"$JS.API.STREAM.INFO.{stream}")).get("state")
    assert isinstance(state, dict), "a stream's info has a state"
    return int(state["last_seq"])


async def last_of(client: Client, stream: str, subject: str) -> Entry | None:
    """The newest message on a subject; None where there is none."""
    body = json.dumps({"last_by_subj": subject}).encode()
    reply = await client.request(f"$JS.API.DIRECT.GET.{stream}", body, timeout=ANSWER_S)
    headers = reply.headers or {}
    if headers.get("Status") == "404":
        return None
    if "Nats-Sequence" not in headers:
        raise InDoubt(f"no output about {subject}: {headers.get('Status')}")
    stamp = datetime.fromisoformat(headers["Nats-Time-Stamp"][:26].rstrip("Z") + "+00:00")
    return Entry(int(headers["Nats-Sequence"]), stamp, subject, reply.data, headers)


async def publish(
    client: Client,
    subject: str,
    content: bytes,
    *,
    id: str = "",
    headers: Mapping[str, str] | None = None,
    timeout_s: float = ANSWER_S,
) -> int:
    """Stores one message and returns its position.

    Raises Conflict where a condition in `headers` does not hold, InDoubt without an output in time.
    """
    given = {"Nats-Msg-Id": id, "Content-Type": CONTENT_TYPE} if id else {}
    try:
        reply = _reply(
            await client.request(
                subject, content, timeout=timeout_s, headers={**given, **(headers or {})}
            )
        )
    except (NatsError, OSError) as error:
        raise InDoubt(f"{subject} may or may not be stored: {error}") from error
    return int(str(reply["seq"]))


class Committer:
    """Stores proposals: all outputs and the commit record as one atomic batch, or nothing.

    The condition on the record is all that keeps an output from being stored twice. Its messages
    have no `Nats-Msg-Id`: whoever used such an id before us would have the whole batch refused.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._waiting: asyncio.Future[Msg] | None = None
        connection.on_lost.append(self._lost)

    def _lost(self) -> None:
        # An output that was on its way is lost with the connection: no use to wait for it.
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(InDoubt("the connection was lost"))

    async def commit(self, service: str, proposal: Proposal[S]) -> int:
        """The position of the commit record; raises Conflict, InDoubt or ServerRefusal."""
        messages = proposal.messages
        expected_sequence = {"Nats-Expected-Last-Subject-Sequence": str(proposal.expected_sequence)}
        if not messages:
            return await self._stored(proposal, expected_sequence)
        batch = os.urandom(8).hex()
        await self._said(batch, messages)
        last = {"Nats-Batch-Sequence": str(len(messages) + 1), "Nats-Batch-Commit": "1"}
        return await self._stored(proposal, {"Nats-Batch-Id": batch, **last, **expected_sequence})

    async def _said(self, batch: str, messages: Sequence[Outgoing]) -> None:
        try:
            for number, message in enumerate(messages, 1):
                headers = {
                    "Nats-Batch-Id": batch,
                    "Nats-Batch-Sequence": str(number),
                    "Content-Type": CONTENT_TYPE,
                }
                await self._connection.publish(message.subject, message.content, headers=headers)
        except MaxPayloadError as error:
            raise ServerRefusal(0, "an output is larger than the bus takes") from error
        except (NatsError, OSError) as error:
            raise InDoubt(f"the batch was not sent whole: {error}") from error

    async def _stored(self, proposal: Proposal[S], headers: Mapping[str, str]) -> int:
        loop = asyncio.get_running_loop()
        self._waiting = loop.create_future()
        inbox = self._connection.new_inbox()
        subscription = await self._connection.subscribe(inbox, future=self._waiting, max_msgs=1)
        try:
            await self._connection.publish(
                proposal.subject, proposal.record(), reply=inbox, headers=dict(headers)
            )
            reply = _reply(await asyncio.wait_for(self._waiting, ANSWER_S))
        except (NatsError, OSError, TimeoutError) as error:
            raise InDoubt(f"the commit may or may not be stored: {error}") from error
        finally:
            self._waiting = None
            with suppress(NatsError, OSError):
                await subscription.unsubscribe()
        return int(str(reply["seq"]))


class Publisher:
    """Publishes without waiting for each output; at most `window` are on their way."""

    def __init__(self, connection: Connection, window: int = 512) -> None:
        self._connection = connection
        self._room = asyncio.Semaphore(window)
        self._inbox = connection.new_inbox()
        self._cut = len(self._inbox) + 1
        self._count = 0
        self._waiting: dict[int, asyncio.Future[int]] = {}
        connection.on_lost.append(self._lost)

    async def open(self) -> None:
        """Begins to listen for outputs."""
        await self._connection.subscribe(f"{self._inbox}.*", cb=self._answered)

    def _lost(self) -> None:
        for waiting in tuple(self._waiting.values()):
            if not waiting.done():
                waiting.set_exception(InDoubt("the connection was lost"))

    async def _answered(self, message: Msg) -> None:
        waiting = self._waiting.get(int(message.subject[self._cut :]))
        if waiting is None or waiting.done():
            return
        try:
            waiting.set_result(int(str(_reply(message)["seq"])))
        except (Conflict, InDoubt, ServerRefusal) as error:
            waiting.set_exception(error)

    async def send(
        self, subject: str, content: bytes, headers: Mapping[str, str] | None = None
    ) -> "asyncio.Future[int]":
        """Sends a message as soon as there is room; its position comes later, or what went wrong.

        Raises InDoubt where it could not be sent.
        """
        await self._room.acquire()
        self._count += 1
        number = self._count
        waiting = self._waiting[number] = asyncio.get_running_loop().create_future()
        waiting.add_done_callback(lambda _: self._done(number))
        try:
            await self._connection.publish(
                subject, content, reply=f"{self._inbox}.{number}", headers=dict(headers or {})
            )
        except (NatsError, OSError) as error:
            waiting.cancel()
            raise InDoubt(f"{subject} was not sent: {error}") from error
        return waiting

    def _done(self, number: int) -> None:
        del self._waiting[number]
        self._room.release()

    async def publish(
        self, subject: str, content: bytes, headers: Mapping[str, str] | None = None
    ) -> int:
        """The position once it is stored; raises as the function of this name does."""
        waiting = await self.send(subject, content, headers)
        try:
            return await asyncio.wait_for(waiting, ANSWER_S)
        except TimeoutError as error:
            raise InDoubt(f"{subject} may or may not be stored: no output") from error
