"""A client's connection to one control plane, on behalf of one organisation and cluster."""

import asyncio
import getpass
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Final, Self

from nats.errors import Error as NatsError

from nodepool.client.errors import Unreachable, denied, not_responding, translated
from nodepool.client.names import checked
from nodepool.contract.log import Entry
from nodepool.nats import api, errors
from nodepool.nats.access import NO_ACCESS, Access
from nodepool.nats.access_files import AccessError
from nodepool.nats.addresses import without_password
from nodepool.nats.connection import RETRY_S, Connection, connect
from nodepool.nats.errors import STREAM_NOT_FOUND, Denied, ServerRefusal
from nodepool.nats.lost_replies import give_up
from nodepool.nats.reader import Reader
from nodepool.nats.streams import STREAM

PERMISSION: Final = "permissions violation for "
"""The server's text before the subject that the user has no permission for."""
URL: Final = "nats://127.0.0.1:4222"
TIMEOUT_S: Final = 10.0
"""How long an outcome or a reply of the server may take by default, in seconds."""
CONNECTING_S: Final = 5.0
"""How long connecting may take at most, in seconds."""
FILTERS_MAX: Final = 16
"""The most filters on one reader; with more, it is cheaper to filter on the client."""


class Session:
    """A connection to the control plane, on which the parts of a client are built.

    Use it as `async with`. Every method of a part may raise `Unreachable`.
    """

    def __init__(
        self,
        url: str = URL,
        *,
        org: str = "demo",
        cluster: str = "demo",
        timeout_s: float = TIMEOUT_S,
        source: str = "nodepool-client",
        access: Access = NO_ACCESS,
    ) -> None:
        self.url = url
        self.org = checked("org", org)
        self.cluster = checked("cluster", cluster)
        self.timeout_s = timeout_s
        self._source = f"{source}/{_user()}"
        self._access = access
        self._open_connection: Connection | None = None
        self._denied = ""

    async def __aenter__(self) -> Self:
        address = without_password(self.url)
        try:
            self._open_connection = await connect(
                self.url,
                self._source,
                patience_s=min(self.timeout_s, CONNECTING_S),
                silence_s=self.timeout_s,
                access=self._access,
            )
        except errors.Unreachable as error:
            raise Unreachable(
                f"no NATS server responds at {address} ({error.reason}): start one with"
                " 'nodepool up', or set NODEPOOL_URL"
            ) from None
        except AccessError as error:
            raise Unreachable(f"{error.field}: {error}") from None
        except (NatsError, ValueError):
            raise Unreachable(
                f"{address!r} is not the address of a server: write it as nats://HOST:PORT"
            ) from None
        self._open_connection.on_error.append(self._note_denial)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._open_connection is not None:
            self._open_connection.on_disconnect.clear()  # Closing is not a lost connection.
            with suppress(NatsError, OSError):
                await self._open_connection.close()

    def _note_denial(self, error: Exception) -> None:
        """Fail the requests that wait for a reply: after a denial by the server, no reply comes."""
        _, is_denial, place = str(error).partition(PERMISSION)
        if not is_denial:
            return
        self._denied = place.strip()
        give_up(self._connection._resp_map.values(), partial(Denied, 0, self._denied))

    def observe(self, lost: Callable[[], None], back: Callable[[], None]) -> None:
        """Call `lost` whenever the server is gone, and `back` when the server responds again.

        Readers that wait for messages continue by themselves.
        """
        self._connection.on_disconnect.append(lost)
        self._connection.on_reconnect.append(back)

    @property
    def messages_received(self) -> int:
        """How many messages the server has sent; 0 before the connection is open."""
        connection = self._open_connection
        return connection.stats["in_msgs"] if connection is not None else 0

    @property
    def _connection(self) -> Connection:
        assert self._open_connection is not None, "use the client in `async with`"
        return self._open_connection

    @asynccontextmanager
    async def _reader(
        self,
        stream: str,
        filters: Sequence[str],
        *,
        start: int = 1,
        newest: bool = False,
        at_end: bool = False,
    ) -> AsyncIterator[Reader]:
        """Open a reader of a stream for the time of the context.

        start: the position to begin at.
        newest: whether to read only the newest message of each subject that is there already.
        at_end: whether to read only messages that are stored from now on.
        """
        with translated(self.url):
            last = await self._last_position(stream)
            reader = Reader(
                self._connection,
                stream,
                filters,
                start=last + 1 if at_end else start,
                newest=newest,
            )
            async with asyncio.timeout(self.timeout_s):
                await reader.open()
        try:
            yield reader
        finally:
            await reader.close()

    async def _last_position(self, stream: str) -> int:
        """Return the position of the newest message of a stream.

        Waits for a stream that does not exist yet: a control plane that is starting creates it
        soon. A reader opened without this check would wait silently for a missing stream.
        """
        deadline = asyncio.get_running_loop().time() + self.timeout_s
        while True:
            try:
                return await api.last_position(self._connection, stream)
            except ServerRefusal as refusal:
                left = deadline - asyncio.get_running_loop().time()
                if refusal.code != STREAM_NOT_FOUND or left <= 0:
                    raise
            await asyncio.sleep(RETRY_S)

    async def _position_at(self, time: datetime) -> int:
        """Return the position of the first message stored at or after a time, found by bisection.

        If the log has no such message, the position lies past the end of the log.
        """
        with translated(self.url):
            high = await self._last_position(STREAM) + 1
            low = 1
            while low < high:
                middle = (low + high) // 2
                entry = await api.message_at(self._connection, STREAM, middle)
                if entry is not None and entry.time >= time:
                    high = middle
                else:
                    low = middle + 1
        return low

    async def _read(self, reader: Reader, *, endless: bool) -> Sequence[Entry]:
        """Return the next messages of a reader, at least one.

        With `endless` the method waits for messages without limit. Otherwise the messages are known
        to be stored, and the method raises `Unreachable` if they do not come in time.
        """
        entries = await reader.next(None if endless else self.timeout_s)
        if not entries and not endless:
            raise denied(self.url, self._denied) if self._denied else not_responding(self.url)
        return entries

    async def _last_event(self, event: tuple[str, str], pool: str) -> Entry | None:
        """Return the newest event, by service and name, on this cluster and the token `pool`."""
        service, name = event
        subject = f"np.evt.{service}.{self.org}.{self.cluster}.{pool}.{name}"
        with translated(self.url):
            return await api.last_message(self._connection, STREAM, subject)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # In a container, the user may have no name.
        return "unknown"
