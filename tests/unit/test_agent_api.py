"""What the API server of a cluster may send."""

import asyncio
from collections.abc import Mapping

import pytest
from lightkube.config.kubeconfig import KubeConfig
from lightkube.config.models import User

from agent.host.api import Api, Unreachable
from agent.host.resources import NODES


async def watched(body: bytes) -> list[Mapping[str, object]]:
    """The events of a watch to which a server replies this."""

    async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(reply, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        config = KubeConfig.from_server(f"http://127.0.0.1:{port}").get()
        assert config is not None
        api = Api(config._replace(user=User()), lambda _request, _seconds: None)
        try:
            async with api.watch(NODES, {}) as events:
                return [event async for event in events]
        finally:
            await api.close()


def test_each_line_of_a_watch_is_an_event() -> None:
    assert asyncio.run(watched(b'{"type":"ADDED"}\n{"type":"DELETED"}\n')) == [
        {"type": "ADDED"},
        {"type": "DELETED"},
    ]


@pytest.mark.parametrize(
    "line", [b"<html>", b"[]", b"\xff", b"[" * 100_000], ids=["html", "list", "bytes", "deep"]
)
def test_a_line_that_is_no_object_is_a_fault_of_the_connection(line: bytes) -> None:
    with pytest.raises(Unreachable, match="a watch sent a line that is no JSON object"):
        asyncio.run(watched(line + b"\n"))
