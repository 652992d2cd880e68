"""API servers whose replies a test gives, or that give none, and a log that nobody reads."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from lightkube.config.kubeconfig import KubeConfig
from lightkube.config.models import User

from nodepool.host.logs import Logger, ServiceLog
from nodepool.host.settings import Settings
from nodepool.kube.api import Api
from nodepool.local.ports import HOST
from support.loopback import listening

Answer = Callable[[str], tuple[int, bytes]]
"""The status and the content with which a request for this path, with its query, is answered."""


@asynccontextmanager
async def answered(answer: Answer) -> AsyncIterator[Api]:
    """Requests that are answered so, until the context ends."""

    async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        code, content = answer(head.split()[1].decode())
        lines = f"HTTP/1.1 {code} .", f"Content-Length: {len(content)}", "Connection: close"
        writer.write("\r\n".join((*lines, "", "")).encode() + content)
        await writer.drain()

    async with listening(reply) as port, _api_of(port) as api:
        yield api


@asynccontextmanager
async def unanswered() -> AsyncIterator[tuple[Api, Logger]]:
    """Requests that nobody answers, and a log, until the context ends."""
    log = ServiceLog("agent", Settings(log_file=os.devnull))
    try:
        async with _api_of(1) as api:
            yield api, log.logger
    finally:
        log.close()


@asynccontextmanager
async def _api_of(port: int) -> AsyncIterator[Api]:
    config = KubeConfig.from_server(f"http://{HOST}:{port}").get()
    assert config is not None
    api = Api(config._replace(user=User()), "test", lambda _request, _seconds: None)
    try:
        yield api
    finally:
        await api.close()
