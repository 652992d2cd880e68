"""Which servers of a cluster a connection goes to, and of whom it learns of them."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from bus.harness import until
from bus.tls import HOST, encrypted, running
from nodepool.local.ports import free_port
from nodepool.nats.access import NO_ACCESS, Access
from nodepool.nats.connection import Connection, connect
from support.certificates import Certificates, certificates, needs_openssl

PASSWORD = 'authorization { user: "services", password: "secret" }'
ATTEMPTS = 8
"""After so many attempts a connection has tried every server that it knows of."""


class Server(NamedTuple):
    """Where a server of a cluster listens: for clients, and for the others."""

    port: int
    route: int


@contextmanager
def cluster(folder: Path, settings: str) -> Iterator[tuple[ExitStack, Server, Server]]:
    """Two servers, the first of which is stopped by closing the stack."""
    first, second = (Server(free_port(), free_port()) for _ in range(2))

    def of(own: Server, other: Server) -> str:
        routes = f'routes: ["nats://{HOST}:{other.route}"]'
        listening = f'cluster {{ name: c, listen: "{HOST}:{own.route}", {routes} }}'
        return f"{settings}\n{listening}"

    with ExitStack() as stack, running(folder, second.port, of(second, first)):
        stack.enter_context(running(folder, first.port, of(first, second)))
        yield stack, first, second


def known(connection: Connection) -> set[str]:
    """The servers that a connection would go to, without what it would show to them."""
    return {
        f"{each.uri.scheme}://{each.uri.hostname}:{each.uri.port}"
        for each in connection._server_pool
    }


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Certificates that all tests share."""
    return certificates(tmp_path_factory.mktemp("certificates"))


@needs_openssl
@pytest.mark.parametrize("scheme", ["tls", "nats"])
def test_the_other_servers_are_learned_and_are_gone_to_when_the_first_is_lost(
    tmp_path: Path, made: Certificates, scheme: str
) -> None:
    async def story() -> None:
        # given a connection to one server of two, with TLS or without
        is_encrypted = scheme == "tls"
        settings = f"{encrypted(made) if is_encrypted else ''}\n{PASSWORD}"
        access = Access(str(made.ca)) if is_encrypted else NO_ACCESS
        with cluster(tmp_path, settings) as (stack, first, second):
            url = f"{scheme}://services:secret@{HOST}:{first.port}"
            connection = await connect(url, "test", access=access)

            # then it learns of the other one
            other = f"{scheme}://{HOST}:{second.port}"
            await until(lambda: other in known(connection))

            # and when the first is gone, goes there
            stack.close()
            await until(lambda: connection.is_connected and connection.address == other)
            await connection.close()

    asyncio.run(story())


class Interceptor:
    """What lies between a client and a server, and names one more server in what it lets through.

    port: where the client has to connect. clients: to how many it has named that server.
    """

    def __init__(self, server: int, named: str) -> None:
        self.port = free_port()
        self.clients = 0
        self._server = server
        self._named = named
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Listens; what goes through is cut at the end."""
        listening = await asyncio.start_server(self._serve, HOST, self.port)
        try:
            yield
        finally:
            listening.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        server, to_server = await asyncio.open_connection(HOST, self._server)
        try:
            operation, _, rest = (await server.readline()).partition(b" ")
            info = json.loads(rest) | {"connect_urls": [self._named]}
            to_client.write(operation + b" " + json.dumps(info).encode() + b"\r\n")
            self.clients += 1
            await asyncio.gather(_copy(client, to_server), _copy(server, to_client))
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            to_client.close()
            to_server.close()


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while chunk := await source.read(1 << 16):
        sink.write(chunk)
        await sink.drain()
    sink.close()


@needs_openssl
def test_a_server_that_was_named_before_the_connection_was_encrypted_is_not_gone_to(
    tmp_path: Path, made: Certificates
) -> None:
    async def story() -> None:
        with ExitStack() as stack:
            # given a server with TLS and a password, and another one that has not to be shown it,
            # though its certificate is trusted
            port, foreign = free_port(), free_port()
            stack.enter_context(running(tmp_path, port, f"{encrypted(made)}\n{PASSWORD}"))
            stack.enter_context(running(tmp_path, foreign, f"{encrypted(made)}\n{PASSWORD}"))

            # when something between client and server names that other one
            faults: list[str] = []
            interceptor = Interceptor(port, f"localhost:{foreign}")
            async with interceptor.running():
                connection = await connect(
                    f"tls://services:secret@{HOST}:{interceptor.port}",
                    "test",
                    access=Access(str(made.ca)),
                    on_fault=faults.append,
                )
                await connection.flush()
                assert interceptor.clients == 1

            # and the first can be reached no more
            await until(lambda: not connection.is_connected)
            await until(lambda: len(faults) > ATTEMPTS or connection.is_connected)

            # then the client has not gone to the other one
            own = f"tls://{HOST}:{interceptor.port}"
            assert set(faults) == {f"cannot reach {own}: Connection refused"}
            assert not connection.is_connected
            assert f"tls://localhost:{foreign}" not in known(connection)
            await connection.close()

    asyncio.run(story())
