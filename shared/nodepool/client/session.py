"""The connection of a client to one control plane, for one organisation and cluster."""

import asyncio
import getpass
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from functools import cached_property, partial
from typing import TYPE_CHECKING, Final

from nodepool.client.errors import (
    Refused,
    Unreachable,
    build_denial,
    describe_limit,
    not_responding,
    translate_errors,
)
from nodepool.client.holder import holder_of
from nodepool.client.names import check_name
from nodepool.client.trim_gap import Bounds, await_bounds, begin_of, find_gaps
from nodepool.contract.log import Entry
from nodepool.nats.log import api
from nodepool.nats.log.pages import position_before
from nodepool.nats.log.reader import Reader
from nodepool.nats.log.streams import STREAM
from nodepool.nats.objects.following import find_missed
from nodepool.nats.wire import errors
from nodepool.nats.wire.access import NO_ACCESS, Access
from nodepool.nats.wire.addresses import without_password
from nodepool.nats.wire.client import give_up
from nodepool.nats.wire.connection import SILENCE_S, Connection, FaultListener, connect
from nodepool.nats.wire.errors import AccessError, Denied
from nodepool.nats.wire.library import NatsError

if TYPE_CHECKING:
    from nodepool.client.backend import Backend, Through

Notice = Callable[[str], None]
"""Called with the name of a server or gateway that is gone or back."""
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
    """A connection to the control plane, which all parts of a client share.

    The parameters are those of `Client`. Every method that reads may raise `Unreachable`.

    holder: whose credentials the client uses, if their file says so.
    access, through: with what, and how the client works.
    trimmed_at: where the log begins, if it was asked for more than it has; 0 if it was not.
    moment: the moment that the client sees; None for the present.
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
        through: "Through | None" = None,
    ) -> None:
        self.url = url
        self.org = check_name("org", org)
        self.cluster = check_name("cluster", cluster)
        self.timeout_s = timeout_s
        self.source = f"{source}/{_user()}@{socket.gethostname()}"
        self.holder = holder = holder_of(access)
        if holder is not None and org != holder.org:
            text = f"the credentials are those of {holder}, who sees {holder.org} only"
            raise Refused("org", "Forbidden", text)
        self.through = through or ("bus" if holder is None else "gateway")
        self.access = access
        self.moment: datetime | None = None
        self._listeners: list[tuple[Notice, Notice]] = []
        self._connection: Connection | None = None
        self._denied = ""
        self.trimmed_at = 0

    @cached_property
    def backend(self) -> "Backend":
        """What the client works with: the bus itself, or the gateway."""
        if self.through == "gateway":
            from nodepool.client.gateway import Gateway

            return Gateway(self)
        from nodepool.client.bus import Bus

        return Bus(self)

    def require_bus(self, what: str) -> None:
        """Raise `Refused` if the client works through the gateway, where nobody may do `what`."""
        if self.through == "gateway":
            raise Refused("", "Forbidden", describe_limit(what, self.holder))

    async def open(self, on_fault: FaultListener | None = None) -> None:
        """Connect; raise `Unreachable` if no server responds or an access file cannot be used.

        on_fault: if given, connecting is tried without limit, and `on_fault` hears why it fails.
        """
        address = without_password(self.url)
        patience_s = min(self.timeout_s, CONNECTING_S) if on_fault is None else None
        silence_s = self.timeout_s if on_fault is None else SILENCE_S
        connecting = partial(connect, self.url, self.source, access=self.access)
        try:
            self._connection = await connecting(
                patience_s=patience_s, silence_s=silence_s, on_fault=on_fault
            )
        except errors.ServerUnreachable as error:
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
        self._connection.on_error.append(self._note_denial)

    async def close(self) -> None:
        """Close the connection, if it is open."""
        if self._connection is not None:
            self._connection.on_disconnect.clear()  # Closing is not a lost connection.
            with suppress(NatsError, OSError):
                await self._connection.close()

    def _note_denial(self, error: Exception) -> None:
        """Fail the requests that wait for a reply: after a denial by the server, no reply comes."""
        _, is_denial, place = str(error).partition(PERMISSION)
        if not is_denial:
            return
        self._denied = place.strip()
        give_up(self.connection._resp_map.values(), partial(Denied, 0, self._denied))

    def observe(self, lost: "Notice", back: "Notice") -> None:
        """Call `lost` whenever the server or the gateway is gone, and `back` when it is back.

        Both are called with what it is, such as `the server at nats://127.0.0.1:4222`. Readers that
        wait for messages continue by themselves.
        """
        server = f"the server at {without_password(self.url)}"
        self.connection.on_disconnect.append(partial(lost, server))
        self.connection.on_reconnect.append(partial(back, server))
        self.observe_gateway(lost, back)

    def observe_gateway(self, lost: "Notice", back: "Notice") -> None:
        """Call `lost` whenever the gateway is gone, and `back` when it is back."""
        self._listeners.append((lost, back))

    def note_gateway(self, *, is_back: bool) -> None:
        """Tell observers that the gateway does not respond, or that it responds again."""
        for lost, back in self._listeners:
            (back if is_back else lost)(f"the gateway at {without_password(self.url)}")

    @property
    def messages_received(self) -> int:
        """Return how many messages the server has sent; 0 before the connection is open."""
        connection = self._connection
        return connection.stats["in_msgs"] if connection is not None else 0

    @property
    def connection(self) -> Connection:
        """The open connection."""
        assert self._connection is not None, "use the client in `async with`"
        return self._connection

    @asynccontextmanager
    async def reader(
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

        Raises TrimGap if the log was trimmed beyond `start`. From 1 on, what the log has is read,
        and `trimmed_at` says where it begins. That of a bucket may raise DeletionsMissed later.
        """
        first, last = await self.bounds(stream)
        verify = find_missed(self.connection, stream, lambda: reader)
        if stream == STREAM:
            verify = find_gaps(self.connection)
            if start < first:
                start = self.trimmed_at = begin_of(start, first)
        with translate_errors(self.url):
            reader = Reader(
                self.connection,
                stream,
                filters,
                start=last + 1 if at_end else start,
                newest=newest,
                verify=verify,
            )
            async with asyncio.timeout(self.timeout_s):
                await reader.open()
        try:
            yield reader
        finally:
            await reader.close()

    async def is_trimmed(self) -> bool:
        """Return whether the log lacks its beginning, so that the newest of a kind may be gone."""
        return (await self.bounds(STREAM)).first > 1

    async def last_position(self, stream: str = STREAM) -> int:
        """Return the position of the newest message of a stream; 0 while the stream is empty."""
        return (await self.bounds(stream)).last

    async def bounds(self, stream: str = STREAM) -> Bounds:
        """Return the positions of the oldest and of the newest message of a stream."""
        self.require_bus("read the log itself")
        with translate_errors(self.url):
            return await await_bounds(self.connection, stream, self.timeout_s)

    async def position_at(self, time: datetime) -> int:
        """Return the position of the first message stored at or after a time.

        If the log has no such message, the position lies past the end of the log. If the log may
        have had earlier ones, `trimmed_at` says where it begins.
        """
        first, last = await self.bounds(STREAM)
        with translate_errors(self.url):
            position = 1 + await position_before(self.connection, time, last)
        self.trimmed_at = first if 1 < first == position else self.trimmed_at
        return position

    async def read(self, reader: Reader, *, endless: bool) -> Sequence[Entry]:
        """Return the next messages of a reader, at least one.

        With `endless` the method waits for messages without limit. Otherwise the messages are known
        to be stored, and the method raises `Unreachable` if they do not come in time.
        """
        entries = await reader.next(None if endless else self.timeout_s)
        if not entries and not endless:
            raise build_denial(self.url, self._denied) if self._denied else not_responding(self.url)
        return entries

    async def last_message(
        self, stream: str, subject: str, *, from_leader: bool = False
    ) -> Entry | None:
        """Return the newest message on a subject of a stream; None if there is no message.

        from_leader: asks the leader of the stream. Any other copy may lack the newest messages.
        """
        self.require_bus("read the log itself")
        read = api.leaders_message if from_leader else api.last_message
        with translate_errors(self.url):
            return await read(self.connection, stream, subject)

    async def message_at(self, position: int) -> Entry | None:
        """Return the message at a position of the log; None if the log has no such message."""
        self.require_bus("read the log itself")
        with translate_errors(self.url):
            return await api.message_at(self.connection, STREAM, position)

    async def last_event(
        self, event: tuple[str, str], pool: str, *, from_leader: bool = False
    ) -> Entry | None:
        """Return the newest event, by service and name, on this cluster and the token `pool`."""
        service, name = event
        subject = f"np.evt.{service}.{self.org}.{self.cluster}.{pool}.{name}"
        return await self.last_message(STREAM, subject, from_leader=from_leader)

    async def message_counts(self, filter: str) -> Mapping[str, int]:
        """Return the number of messages in the log on each subject that matches a filter."""
        subject, body = f"$JS.API.STREAM.INFO.{STREAM}", {"subjects_filter": filter}
        with translate_errors(self.url):
            info = await api.request(self.connection, subject, body)
        state = info.get("state")
        subjects = state.get("subjects") if isinstance(state, Mapping) else None
        counts = subjects if isinstance(subjects, Mapping) else {}
        return {subject: int(count) for subject, count in counts.items()}


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # In a container, the user may have no name.
        return "unknown"
