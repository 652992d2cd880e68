"""A connection to NATS that reconnects for ever and reports when it was lost and is back."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from nats.aio.client import Client
from nats.errors import ConnectionReconnectingError, NoServersError
from nats.errors import Error as NatsError

from nodepool.nats.errors import Unreachable

Listener = Callable[[], None]
ErrorListener = Callable[[Exception], None]
RETRY_S = 0.05
"""The pause between two attempts to reach a server."""
PINGS = 1
"""How many pings a server may leave without a reply."""

_BATCH = b"NATS/1.0\r\nNats-Batch-Id:"
_SEQUENCE = b"\r\nNats-Sequence:"


class Connection(Client):
    """A client whose events can be observed.

    on_disconnect: called when the server is gone.
    on_reconnect: called when a server is connected again.
    on_error: called with errors that belong to no call, such as a denied publish.
    """

    def __init__(self) -> None:
        super().__init__()
        self.on_disconnect: list[Listener] = []
        self.on_reconnect: list[Listener] = []
        self.on_error: list[ErrorListener] = []

    async def _process_headers(self, headers: bytes | None) -> dict[str, str] | None:
        # Parsing headers is a tenth of what receiving a message costs, and readers need none of
        # those that a commit puts on its outputs. Should a later client no longer call this method,
        # reading is slower and otherwise the same. A reply to a direct get names its sequence in a
        # header, and is parsed.
        if headers is not None and headers.startswith(_BATCH) and _SEQUENCE not in headers:
            return None
        return await super()._process_headers(headers)

    async def disconnected(self) -> None:
        """Fails every pending request and notifies observers; the client calls it."""
        # Replies on their way are lost with the server; the client itself would wait for them.
        for pending in tuple(self._resp_map.values()):
            if not pending.done():
                pending.set_exception(ConnectionReconnectingError())
        for notify in tuple(self.on_disconnect):
            notify()

    async def reconnected(self) -> None:
        """Notifies observers; the client calls it."""
        for notify in tuple(self.on_reconnect):
            notify()

    async def failed(self, error: Exception) -> None:
        """Notifies observers of an error that belongs to no call; the client calls it."""
        for notify in tuple(self.on_error):
            notify(error)


async def connect(
    url: str, name: str, *, patience_s: float | None = 5.0, silence_s: float = 240.0
) -> Connection:
    """A connection that finds its server again by itself; `name` is what the server shows for it.

    A server that has not replied to a ping for about `silence_s` seconds counts as gone. Raises
    Unreachable where no server answers within `patience_s` seconds; None waits for ever.
    """
    connection = Connection()
    attempt = connection.connect(
        servers=[url],
        name=name,
        max_reconnect_attempts=-1,
        reconnect_time_wait=RETRY_S,  # type: ignore[arg-type]  # Any number will do.
        pending_size=8 << 20,
        allow_reconnect=True,
        ping_interval=silence_s / (PINGS + 1),  # type: ignore[arg-type]  # Any number will do.
        max_outstanding_pings=PINGS,
        connect_timeout=2,
        disconnected_cb=connection.disconnected,
        reconnected_cb=connection.reconnected,
        error_cb=connection.failed,
    )
    try:
        await asyncio.wait_for(attempt, patience_s)
    except (TimeoutError, NoServersError, OSError) as error:
        with suppress(NatsError, OSError):
            await connection.close()
        raise Unreachable(
            f"no NATS server answers at {url}: start one with 'make run', or set NODEPOOL_URL"
        ) from error
    return connection
