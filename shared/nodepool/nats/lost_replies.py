"""Replies that will not come, because the server that should send them is gone."""

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from nodepool.nats.errors import InDoubt

if TYPE_CHECKING:
    from nodepool.nats.connection import Connection

T = TypeVar("T")
SERVER_LOST_S = 0.5
"""How long a reply may take after the cluster has lost a server, which may be the one to reply."""


def doubt_when_lost(
    connection: "Connection", waiting: "Callable[[], Iterable[asyncio.Future[T]]]"
) -> None:
    """Fail waiting replies with InDoubt as soon as their connection or server may be lost.

    waiting: returns all futures that wait for a reply when it is called.
    """

    def connection_lost() -> None:
        give_up(waiting(), partial(InDoubt, "the connection was lost"))

    def server_lost() -> None:
        error = partial(InDoubt, "a server was lost")
        asyncio.get_running_loop().call_later(SERVER_LOST_S, give_up, tuple(waiting()), error)

    connection.on_disconnect.append(connection_lost)
    connection.on_server_lost.append(server_lost)


def give_up(waiting: "Iterable[asyncio.Future[T]]", error: Callable[[], Exception]) -> None:
    """Fail each future that has no reply yet with an error of its own."""
    for reply in tuple(waiting):
        if not reply.done():
            reply.set_exception(error())
            reply.exception()  # The task that awaited the reply may have been cancelled.
