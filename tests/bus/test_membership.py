"""Which servers of a cluster a connection goes to, and of whom it learns of them."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from bus.harness import until
from bus.tls import HOST, encrypted, running
from nodepool.nats.wire.access import NO_ACCESS, Access
from nodepool.nats.wire.connection import Connection, connect
from support.certificates import Certificates, certificates, needs_openssl
from support.loopback import leading_to, listening, pass_on
from testbed.ports import free_port

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
async def test_the_other_servers_are_learned_and_are_gone_to_when_the_first_is_lost(
    tmp_path: Path, made: Certificates, scheme: str
) -> None:
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


class Interceptor:
    """What lies between a client and a server, and names one more server in what it lets through.

    clients: to how many it has named that server.
    """

    def __init__(self, server: int, named: str) -> None:
        self.clients = 0
        self._server = server
        self._named = named

    def running(self) -> AbstractAsyncContextManager[int]:
        """The port where the client has to connect; what goes through is cut at the end."""
        return listening(self._serve)

    async def _serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        async with leading_to(self._server) as (server, to_server):
            operation, _, rest = (await server.readline()).partition(b" ")
            info = json.loads(rest) | {"connect_urls": [self._named]}
            to_client.write(operation + b" " + json.dumps(info).encode() + b"\r\n")
            self.clients += 1
            await asyncio.gather(pass_on(client, to_server), pass_on(server, to_client))


@needs_openssl
async def test_a_server_that_was_named_before_the_connection_was_encrypted_is_not_gone_to(
    tmp_path: Path, made: Certificates
) -> None:
    with ExitStack() as stack:
        # given a server with TLS and a password, and another one that has not to be shown it,
        # though its certificate is trusted
        port, foreign = free_port(), free_port()
        stack.enter_context(running(tmp_path, port, f"{encrypted(made)}\n{PASSWORD}"))
        stack.enter_context(running(tmp_path, foreign, f"{encrypted(made)}\n{PASSWORD}"))

        # when something between client and server names that other one
        faults: list[str] = []
        interceptor = Interceptor(port, f"localhost:{foreign}")
        async with interceptor.running() as own_port:
            connection = await connect(
                f"tls://services:secret@{HOST}:{own_port}",
                "test",
                access=Access(str(made.ca)),
                on_fault=faults.append,
            )
            await connection.flush()
            assert interceptor.clients >= 1

        # and the first can be reached no more
        await until(lambda: not connection.is_connected)
        await until(lambda: len(faults) > ATTEMPTS or connection.is_connected)

        # then the client has not gone to the other one
        own = f"tls://{HOST}:{own_port}"
        assert set(faults) == {f"cannot reach {own}: Connection refused"}
        assert not connection.is_connected
        assert f"tls://localhost:{foreign}" not in known(connection)
        await connection.close()
