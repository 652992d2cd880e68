"""Clients that do not read what the server has for them cost it a bounded amount of memory."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from bus.accounts import ORG, Guarded, guarded_server
from bus.asking import opened
from bus.guarded_gateway import user
from bus.harness import until
from nodepool.auth.accounts import OPERATOR
from nodepool.auth.rights import inbox_prefix
from nodepool.contract.log import LOG
from nodepool.contract.services import FEED
from nodepool.local.config import PENDING_MAX
from nodepool.nats.log import api
from nodepool.nats.log.consumers import PULL, consumer_config, pull_request
from nodepool.nats.log.reader import BUFFER_MAX, HEARTBEAT_S

EVENT = f"np.evt.quota.{ORG}._._.QuotaSet"
CONTENT = b"x" * (512 * 1024)
COUNT = 2 * PENDING_MAX // len(CONTENT)
"""More messages than the server keeps for a client, and than the socket has room for."""
VIEWERS = 3
CUT_OFF = f"Slow Consumer Detected: MaxPending of {PENDING_MAX} Exceeded"


async def test_viewers_that_do_not_read_are_cut_off(tmp_path: Path) -> None:
    with guarded_server(tmp_path) as server:
        await server.provision()
        # given viewers that listen to the events of their organisation, and never read
        async with AsyncExitStack() as stack:
            for _ in range(VIEWERS):
                viewer = listening(server, "viewer", f"np.evt.*.{ORG}.>")
                await stack.enter_async_context(viewer)

            # when more is said than the server keeps for each
            quota = await stack.enter_async_context(user(server, "quota"))
            for _ in range(COUNT):
                await api.publish(quota, EVENT, CONTENT)

            # then it has cut off each of them
            await until(lambda: server.says(CUT_OFF) == VIEWERS)


async def test_a_service_that_is_busy_while_it_reads_is_not_cut_off(tmp_path: Path) -> None:
    with guarded_server(tmp_path) as server:
        await server.provision()
        async with (
            AsyncExitStack() as stack,
            user(server, OPERATOR) as operator,
            user(server, "quota") as quota,
        ):
            # given more in the log than the server keeps for a client
            for _ in range(COUNT):
                await api.publish(quota, EVENT, CONTENT)

            # when a reader requests as much as readers do, and is busy
            config = {"name": "busy", **consumer_config([], 1, newest=False)}
            body = {"stream_name": LOG, "config": config}
            made = f"$JS.API.CONSUMER.CREATE.{LOG}.busy"
            await api.request(operator, made, body)
            inbox = f"{inbox_prefix(FEED)}.x"
            reader, writer = await stack.enter_async_context(listening(server, FEED, inbox))
            pull = pull_request(PULL, HEARTBEAT_S)
            line = f"PUB $JS.API.CONSUMER.MSG.NEXT.{LOG}.busy {inbox} {len(pull)}\r\n".encode()
            writer.write((line + pull + b"\r\n") * (BUFFER_MAX // PULL) + b"PING\r\n")
            about = f"$JS.API.CONSUMER.INFO.{LOG}.busy"

            async def is_answered() -> bool:
                info = await api.request(operator, about)
                return info["num_waiting"] == 0 and bool(info["delivered"]["consumer_seq"])  # type: ignore[index]

            await until(is_answered)

            # then it is still connected
            async with asyncio.timeout(30):
                while not (await reader.read(1 << 16)).endswith(b"PONG\r\n"):
                    writer.write(b"PING\r\n")
            assert server.says(CUT_OFF) == 0


@asynccontextmanager
async def listening(
    server: Guarded, name: str, subject: str
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection of a user that has subscribed to a subject, and of which nothing is read."""
    reader, writer = await opened(server.port, server.identities[name].key)
    try:
        writer.write(b"SUB %b 1\r\nPING\r\n" % subject.encode())
        while await reader.readline() != b"PONG\r\n":
            pass
        yield reader, writer
    finally:
        writer.close()
