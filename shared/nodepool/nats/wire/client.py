"""A client of NATS whose requests fail early if the server that should reply is gone."""

import asyncio
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import TypeVar

from nodepool.nats.wire.errors import InDoubt
from nodepool.nats.wire.library import (
    Client,
    ConnectionReconnectingError,
    Msg,
    format_publish,
)
from nodepool.nats.wire.waiting import heeding

Listener = Callable[[], None]
HURRY_S = 15.0
"""How long the other servers may be electing new leaders after a server is lost."""
HURRIED_S = 0.5
"""How long a reply may take during that time: without a leader, a request never gets a reply."""
SERVER_LOST_S = 0.5
"""How long a reply may take after the cluster has lost a server, which may be the one to reply."""
NAMES_MAX = 256
"""How many names of headers are remembered as valid or not; a program uses a dozen."""
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""The name of a header, by https://www.rfc-editor.org/rfc/rfc9110#name-tokens."""

T = TypeVar("T")


class BusClient(Client):
    """A client whose requests fail soon after their server, or its connection, is lost.

    on_disconnect: called when the connection is lost.
    on_reconnect: called when a server is connected again.
    on_server_lost: called when the connected server has lost another server of the cluster.
    may_change_streams: whether the server has denied no change of a stream to the user so far.
    """

    def __init__(self) -> None:
        super().__init__()
        self.on_disconnect: list[Listener] = []
        self.on_reconnect: list[Listener] = []
        self.on_server_lost: list[Listener] = []
        self.may_change_streams = True
        self._lost_at = -HURRY_S
        self._deniable: list[tuple[str, asyncio.Future[None]]] = []

    @property
    def hurries(self) -> bool:
        """Whether a server was lost lately, so that a request may have to be sent again soon."""
        return time.monotonic() - self._lost_at < HURRY_S

    async def request(
        self,
        subject: str,
        payload: bytes = b"",
        timeout: float = 0.5,  # noqa: ASYNC109  # As nats-py has it.
        old_style: bool = False,
        headers: dict[str, str] | None = None,
    ) -> Msg:
        """Return the reply to a message; always heed a cancellation of the calling task."""
        return await heeding(super().request(subject, payload, timeout, old_style, headers))

    async def _send_publish(
        self,
        subject: str,
        reply: str,
        payload: bytes,
        payload_size: int,
        headers: dict[str, str] | None,
    ) -> None:
        block = format_headers(headers) if headers else None
        if block is None:  # nats-py raises an error for a bad name, and cleans a value.
            await super()._send_publish(subject, reply, payload, payload_size, headers)
            return
        self.stats["out_msgs"] += 1
        self.stats["out_bytes"] += payload_size
        await self._send_command(format_publish(subject, reply, block, payload))
        if self._flush_queue is not None and self._flush_queue.empty():
            await self._flush_pending()

    @contextmanager
    def await_denial(self, subject: str) -> "Iterator[asyncio.Future[None]]":
        """Provide a future that is done once the server denies to publish on a subject."""
        denied = subject.lower(), asyncio.get_running_loop().create_future()
        self._deniable.append(denied)
        try:
            yield denied[1]
        finally:
            self._deniable.remove(denied)

    def note_denial(self, subject: str) -> bool:
        """Note that the server denies a subject, in lower case; return whether this is awaited."""
        awaited = [denied for each, denied in self._deniable if each == subject]
        for denied in awaited:
            if not denied.done():
                denied.set_result(None)
        return bool(awaited)

    async def handle_disconnect(self) -> None:
        """Fail every pending request and notify observers; the client calls this method."""
        # Pending replies are lost with the connection; the client itself would wait for them.
        self._lost_at = time.monotonic()
        give_up(self._resp_map.values(), ConnectionReconnectingError)
        notify(self.on_disconnect)

    def _server_lost(self) -> None:
        self._lost_at = time.monotonic()
        waiting = tuple(self._resp_map.values())
        asyncio.get_running_loop().call_later(
            SERVER_LOST_S, give_up, waiting, ConnectionReconnectingError
        )
        notify(self.on_server_lost)


def format_headers(headers: Mapping[str, str]) -> bytes | None:
    """Return headers as a message carries them; None if a name or a value breaks a line.

    nats-py takes most of the time of a publish for the same, as it looks at each character.
    """
    lines = "".join([f"{name}: {value.strip()}\r\n" for name, value in headers.items()])
    has_breaks = lines.count("\r") + lines.count("\n") > 2 * len(headers)
    if has_breaks or not all(map(_is_header_name, headers)):
        return None
    return f"NATS/1.0\r\n{lines}\r\n".encode()


@lru_cache(NAMES_MAX)
def _is_header_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def notify(listeners: Iterable[Listener]) -> None:
    """Call each listener; a listener may remove itself and others meanwhile."""
    for call in tuple(listeners):
        call()


def doubt_when_lost(
    client: BusClient, waiting: "Callable[[], Iterable[asyncio.Future[T]]]"
) -> None:
    """Fail waiting replies with InDoubt as soon as their connection or server may be lost.

    waiting: returns all futures that wait for a reply when it is called.
    """

    def connection_lost() -> None:
        give_up(waiting(), partial(InDoubt, "the connection was lost"))

    def server_lost() -> None:
        error = partial(InDoubt, "a server was lost")
        asyncio.get_running_loop().call_later(SERVER_LOST_S, give_up, tuple(waiting()), error)

    client.on_disconnect.append(connection_lost)
    client.on_server_lost.append(server_lost)


def give_up(waiting: "Iterable[asyncio.Future[T]]", error: Callable[[], Exception]) -> None:
    """Fail each future that has no reply yet with an error of its own."""
    for reply in tuple(waiting):
        if not reply.done():
            fail(reply, error())


def fail(reply: "asyncio.Future[T]", error: Exception) -> None:
    """Fail a future of which asyncio reports nothing: the task that awaited it may be cancelled."""
    reply.set_exception(error)
    reply.exception()
