"""A server before the API server of a cluster that answers some requests in its place."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx2

from nodepool.local.ports import HOST
from support.loopback import ThreadedServer

DROPPED = frozenset(
    {"host", "connection", "content-length", "transfer-encoding", "accept-encoding"}
)


@dataclass(slots=True)
class Reply:
    """What it answers instead: to the next so many requests whose line holds all these texts."""

    texts: tuple[str, ...]
    times: int
    status: str
    body: Mapping[str, object]
    retry_after_s: int = 0


class Front(ThreadedServer):
    """Passes requests on to the API server at this port, but for those that `reply` is told of.

    requests: the request line of each, and the moment when it came by the clock of its loop.
    """

    def __init__(self, port: int) -> None:
        super().__init__(self._answer)
        self.requests: list[tuple[str, float]] = []
        self._target = f"https://{HOST}:{port}"
        self._replies: list[Reply] = []

    def reply(
        self,
        *texts: str,
        status: str,
        body: Mapping[str, object],
        times: int = 1,
        retry_after_s: int = 0,
    ) -> Reply:
        """Answers the next such requests so; `times` of what is returned counts down."""
        reply = Reply(texts, times, status, body, retry_after_s)
        self._replies.append(reply)
        return reply

    def kubeconfig(self, of: Path, to: Path) -> Path:
        """A kubeconfig as another one, by which this server is reached."""
        lines = of.read_text().splitlines()
        server = f"http://{HOST}:{self.port}"
        to.write_text("\n".join(_with_server(line, server) for line in lines))
        return to

    async def _open(self) -> None:
        client = httpx2.AsyncClient(verify=False, trust_env=False, timeout=None)
        self._client = await self._stack.enter_async_context(client)
        await super()._open()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request on each connection."""
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            headers = dict(line.split(": ", 1) for line in head[1:] if ": " in line)
            fields = {name.lower(): value for name, value in headers.items()}
            body = await reader.readexactly(int(fields.get("content-length", 0)))
            self.requests.append((head[0], self._loop.time()))
            found = next((each for each in self._replies if _is_for(each, head[0])), None)
            if found is None:
                await self._pass_on(head[0], fields, body, writer)
            else:
                found.times -= 1
                writer.write(_written(found))
                await writer.drain()
        except (EOFError, httpx2.HTTPError):
            pass  # The client, or the API server, is gone: so is the connection.

    async def _pass_on(
        self, line: str, headers: Mapping[str, str], body: bytes, writer: asyncio.StreamWriter
    ) -> None:
        method, path, _ = line.split(" ")
        kept = {name: value for name, value in headers.items() if name not in DROPPED}
        request = self._client.build_request(
            method, self._target + path, headers=kept, content=body
        )
        response = await self._client.send(request, stream=True)
        try:
            lines = [f"HTTP/1.1 {response.status_code} -", "Connection: close"]
            lines += [
                f"{name}: {value}"
                for name, value in response.headers.items()
                if name not in DROPPED and name != "content-encoding"
            ]
            writer.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
            async for piece in response.aiter_bytes():
                writer.write(piece)
                await writer.drain()
        finally:
            await response.aclose()


def _with_server(line: str, server: str) -> str:
    if "server:" not in line:
        return line
    before, _, after = line.partition("server:")
    _, _, rest = after.partition(",")
    return f'{before}server: "{server}",{rest}'


def _is_for(reply: Reply, line: str) -> bool:
    return reply.times > 0 and all(text in line for text in reply.texts)


def _written(reply: Reply) -> bytes:
    body = json.dumps(reply.body) + "\n"
    retry = f"Retry-After: {reply.retry_after_s}\r\n" if reply.retry_after_s else ""
    head = f"HTTP/1.1 {reply.status}\r\nContent-Type: application/json\r\n{retry}"
    return f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode()
