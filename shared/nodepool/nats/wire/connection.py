"""A connection to NATS that never stops reconnecting, and says why it cannot connect.

nats-py silently gives up a connection after bytes that are not UTF-8, after errors of the server
that the next attempt may not meet, and after an exception in one of its tasks. The methods that are
overridden here are methods that version 2.16 calls; `tests/bus/test_connection.py` fails if a later
version no longer calls them.
"""

import asyncio
import random
import re
import ssl
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from nodepool.contract.door import REQUEST_INFO
from nodepool.nats.wire.access import NO_ACCESS, Access, check_address
from nodepool.nats.wire.addresses import split_addresses, without_password
from nodepool.nats.wire.authentication import AuthenticatingClient
from nodepool.nats.wire.client import notify
from nodepool.nats.wire.errors import AccessError, ServerUnreachable
from nodepool.nats.wire.library import DEFAULT_BUFFER_SIZE, Msg, NatsError, Srv, UnexpectedEOF
from nodepool.nats.wire.protocol import SEQUENCE, Parser, parse_headers, text
from nodepool.nats.wire.reasons import reason_of
from nodepool.nats.wire.transports import transport_to
from nodepool.nats.wire.waiting import RETRY_MAX_S, RETRY_S, cancel
from nodepool.state.back_off import pause_s

ErrorListener = Callable[[Exception], None]
FaultListener = Callable[[str], None]
STABLE_S = 2.0
"""After a connection that lasted longer, the pauses start again with the first one."""
CONNECT_S = 2
"""How many seconds a server may take to reply while a connection is made."""
PINGS = 2
"""How many pings a server may leave without a reply. With fewer, a pause of this process would look
like a silent server: after the pause, the next ping is due before the reply is read."""
SILENCE_S = 6.0
"""How long a server may leave pings without a reply until it counts as gone. A busy server is late
by a second or two; a frozen server or a lost network is noticed before work is missed."""

CUT_OFF = (ConnectionResetError, BrokenPipeError, UnexpectedEOF)
_BATCH = b"NATS/1.0\r\nNats-Batch-Id:"
_DENIED = "permissions violation for publish to "
_KEPT = f'{_DENIED}"$js.api.consumer.delete.'
"""An error to ignore: if the user may not delete consumers, the server removes idle ones itself."""
_NEEDED = re.compile(f"\r\n(?:{SEQUENCE}|{REQUEST_INFO}|Nats-Msg-Size)".encode())


class Connection(AuthenticatingClient):
    """A client whose events can be observed.

    When `on_disconnect` is called, `fault` says why.

    on_fault: called with the reason whenever a server could not be reached.
    on_error: called with errors that belong to no call, such as a denied publish.
    fault: why there is no connection, as one line; while connected, the previous fault.
    loss: why the connection was last lost, as one line; later attempts may fail for other reasons.
    reason: why the last loss or attempt failed, as in `fault` but without the address.
    """

    def __init__(self) -> None:
        super().__init__()
        self.on_fault: list[FaultListener] = []
        self.on_error: list[ErrorListener] = []
        self.fault = "not connected yet"
        self.loss = ""
        self.reason = "no reply in time"
        self._ps = Parser(self)
        self._attempts = 0
        self._since = 0.0
        self._is_refused = False

    @property
    def address(self) -> str:
        """The address of the current server, connected or not, without a password."""
        server = self._current_server
        return "" if server is None else without_password(server.uri.geturl())

    async def look_for(
        self, addresses: Sequence[str], name: str, silence_s: float, access: Access
    ) -> None:
        """Connect to any of these servers; retry until that succeeds. See `connect`."""
        await self.connect(
            servers=list(addresses),
            name=name,
            max_reconnect_attempts=-1,
            pending_size=8 << 20,
            allow_reconnect=True,
            ping_interval=silence_s / (PINGS + 1),  # type: ignore[arg-type]  # A float works too.
            max_outstanding_pings=PINGS,
            connect_timeout=CONNECT_S,
            **self.build_options(access, addresses[0]),
            disconnected_cb=self.handle_disconnect,
            reconnected_cb=self.handle_reconnect,
            error_cb=self.handle_error,
        )

    # Receiving.

    def _build_message(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: dict[str, str] | None
    ) -> Msg:
        return Msg(self, text(subject), text(reply), data, headers, _sid=sid)

    async def _process_headers(self, headers: bytes | None) -> dict[str, str] | None:
        # Parsing headers is a tenth of the cost of receiving a message, and readers do not need the
        # headers that a commit puts on its outputs. A reply to a direct get has its sequence there,
        # a message to the gateway its sender, and a message without its content the size of that.
        if headers is None:
            return None
        if headers.startswith(_BATCH) and _NEEDED.search(headers) is None:
            return None
        return parse_headers(headers)

    async def _read_loop(self) -> None:
        transport = self._transport
        assert transport is not None, "a connection is read once it is there"
        # The client keeps one parser and resets it as soon as a connection is lost. This loop may
        # then still read part of a message, and the next connection would continue within it.
        parser = self._ps = Parser(self)
        try:
            while not (self.is_closed or self.is_reconnecting):
                if transport.at_eof():
                    raise UnexpectedEOF
                await parser.parse(await transport.read(DEFAULT_BUFFER_SIZE))
        except asyncio.CancelledError:
            return
        except Exception as error:  # No other code would notice the exception.
            await self._process_op_err(error)

    # Handling errors.

    async def _process_err(self, err_msg: str) -> None:
        """Handle an error of the server; keep the connection if it is about one message only."""
        reason = err_msg.strip("'")
        if reason.startswith(_KEPT) or self.note_denial(reason.removeprefix(_DENIED).strip('"')):
            return
        error = NatsError(f"nats: {reason}")
        if reason.startswith(("permissions violation", "invalid subject", "invalid publish")):
            await self.handle_error(error)
        else:
            # The client would close for good, although another attempt may succeed.
            await self._process_op_err(error)

    async def _process_op_err(self, e: Exception) -> None:
        if self.is_connected:
            self.reason = reason_of(e)
            self.fault = self.loss = f"lost {self.address}: {self.reason}"
        await super()._process_op_err(e)

    async def _close(self, status: int, do_cbs: bool = True) -> None:
        transport = self._transport
        # The client would leave the connection open if the rest can no longer be sent.
        rest, self._pending, self._pending_data_size = self._pending, [], 0
        try:
            if rest and self.is_connected and transport is not None and not transport.at_eof():
                with suppress(NatsError, OSError):
                    transport.writelines(rest)
                    await transport.drain()  # type: ignore[no-untyped-call]  # As below.
            await super()._close(status, do_cbs)
        except asyncio.CancelledError:  # Also if another wait for this was given up.
            if (task := asyncio.current_task()) is None or task.cancelling():
                raise
        finally:
            if transport is not None:
                transport.close()  # type: ignore[no-untyped-call]  # As nats-py has it.

    async def _attempt_reconnect(self) -> None:
        while True:
            try:
                await super()._attempt_reconnect()
                return
            except Exception as error:  # The client would stay without a server.
                self._note_fault(error)
            await asyncio.sleep(RETRY_MAX_S)

    def _note_fault(self, error: Exception) -> None:
        # A server that refuses may close before its reason is read; then keep the previous reason.
        if not (self._is_refused and isinstance(error, CUT_OFF)):
            self.reason = reason_of(error)
            self._is_refused = isinstance(error, NatsError | ssl.SSLError)
        self.fault = f"cannot reach {self.address}: {self.reason}"
        for note in tuple(self.on_fault):
            note(self.fault)

    async def handle_disconnect(self) -> None:
        """Fail every pending request and notify observers; the client calls this method."""
        if asyncio.get_running_loop().time() - self._since > STABLE_S:
            self._attempts = 0
        await super().handle_disconnect()

    async def handle_reconnect(self) -> None:
        """Notify observers; the client calls this method."""
        self.may_change_streams = True  # The rights of the user may be others now.
        notify(self.on_reconnect)

    async def handle_error(self, error: Exception) -> None:
        """Notify observers of an error that belongs to no call; the client calls this method."""
        if self.is_connected:
            for note in tuple(self.on_error):
                note(error)
        elif not self.is_closed:  # Errors of a closed connection do not matter.
            self._note_fault(error)

    # Finding a server.

    async def _select_next_server(self) -> None:
        """Connect to the next reachable server; wait longer before each round of the servers."""
        while True:
            servers = max(len(self._server_pool), 1)
            if self._attempts % servers == 0:
                rounds = self._attempts // servers
                await asyncio.sleep(pause_s(rounds, RETRY_S, RETRY_MAX_S, random.random()))
            self._attempts += 1
            server = self._server_pool.pop(0)
            self._server_pool.append(server)
            self._current_server = server
            try:
                await self._connect_to_server(server)
                return
            except Exception as error:  # A host with another protocol may cause any error.
                self._note_fault(error)

    async def _connect_to_server(self, s: Srv) -> None:
        transport = transport_to(s.uri, lambda: self.ssl_context)
        try:
            await transport.connect(s.uri, DEFAULT_BUFFER_SIZE, CONNECT_S)
        except BaseException:
            transport.close()  # type: ignore[no-untyped-call]  # As nats-py has it.
            raise
        # The transport to a previous server that did not reply is still open.
        if self._transport is not None:
            self._transport.close()  # type: ignore[no-untyped-call]  # As nats-py has it.
        self._transport = transport

    async def _process_connect_init(self) -> None:
        # A failed earlier attempt may have left its tasks running; this attempt starts its own.
        self._cancel_tasks()
        try:
            await super()._process_connect_init()
            if not self.is_connected:  # The client takes the end of the stream for no error.
                self._cancel_tasks()
                raise UnexpectedEOF
        except OSError:  # The error for an untrusted certificate is also a ValueError.
            raise
        except AccessError as error:
            raise NatsError(f"nats: {error}") from None
        except (ValueError, AssertionError) as error:
            raise NatsError(f"nats: no NATS server answers there: {error}") from error
        self._since, self._is_refused = asyncio.get_running_loop().time(), False

    def _cancel_tasks(self) -> None:
        for task in (self._reading_task, self._ping_interval_task, self._flusher_task):
            if task is not None:
                task.cancel()


async def connect(
    url: str,
    name: str,
    *,
    patience_s: float | None = 5.0,
    silence_s: float = SILENCE_S,
    access: Access = NO_ACCESS,
    on_fault: FaultListener | None = None,
) -> Connection:
    """Connect to NATS with automatic reconnects; the server lists the connection under `name`.

    url: the addresses of servers of one cluster, with commas between.
    patience_s: how long to look for a server; None sets no limit.
    silence_s: a server that has not replied to a ping for about this time counts as gone.
    access: whom to trust, and what to show.
    on_fault: called with the reason whenever a server cannot be reached, now and later.

    Raises ServerUnreachable if no server answers in time, AccessError if a file cannot be used.
    """
    addresses = split_addresses(url)
    access.check(time.time())
    check_address(access, addresses)
    connection = Connection()
    if on_fault is not None:
        connection.on_fault.append(on_fault)
    attempt = asyncio.create_task(connection.look_for(addresses, name, silence_s, access))
    try:
        await asyncio.wait((attempt,), timeout=patience_s)
        if not attempt.done():
            raise ServerUnreachable(without_password(url), connection.reason)
        attempt.result()
    except BaseException:
        await cancel(attempt)
        with suppress(NatsError, OSError):
            await connection.close()
        raise
    return connection
