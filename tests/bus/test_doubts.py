"""A commit whose reply is lost: each of its inputs is counted, logged and traced once."""

import asyncio
import json
import signal
from collections import Counter
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Literal, NamedTuple

import pytest

from bus.harness import (
    PATIENCE_S,
    ReplicaProcess,
    connected,
    launched,
    limit,
    outcome,
    read_all,
    send,
    until,
)
from bus.tls import HOST
from nodepool.contract.log import Entry
from nodepool.local.server import NatsServer
from nodepool.nats.log import api
from nodepool.nats.log.streams import STREAM
from nodepool.nats.wire.connection import Connection
from support.loopback import leading_to, listening, pass_on
from support.otlp import Span, receiving
from testbed.ports import free_port

Fault = Literal["none", "lost", "stored"]
RECORD = "np.commit.quota"
_COMMIT = tuple([operation, RECORD.encode()] for operation in (b"PUB", b"HPUB"))
TRACE = "0af7651916cd43dd8448eb211c80319c"


class Proxy:
    """What lies between a service and a server, and cuts the connection at a commit.

    fault: what becomes of the next commit: it goes through, it is "lost" before the server has it,
    or it is "stored" and its reply is lost. cuts: how many connections were cut.
    """

    def __init__(self, server: int, direct: Connection) -> None:
        self.fault: Fault = "none"
        self.cuts = 0
        self._server = server
        self._direct = direct

    def running(self) -> AbstractAsyncContextManager[int]:
        """The port where the service has to connect."""
        return listening(self._serve)

    async def _serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        async with leading_to(self._server) as (server, to_server):
            replies = asyncio.create_task(pass_on(server, to_client))
            try:
                await self._forward(client, to_server, replies)
            finally:
                replies.cancel()

    async def _forward(
        self,
        client: asyncio.StreamReader,
        to_server: asyncio.StreamWriter,
        replies: "asyncio.Task[None]",
    ) -> None:
        while message := await _message(client):
            is_commit = message.split(b" ", 2)[:2] in _COMMIT
            fault: Fault = self.fault if is_commit else "none"
            if fault == "lost":
                break
            before = await _last(self._direct) if fault == "stored" else 0
            if fault == "stored":
                replies.cancel()
            to_server.write(message)
            await to_server.drain()
            if fault == "stored":
                await until(lambda before=before: _is_stored(self._direct, before))
                break
        else:
            return
        self.fault = "none"
        self.cuts += 1


async def _message(client: asyncio.StreamReader) -> bytes:
    """The next message of a client, whole; empty at the end of what it sends.

    See https://docs.nats.io/reference/reference-protocols/nats-protocol.
    """
    line = await client.readline()
    operation, *words = line.split() or [b""]
    if operation not in (b"PUB", b"HPUB"):
        return line
    try:
        return line + await client.readexactly(int(words[-1]) + len(b"\r\n"))
    except asyncio.IncompleteReadError:
        return b""


async def _last(connection: Connection) -> int:
    entry = await api.last_message(connection, STREAM, RECORD)
    return 0 if entry is None else entry.position


async def _is_stored(connection: Connection, before: int) -> bool:
    return await _last(connection) > before


class Shown(NamedTuple):
    """What a service shows of its work, and what the log says of it.

    metrics: the values of its metrics by what is asked for.
    lines: the position and the outcome of each input that has a line.
    """

    metrics: dict[str, float]
    lines: list[tuple[object, object]]
    commands: list[Entry]
    events: list[Entry]
    spans: list[Span]


METRICS = {
    "processed": 'nodepool_messages_processed_total{message="SetQuota",nodepool_service="quota",'
    'outcome="stored"}',
    "commands": 'nodepool_commands_total{command="SetQuota"',
    "published": "nodepool_messages_published_total{",
    "ages": "nodepool_message_age_seconds_count",
    "in doubt": 'nodepool_commits_total{nodepool_service="quota",result="in_doubt"}',
    "leading": "nodepool_leading",
}


async def _story(server: NatsServer, folder: Path, fault: Fault) -> Shown:
    """Three commands to a quota service, of which the second meets the fault."""
    with receiving() as receiver:
        others = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint,
            "OTEL_BSP_SCHEDULE_DELAY": "100",
        }
        async with connected(server.url) as direct:
            proxy = Proxy(int(server.url.rpartition(":")[2]), direct)
            async with proxy.running() as port:
                url = f"nats://{HOST}:{port}"
                with launched(
                    "quota", server, folder, free_port(), others=others, traces="otlp", url=url
                ) as replica:
                    await _commanded(direct, "c1")
                    proxy.fault = fault
                    await _commanded(direct, "c2")
                    await until(lambda: proxy.cuts == (fault != "none"))
                    await _commanded(direct, "c3")
                    await until(lambda: len(_lines(replica)) >= 3)
                    metrics = {name: replica.metric(text) for name, text in METRICS.items()}
                    await until(lambda: len(receiver.spans) >= 3)
                    replica.process.send_signal(signal.SIGTERM)
                    assert await asyncio.to_thread(replica.process.wait, PATIENCE_S) == 0
                    log = await read_all(direct)
                    lines = _lines(replica)
        commands = [each for each in log if each.subject.startswith("np.cmd.")]
        events = [each for each in log if each.subject.startswith("np.evt.")]
        return Shown(metrics, lines, commands, events, receiver.spans)


async def _commanded(connection: Connection, id: str) -> None:
    await send(connection, limit(int(id[1:])), id, f"00-{TRACE}-b7ad6b716920333{id[1:]}-01")
    await outcome(connection, id)


def _lines(replica: ReplicaProcess) -> list[tuple[object, object]]:
    if not replica.log.exists():
        return []
    return [(line["position"], line["outcome"]) for line in replica.lines() if "position" in line]


async def test_a_commit_that_arrives_in_pieces_is_cut_too(server: NatsServer) -> None:
    async with connected(server.url) as direct:
        # given a commit that is to be lost, of which a part lies in the network still
        proxy = Proxy(int(server.url.rpartition(":")[2]), direct)
        proxy.fault = "lost"
        async with proxy.running() as port:
            reader, writer = await asyncio.open_connection(HOST, port)
            writer.write(b'CONNECT {"verbose": false}\r\nPING\r\nPUB np.com')
            await reader.readuntil(b"PONG\r\n")

            # when the rest of it arrives
            writer.write(b"mit.quota 2\r\n{}\r\nPING\r\n")
            rest = await reader.read()
            writer.close()

        # then the connection is cut before the server has it
        assert (rest, proxy.cuts) == (b"", 1)
        assert await _last(direct) == 0


@pytest.mark.parametrize("fault", ["none", "lost", "stored"])
async def test_whatever_becomes_of_the_reply_to_a_commit_each_input_is_shown_once(
    server: NatsServer, tmp_path: Path, fault: Fault
) -> None:
    # given a service with traces, and a commit that goes through, or is lost, or whose reply is
    # when three commands are carried out, the second of which is in that commit
    shown = await _story(server, tmp_path, fault)

    # then each command and each event that follows is counted once
    assert shown.metrics == {
        "processed": 3,
        "commands": 3,
        "published": len(shown.events),
        "ages": 3,
        "in doubt": fault != "none",
        "leading": 1,
    }
    assert len(shown.events) == 6

    # and each command has one line, and one span, which the events that follow from it name
    positions = [entry.position for entry in shown.commands]
    assert shown.lines == [(position, "stored") for position in positions]
    spans = {span.attributes["nodepool.position"]: span for span in shown.spans}
    assert Counter(span.name for span in shown.spans) == {"process np.cmd.{org}._._.SetQuota": 3}
    events = [json.loads(entry.content) for entry in shown.events]
    assert [(each["causeposition"], each["traceparent"]) for each in events] == [
        (position, f"00-{TRACE}-{spans[position].id}-01")
        for position in positions
        for _ in ("CommandAccepted", "QuotaSet")
    ]
