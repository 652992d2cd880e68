"""Connections to an API server, whatever the server and the account do."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from lightkube.config.kubeconfig import KubeConfig
from lightkube.config.models import Cluster, User

from nodepool.kube.api import Api, Resource
from nodepool.kube.failures import ApiFailure, ApiUnreachable
from nodepool.local.ports import HOST
from support.certificates import certificates, check_strictly, needs_openssl
from support.loopback import leading_to, listening, pass_on

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
CHUNKED = b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{"a":\r\n2\r\n1}\r\n0\r\n\r\n'
REFUSED = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n"
NODES = Resource("api/v1", "nodes", "Node")


class Server:
    """A server that sends each of these replies in turn, on as many connections as it takes.

    connections, heads: how many connections were made, and the heads of the requests.
    """

    def __init__(self, *replies: bytes, closes: bool = False) -> None:
        self.connections, self.heads = 0, list[str]()
        self._replies, self._closes = list(replies), closes

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Replies on one connection."""
        self.connections += 1
        while self._replies:
            try:
                self.heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
            except asyncio.IncompleteReadError:
                return
            writer.write(self._replies.pop(0))
            await writer.drain()
            if self._closes:
                return

    @asynccontextmanager
    async def api(self, path: str = "", user: User | None = None) -> AsyncIterator[Api]:
        """Requests to it, until the context ends."""
        async with (
            listening(self.serve) as port,
            api_of(Cluster(server=f"http://{HOST}:{port}{path}"), user) as api,
        ):
            yield api


@asynccontextmanager
async def api_of(cluster: Cluster, user: User | None = None) -> AsyncIterator[Api]:
    """Requests to the API server of a cluster, until the context ends."""
    config = KubeConfig.from_server(cluster.server).get()
    assert config is not None
    api = Api(config._replace(cluster=cluster, user=user or User()), "test", lambda *_: None)
    try:
        yield api
    finally:
        await api.close()


async def test_requests_share_a_connection_and_keep_the_path_of_their_server() -> None:
    server = Server(OK, CHUNKED, OK)
    async with server.api("/prefix/") as api:
        found = [await api.get(NODES, "a") for _ in range(3)]

    assert found == [{}, {"a": 1}, {}]
    assert server.connections == 1
    assert server.heads[0].startswith("GET /prefix/api/v1/nodes/a HTTP/1.1\r\nHost: 127.0.0.1:")


@pytest.mark.parametrize(
    "reply",
    [OK, OK.replace(b"Content-Length: 2", b"Connection: close"), b"HTTP/1.1 200 OK\r\n\r\n{}"],
    ids=["unsaid", "said", "without a length"],
)
async def test_a_connection_that_the_server_closes_is_followed_by_another(reply: bytes) -> None:
    server = Server(reply, reply, closes=True)
    async with server.api() as api:
        found = [await api.get(NODES, "a"), await api.get(NODES, "a")]

    assert found == [{}, {}]
    assert server.connections == 2


@pytest.mark.parametrize(
    "reply",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{}",
        b"SSH-2.0-server\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 1_000_000,
    ],
    ids=["nothing", "short", "short chunk", "no HTTP", "long head"],
)
async def test_a_change_without_a_reply_is_sent_once_and_costs_its_connection(reply: bytes) -> None:
    server = Server(reply, OK, closes=True)
    async with server.api() as api:
        with pytest.raises(ApiUnreachable, match="no reply of the API server"):
            await api.patch(NODES, "a", {})

        assert await api.patch(NODES, "b", {}) == {}
    assert [head.split()[1][:15] for head in server.heads] == ["/api/v1/nodes/a", "/api/v1/nodes/b"]
    assert server.connections == 2


async def test_no_content_is_read_beyond_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nodepool.kube.api.CONTENT_MAX", 1)
    async with Server(OK).api() as api:
        with pytest.raises(ApiUnreachable, match="is over 1 bytes"):
            await api.get(NODES, "a")


async def test_no_token_can_hold_another_header() -> None:
    async with Server(OK).api(user=User(token="a\r\nX: y")) as api:
        with pytest.raises(ApiUnreachable, match="header"):
            await api.get(NODES, "a")


async def test_a_token_that_was_replaced_is_read_again_and_one_that_was_not_is_refused(
    tmp_path: Path,
) -> None:
    # given an account whose token is in a file
    token = tmp_path / "token"
    token.write_text("old")
    server = Server(OK, REFUSED, OK, REFUSED, REFUSED)
    async with server.api(user=User(token_file=str(token))) as api:
        # when the API server refuses the token that was read, before it was replaced and after
        await api.get(NODES, "a")
        token.write_text("new")
        await api.get(NODES, "a")
        with pytest.raises(ApiFailure) as failure:
            await api.get(NODES, "a")

    # then the new one is sent, once
    sent = [head.partition("Authorization: Bearer ")[2][:3] for head in server.heads]
    assert sent == ["old", "old", "new", "new", "new"]
    assert failure.value.lacks_right


@needs_openssl
@pytest.mark.parametrize("through", ["http://user:pass%20word@{}", "{}", None])
async def test_a_server_is_known_by_its_certificate_also_through_a_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, through: str | None
) -> None:
    # given a server with a certificate, and a proxy that the environment names or excludes
    check_strictly(monkeypatch)
    made, server, tunnels = certificates(tmp_path), Server(OK, OK), list[str]()
    own = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    own.load_cert_chain(made.certificate, made.key)

    async def tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tunnels.append((await reader.readuntil(b"\r\n\r\n")).decode())
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        async with leading_to(port) as (there, back):
            await asyncio.gather(pass_on(reader, back), pass_on(there, writer))

    for name in ("NO_PROXY", "no_proxy", "HTTPS_PROXY", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    async with listening(server.serve, own) as port, listening(tunnel) as proxy_port:
        monkeypatch.setenv("https_proxy", (through or "{}").format(f"{HOST}:{proxy_port}"))
        if through is None:
            monkeypatch.setenv("no_proxy", HOST)
        url = f"https://{HOST}:{port}"

        # when it is asked by an agent that trusts its authority, and by one that does not
        async with api_of(Cluster(server=url, certificate_auth=str(made.ca))) as api:
            found = [await api.get(NODES, "a"), await api.get(NODES, "a")]
        async with api_of(Cluster(server=url)) as api:
            with pytest.raises(ApiUnreachable, match="certificate verify failed"):
                await api.get(NODES, "a")

    # then only the first gets a reply, through the proxy unless that is excluded
    assert found == [{}, {}]
    assert [line.splitlines()[0] for line in tunnels] == (
        [f"CONNECT {HOST}:{port} HTTP/1.1"] * 2 if through else []
    )
    if through and "@" in through:
        assert "Proxy-Authorization: Basic dXNlcjpwYXNzIHdvcmQ=" in tunnels[0]
