"""Connections to real servers: lost and found again, encrypted, to one of several servers."""

import asyncio
import errno
import json
import os
import signal
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from itertools import pairwise
from pathlib import Path

import pytest
import uvloop
from nats.aio.client import Client

from bus.harness import PATIENCE_S, ROUNDS, connected, read, unreachable, until
from bus.tls import encrypted, running
from nodepool.local.server import NatsServer
from nodepool.nats.log import api
from nodepool.nats.log.reader import Reader
from nodepool.nats.log.streams import STREAM
from nodepool.nats.wire.access import Access
from nodepool.nats.wire.connection import SILENCE_S, Connection, connect
from nodepool.nats.wire.errors import ServerUnreachable
from nodepool.nats.wire.transports import TcpTransport
from nodepool.nats.wire.waiting import RETRY_MAX_S, RETRY_S
from nodepool.state.back_off import pause_s
from support.certificates import Certificates, certificates, check_strictly, needs_openssl
from support.loopback import listening
from testbed.ports import free_port

HOST = "127.0.0.1"
MARGIN_S = 4.0
"""How much later something may be on a machine that has much else to do."""

# --- lost and found again -------------------------------------------------------------------------


async def test_a_connection_whose_reading_fails_is_made_anew(server: NatsServer) -> None:
    async with connected(server.url) as connection:
        # given a reader, and a fault in the client that nobody has foreseen
        reader = Reader(connection, STREAM, ["np.cmd.*.*.*.*"])
        await reader.open()
        connection._ps.buf = None  # type: ignore[assignment]  # What cannot be.

        # when messages are stored
        async with connected(server.url) as other:
            for number in range(3):
                await api.publish(other, "np.cmd.a.b.c.D", b"%d" % number)

        # then the connection is made anew, and they are read
        entries = await read(reader, 3)
        assert [entry.content for entry in entries] == [b"0", b"1", b"2"]
        assert connection.stats["reconnects"] == 1
        await reader.close()


async def test_what_fails_while_a_connection_is_given_up_is_not_why_it_was_lost(
    server: NatsServer,
) -> None:
    async with connected(server.url) as connection:
        faults: list[str] = []
        connection.on_disconnect.append(lambda: faults.append(connection.loss))

        # when it is lost, and its socket cannot be closed properly either
        await connection._process_op_err(OSError(errno.EPIPE, "broken"))
        await connection.handle_error(ConnectionResetError(errno.ECONNRESET, "reset"))
        await until(lambda: bool(faults))
        assert faults == [f"lost {server.url}: Broken pipe"]


async def test_what_is_left_of_a_lost_connection_is_not_read_as_a_part_of_the_next(
    server: NatsServer,
) -> None:
    async with connected(server.url) as connection:
        # given a reader, and the first part of a message that has arrived and was not read yet
        reader = Reader(connection, STREAM, ["np.cmd.*.*.*.*"])
        await reader.open()
        arrived = socket_of(connection)._io_reader
        assert arrived is not None
        arrived.feed_data(b"MSG np.cmd.a.b.c.D 1 100\r\n{")

        # when the connection is lost at that moment, and messages are stored afterwards
        await connection._process_op_err(OSError(errno.EPIPE, "broken"))
        await until(lambda: connection.stats["reconnects"] == 1)
        for number in range(3):
            await api.publish(connection, "np.cmd.a.b.c.D", b"%d" % number)

        # then these are read as they are, and nothing else had to be made anew
        entries = await read(reader, 3)
        assert [entry.content for entry in entries] == [b"0", b"1", b"2"]
        assert connection.stats["reconnects"] == 1
        await reader.close()


async def test_an_attempt_that_fails_at_its_end_leaves_nothing_that_goes_on(
    server: NatsServer,
) -> None:
    async with connected(server.url) as connection:
        # given what a connection has going on
        tasks = len(asyncio.all_tasks())
        faults = [OSError(errno.EPIPE, "broken")] * 3
        losses: list[str] = []

        def fail() -> None:
            if faults:
                raise faults.pop()

        connection.on_reconnect.append(fail)
        connection.on_disconnect.append(lambda: losses.append(connection.loss))

        # when it is lost, and three attempts fail when they are almost there
        await connection.force_reconnect()
        await until(lambda: not faults)

        # then the fourth is not disturbed, and has the same going on as before
        await until(lambda: connection.stats["reconnects"] == 4)
        assert await api.publish(connection, "np.cmd.a.b.c.D", b"") == 1
        assert (len(losses), len(asyncio.all_tasks())) == (1, tasks)


@pytest.mark.parametrize("line", ["PUB " + "x" * 5_000 + " 0", "NONSENSE"])
async def test_a_connection_that_the_server_closes_for_a_fault_is_made_anew(
    server: NatsServer, line: str
) -> None:
    async with connected(server.url) as connection:
        # given a connection
        # when something is sent for which the server closes it
        await connection._send_command(f"{line}\r\n".encode())
        await connection._flush_pending()

        # then it is made anew, and does its work
        await until(lambda: connection.stats["reconnects"] == 1)
        await until(lambda: connection.is_connected)
        assert await api.publish(connection, "np.cmd.a.b.c.D", b"") == 1


def socket_of(connection: Connection) -> TcpTransport:
    """What a connection sends over."""
    transport = connection._transport
    assert isinstance(transport, TcpTransport)
    return transport


in_the_loop_of_a_service = pytest.mark.parametrize(
    "anyio_backend", [("asyncio", {"loop_factory": uvloop.new_event_loop})], ids=["uvloop"]
)
"""Runs a test in the loop of a service; that of the standard library lets more pass."""


@in_the_loop_of_a_service
async def test_a_connection_whose_socket_is_gone_unnoticed_is_closed_all_the_same(
    server: NatsServer,
) -> None:
    # given a connection with something to send, whose socket the loop has closed already
    connection = await connect(server.url, "test")
    await connection._send_command(b"PING\r\n")
    transport = socket_of(connection)
    assert transport._io_writer is not None
    transport._io_writer.close()

    # when it is closed
    await connection.close()

    # then it is, and no error ends the service
    assert connection.is_closed


@in_the_loop_of_a_service
async def test_to_write_to_a_closed_socket_is_an_error_of_the_bus_in_every_loop(
    server: NatsServer,
) -> None:
    # given a connection whose socket the loop has closed
    connection = await connect(server.url, "test")
    transport = socket_of(connection)
    transport.close()  # type: ignore[no-untyped-call]  # As nats-py has it.
    await transport.wait_closed()  # type: ignore[no-untyped-call]  # As nats-py has it.

    # when something is sent
    # then that fails as it does where the other end has closed it
    with pytest.raises(ConnectionResetError):
        transport.writelines([b"PING\r\n"])
    await connection.close()


async def test_a_connection_is_closed_although_another_wait_for_its_end_was_given_up(
    server: NatsServer,
) -> None:
    # given a connection, and somebody who does not wait any longer until its socket is closed
    connection = await connect(server.url, "test")
    transport = socket_of(connection)
    waiting = asyncio.create_task(transport.wait_closed())  # type: ignore[no-untyped-call]
    await asyncio.sleep(0)
    waiting.cancel()

    # when it is closed
    await connection.close()

    # then it is, and nothing else is cancelled
    assert connection.is_closed


async def test_a_request_that_is_cancelled_as_its_reply_comes_is_cancelled(
    server: NatsServer,
) -> None:
    async with connected(server.url) as connection:
        # given a program that goes on once it has a reply
        went_on = asyncio.Event()

        async def asking() -> None:
            await api.last_position(connection, STREAM)
            went_on.set()

        await api.last_position(connection, STREAM)  # From now on it has an inbox for replies.
        task = asyncio.create_task(asking())
        await asyncio.wait((task,), timeout=0)
        (reply,) = connection._resp_map.values()

        # when it is cancelled at the moment when the reply is there
        while not reply.done():  # noqa: ASYNC110  # It is to be seen in that turn of the loop.
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait((task,), timeout=MARGIN_S)

        # then it does not go on
        assert task.cancelled()
        assert not went_on.is_set()


def test_the_client_has_all_that_the_connection_overrides() -> None:
    # given what the connection overrides of the client's own
    ours = {name for name in vars(Connection) if name.startswith("_") and not name.startswith("__")}

    # then the client has it; a version without it would do what this one was kept from
    assert {name for name in ours if hasattr(Client, name)} == ours - {
        "_cancel_tasks",
        "_note_fault",
    }


async def test_a_server_that_is_frozen_is_noticed_soon_and_found_again_when_it_goes_on(
    server: NatsServer,
) -> None:
    async with connected(server.url) as connection:
        # given a connection, and a reader
        reader = Reader(connection, STREAM, ["np.cmd.*.*.*.*"])
        await reader.open()
        clock, pid = asyncio.get_running_loop().time, server.pid
        assert pid is not None
        took: list[float] = []
        for _ in range(ROUNDS):
            # when the server is frozen
            began = clock()
            os.kill(pid, signal.SIGSTOP)

            # then that is noticed, with the reason, while it is
            await until(lambda: not connection.is_connected)
            took.append(clock() - began)
            assert connection.loss == f"lost {server.url}: the server does not reply"
            await until(lambda: connection.fault.startswith("cannot reach"))
            assert connection.fault == f"cannot reach {server.url}: no reply in time"

            # and when it goes on, so does the reader
            os.kill(pid, signal.SIGCONT)
            async with connected(server.url) as other:
                await api.publish(other, "np.cmd.a.b.c.D", b"1")
            assert [entry.content for entry in await read(reader, 1)] == [b"1"]
            if took[-1] <= SILENCE_S + MARGIN_S:
                break
        assert min(took) <= SILENCE_S + MARGIN_S
        await reader.close()


async def test_a_process_that_was_frozen_itself_does_not_take_its_server_for_gone(
    server: NatsServer,
) -> None:
    outcomes: list[tuple[bool, int]] = []
    for _ in range(ROUNDS):
        # given a connection that pings often
        connection = await connect(server.url, "test", silence_s=0.6)

        # when this process does nothing, again and again, for longer than a server may
        for _ in range(4):
            threading.Event().wait(0.8)
            for _ in range(10):
                await asyncio.sleep(0)

        # then the connection is the same one, unless the server itself was silent meanwhile
        outcomes.append((connection.is_connected, connection.stats["reconnects"]))
        await connection.close()
        if outcomes[-1] == (True, 0):
            break
    assert (True, 0) in outcomes


MANY = 10
"""So many attempts that the pauses between the last of them are the longest there are."""


def least_s(attempts: int) -> float:
    """How long so many attempts take at least: where chance makes each pause as short as it can."""
    return sum(pause_s(failures, RETRY_S, RETRY_MAX_S, 1) for failures in range(1, attempts))


async def test_attempts_become_rare_while_there_is_no_server(server: NatsServer) -> None:
    async with connected(server.url) as connection:
        # given a connection
        faults: list[tuple[float, str]] = []
        clock = asyncio.get_running_loop().time
        connection.on_fault.append(lambda fault: faults.append((clock(), fault)))
        took, longest = list[float](), list[float]()
        for _ in range(ROUNDS):
            # when its server is gone for some seconds
            faults.clear()
            await asyncio.to_thread(server.kill)
            await until(lambda: len(faults) >= MANY)

            # then there are not too many attempts, and none is too long after the last one
            times = [time for time, _ in faults[:MANY]]
            assert times[-1] - times[0] >= least_s(MANY)
            pauses = [later - earlier for earlier, later in pairwise(times)]
            longest.append(max(pauses))
            assert {fault for _, fault in faults} == {
                f"cannot reach {server.url}: Connection refused"
            }

            # and the server is found soon after it is back
            await asyncio.to_thread(server.start)
            back = clock()
            await until(lambda: connection.is_connected)
            took.append(clock() - back)
            if max(took[-1], longest[-1]) <= RETRY_MAX_S + 1:
                break
        assert max(min(took), min(longest)) <= RETRY_MAX_S + 1


async def test_a_server_that_closes_each_connection_is_not_flooded(tmp_path: Path) -> None:
    # given something that greets as a server and closes the connection
    greeted: list[float] = []
    clock = asyncio.get_running_loop().time

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        greeted.append(clock())
        writer.write(b'INFO {"max_payload":1048576}\r\n')
        await reader.readline()
        await reader.readline()
        writer.write(b"PONG\r\n")

    async with listening(greet) as port:
        # when a connection is made to it, which is lost again and again
        connection = await connect(f"nats://{HOST}:{port}", "test")
        await until(lambda: len(greeted) >= MANY)
        with suppress(OSError):
            await connection.close()

    # then it is tried a few times a second at most
    assert greeted[MANY - 1] - greeted[0] >= least_s(MANY)


async def test_a_server_that_closes_before_it_answers_is_not_taken_for_connected() -> None:
    # given something that greets as a server, reads who connects, and says nothing
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"max_payload":1048576}\r\n')
        await reader.readline()
        await reader.readline()

    async with listening(greet) as port:
        tasks = len(asyncio.all_tasks())

        # when a connection is made to it
        error = await unreachable(f"nats://{HOST}:{port}", "the server closed the connection")

        # then there is none, the reason is named, and nothing goes on trying
        assert error.reason == "the server closed the connection"
        await until(lambda: len(asyncio.all_tasks()) == tasks)


# --- several servers ------------------------------------------------------------------------------


async def test_another_server_is_found_where_the_first_is_gone(tmp_path: Path) -> None:
    # given the addresses of three servers, one of which never runs
    first, second, never = free_port(), free_port(), free_port()
    url = ", ".join(f"nats://{HOST}:{port}" for port in (never, first, second))
    with running(tmp_path, second, ""):
        with running(tmp_path, first, ""):
            # when a connection is made
            connection = await connect(url, "test")
            assert connection.address in (f"nats://{HOST}:{first}", f"nats://{HOST}:{second}")

        # and the first server goes
        # then the connection finds the one that is left
        await until(lambda: connection.address == f"nats://{HOST}:{second}")
        await until(lambda: connection.is_connected)
        await connection.flush()
        await connection.close()


@asynccontextmanager
async def looking(url: str) -> AsyncIterator[list[tuple[float, str]]]:
    """Looks for a server that takes a connection until the end of the block; what fails, and when.

    There is none.
    """
    faults: list[tuple[float, str]] = []
    clock = asyncio.get_running_loop().time
    attempts = asyncio.create_task(
        connect(
            url, "test", patience_s=None, on_fault=lambda fault: faults.append((clock(), fault))
        )
    )
    try:
        yield faults
        assert not attempts.done()
    finally:
        attempts.cancel()
        await asyncio.wait((attempts,))


async def test_what_was_tried_is_said_without_passwords() -> None:
    one, other = free_port(), free_port()
    url = f"nats://user:secret@{HOST}:{one},nats://token@{HOST}:{other}"
    async with looking(url) as faults:
        await until(lambda: len(faults) >= 4)
    assert {fault for _, fault in faults} == {
        f"cannot reach nats://{HOST}:{port}: Connection refused" for port in (one, other)
    }
    assert str(await unreachable(url, "Connection refused")).startswith(
        f"no NATS server answers at nats://{HOST}:{one},nats://{HOST}:{other}"
        " (Connection refused): "
    )


async def test_a_refused_password_is_named_as_the_reason_and_right_ones_connect(
    tmp_path: Path,
) -> None:
    # given a server that asks for a password
    port = free_port()
    users = 'authorization { user: "user", password: "right" }'
    with running(tmp_path, port, users):
        # when a wrong one is given
        # then that is a reason
        # (where the server closes before its error is read, an attempt knows only of that)
        refusal = "the server refuses the user, password or credentials"
        refused = f"cannot reach nats://{HOST}:{port}: {refusal}"
        async with looking(f"nats://user:wrong@{HOST}:{port}") as faults:
            await until(lambda: refused in (fault for _, fault in faults))
            await until(lambda: len(faults) >= MANY)

        # and the attempts are few, and the right one connects
        times = [time for time, _ in faults]
        assert times[MANY - 1] - times[0] >= least_s(MANY)
        connection = await connect(f"nats://user:right@{HOST}:{port}", "test")
        await connection.close()


# --- encrypted ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Certificates for the servers of these tests."""
    return certificates(tmp_path_factory.mktemp("certificates"))


@contextmanager
def web(folder: Path, settings: str) -> Iterator[str]:
    """A server with a WebSocket; where that listens."""
    port = free_port()
    more = f'websocket {{ listen: "{HOST}:{port}", {settings} }}'
    with running(folder, free_port(), more):
        yield f"{HOST}:{port}"


async def exchange(connection: Connection) -> None:
    """Stores messages of several sizes and reads them."""
    sizes = (0, 125, 126, 65_535, 65_536, 900_000)
    async with asyncio.timeout(PATIENCE_S):
        config = {"name": "S", "subjects": ["s"]}
        await api.request(connection, "$JS.API.STREAM.CREATE.S", config)
        for size in sizes:
            await api.publish(connection, "s", b"x" * size)
        reader = Reader(connection, "S", ["s"])
        await reader.open()
        entries = await read(reader, len(sizes))
        await reader.close()
    assert tuple(len(entry.content) for entry in entries) == sizes


def cipher(connection: Connection) -> object:
    """The cipher in use; None for a connection that is not encrypted."""
    transport = connection._transport
    writer = getattr(transport, "_io_writer", None) or getattr(transport, "_writer", None)
    assert isinstance(writer, asyncio.StreamWriter)
    return writer.get_extra_info("cipher")


@needs_openssl
@pytest.mark.parametrize("scheme", ["tls", "nats"])
async def test_a_server_with_tls_is_used_with_the_certificates_that_are_trusted(
    tmp_path: Path, made: Certificates, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a server that insists on TLS
    check_strictly(monkeypatch)
    port = free_port()
    with running(tmp_path, port, encrypted(made)):
        # when a connection trusts who has signed its certificate
        url = f"{scheme}://{HOST}:{port}"
        connection = await connect(url, "test", access=Access(ca_file=str(made.ca)))

        # then it works, and is encrypted
        await exchange(connection)
        assert cipher(connection) is not None
        await connection.close()

        # and one that does not trust it says so
        reason = "its certificate is not trusted"
        assert reason in (await unreachable(url, reason)).reason


async def test_a_connection_that_is_given_up_while_it_is_encrypted_is_closed() -> None:
    # given a server that asks for TLS, and then says nothing
    asked = json.dumps({"server_id": "x", "version": "2.15.1", "tls_required": True})

    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(f"INFO {asked}\r\n".encode())
        await writer.drain()
        await asyncio.Event().wait()

    async with listening(serve) as port:
        # when a connection is given up in the middle of that
        # then that ends it
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(ServerUnreachable):
                await connect(f"tls://{HOST}:{port}", "test", patience_s=0.3)


@needs_openssl
async def test_an_encrypted_connection_is_encrypted_again_after_a_restart(
    tmp_path: Path, made: Certificates
) -> None:
    port = free_port()
    with running(tmp_path, port, encrypted(made)):
        connection = await connect(
            f"tls://localhost:{port}", "test", access=Access(ca_file=str(made.ca))
        )
    await until(lambda: not connection.is_connected)
    with running(tmp_path, port, encrypted(made)):
        await until(lambda: connection.is_connected)
        await exchange(connection)
        assert cipher(connection) is not None
        await connection.close()


async def test_tls_is_insisted_on_where_the_address_says_so(tmp_path: Path) -> None:
    # given a server without TLS
    port = free_port()
    with running(tmp_path, port, ""):
        # when a connection with TLS is asked for
        # then there is none
        reason = "the server offers no TLS, which tls:// asks for"
        error = await unreachable(f"tls://user:secret@{HOST}:{port}", reason)
        assert f"({reason})" in str(error)


@needs_openssl
async def test_a_server_that_leaves_tls_to_the_client_is_used_with_tls(
    tmp_path: Path, made: Certificates
) -> None:
    port = free_port()
    with running(tmp_path, port, encrypted(made) + "\nallow_non_tls: true"):
        trusting = Access(ca_file=str(made.ca))
        for scheme, access, is_encrypted in (
            ("tls", trusting, True),
            ("nats", trusting, True),
            ("nats", Access(), False),
        ):
            connection = await connect(f"{scheme}://{HOST}:{port}", "test", access=access)
            assert (cipher(connection) is not None) is is_encrypted
            await connection.close()


@needs_openssl
async def test_a_web_socket_with_tls_carries_everything(tmp_path: Path, made: Certificates) -> None:
    # given a server with a WebSocket that is encrypted
    with web(tmp_path, encrypted(made)) as address:
        # when a connection trusts who has signed its certificate
        connection = await connect(f"wss://{address}", "test", access=Access(ca_file=str(made.ca)))

        # then it works, and is encrypted
        await exchange(connection)
        assert cipher(connection) is not None
        await connection.close()

        # and one that does not trust it says so
        reason = "its certificate is not trusted"
        assert reason in (await unreachable(f"wss://{address}", reason)).reason


async def test_a_web_socket_without_tls_is_used_where_the_address_says_so(tmp_path: Path) -> None:
    with web(tmp_path, "no_tls: true") as address:
        connection = await connect(f"ws://{address}", "test")
        await exchange(connection)
        await connection.close()


async def test_what_is_no_server_is_named_as_such() -> None:
    # given something that is no NATS server
    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-x\r\n" + b"\xff" * 100_000)

    async with listening(greet) as port:
        # when a connection is made to it, plain or as a WebSocket
        # then the line says what is wrong
        for scheme, reason in (
            ("nats", "empty response from server when expecting INFO message"),
            ("ws", "no WebSocket answers there"),
            ("wss", "TLS failed: "),
        ):
            error = await unreachable(f"{scheme}://{HOST}:{port}", reason)
            assert reason in error.reason
