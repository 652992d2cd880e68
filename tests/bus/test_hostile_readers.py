"""Whoever reads names where the server sends what is read: it arrives in no account but its own."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from bus.accounts import ORG, Guarded, guarded_server
from bus.guarded_gateway import at_work, listen, user
from bus.harness import limit, outcome, read_all, send, serving, until
from nodepool.auth.accounts import ARCHIVER, GATEWAY, OPERATOR
from nodepool.auth.rights import stream_names
from nodepool.contract.log import LOG, Entry
from nodepool.contract.services import FEED
from nodepool.nats.log.api import publish, request
from nodepool.nats.log.reader import HEARTBEAT_S
from nodepool.nats.wire.connection import Connection
from nodepool.nats.wire.errors import ServerRefusal
from support.services import services

READERS: Mapping[str, Sequence[str]] = {
    "autoscaler": [LOG],
    "aggregator": [LOG, "KV_nodepools"],
    FEED: [LOG],
    GATEWAY: [LOG, "KV_nodepools"],
    ARCHIVER: [LOG],
}
"""Users whose keys were stolen, and streams that each may read."""
TARGETS = (
    *(f"np.cmd.{ORG}._._.SetQuota", f"np.cmd.{ORG}.prod.train.DeleteNodePool"),
    *(f"np.evt.quota.{ORG}._._.QuotaSet", f"np.evt.autoscaler.{ORG}.y.z.AutoscalingFailed"),
    *("np.commit.quota", "np.commit.autoscaler", "np.dead.quota", "np.dead.autoscaler"),
    *("np-snapshot.quota.manifest", "np-snapshot.autoscaler.x", f"$KV.nodepools.{ORG}.x"),
    *(f"np.door.cmd.{ORG}.prod.train.DeleteNodePool", f"np.door.api.{ORG}.get"),
    *(f"$JS.API.STREAM.PURGE.{stream}" for stream in stream_names()),
    *(f"$JS.API.STREAM.DELETE.{stream}" for stream in stream_names()),
    *(f"$JS.API.STREAM.MSG.DELETE.{stream}" for stream in stream_names()),
    f"$JS.API.CONSUMER.DELETE.{LOG}.victim",
)
"""Where what is read would be believed, or would change or remove something."""
INBOX = "_INBOX_operator.x"
"""Where the operator listens. Its inboxes have random names, so nobody can have a consumer made for
one, which would push into it."""
OWN = b'{"own": "message"}'
EMPTY = 20
SECOND_NS = 1_000_000_000


@pytest.mark.parametrize("name", READERS)
async def test_what_a_hostile_reader_has_sent_elsewhere_is_stored_nowhere_and_removes_nothing(
    tmp_path: Path, name: str
) -> None:
    with guarded_server(tmp_path) as server:
        await server.provision()
        async with (
            user(server, OPERATOR) as operator,
            user(server, name) as hostile,
            at_work(server, tmp_path),
        ):
            # given a command without an id that would be done again, and what others have stored
            heard = await listen(operator, INBOX)
            await fill_streams(server, operator)
            victim = {"name": "victim", "ack_policy": "none", "inactive_threshold": 60 * SECOND_NS}
            await consumer(operator, LOG, victim)
            before = await stored(operator)

            # when the reader has the server send what it reads to each subject
            for stream in READERS[name]:
                await have_pushed(hostile, stream)
                await have_pulled(hostile, stream)
            await have_answered(hostile, name)

            # then each stream holds what it has held, and nobody has heard anything
            assert await stored(operator) == before
            await operator.flush()
            assert heard == []
            await request(operator, f"$JS.API.CONSUMER.INFO.{LOG}.victim")


async def fill_streams(server: Guarded, operator: Connection) -> None:
    """Store a command, an event, a snapshot and an object, each as the one who may."""
    await publish(operator, f"np.cmd.{ORG}._._.SetQuota", b'{"limit": 1}')
    async with user(server, "quota") as quota, user(server, "aggregator") as aggregator:
        await publish(quota, f"np.evt.quota.{ORG}._._.QuotaSet", b'{"limit": 1}')
        await publish(quota, "np-snapshot.quota.manifest", b"{}")
        await publish(aggregator, f"$KV.nodepools.{ORG}.prod.train", b"{}")


async def stored(operator: Connection) -> dict[str, list[Entry]]:
    """All that is in each stream, without what the reader may say itself."""
    return {
        stream: [each for each in await read_all(operator, stream) if each.content != OWN]
        for stream in stream_names()
    }


async def consumer(connection: Connection, stream: str, config: Mapping[str, object]) -> None:
    """Make a consumer."""
    body = {"stream_name": stream, "config": {"mem_storage": True, **config}}
    await request(connection, f"$JS.API.CONSUMER.CREATE.{stream}.{config['name']}", body)


async def have_pushed(hostile: Connection, stream: str) -> None:
    """Have the server push a stream, and heartbeats, to each target that it takes."""
    for number, target in enumerate(TARGETS):
        beats = {"deliver_subject": target, "idle_heartbeat": SECOND_NS // 10}
        with suppress(ServerRefusal):  # It pushes no stream into the same stream.
            await consumer(hostile, stream, {"name": f"p{number}", "ack_policy": "none", **beats})


async def have_pulled(hostile: Connection, stream: str) -> None:
    """Pull a stream to each target: its messages, and the statuses that the server makes up."""
    await consumer(hostile, stream, {"name": "pulled", "ack_policy": "none"})
    heard = await listen(hostile, inbox := hostile.new_inbox())
    beats = {"batch": 9, "expires": SECOND_NS // 5, "idle_heartbeat": SECOND_NS // 20}
    for target in (*TARGETS, INBOX, inbox):
        for wish in ({"batch": 1, "no_wait": True}, beats):
            subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.pulled"
            await hostile.publish(subject, json.dumps(wish).encode(), reply=target)
    # The server answers the last request when it has answered all before.
    await until(lambda: inbox in heard)


async def have_answered(hostile: Connection, name: str) -> None:
    """Have other requests answered on each target, and what the reader itself stores."""
    for target in (*TARGETS, INBOX):
        for subject in (f"$JS.API.STREAM.INFO.{LOG}", f"np.dead.{name}", f"np-snapshot.{name}.x"):
            content = b"" if subject.startswith("$JS") else OWN
            await hostile.publish(subject, content, reply=target)
        if name == ARCHIVER:
            nothing = b'{"seq": 1}'
            await hostile.publish(f"$JS.API.STREAM.PURGE.{LOG}", nothing, reply=target)
        newest = b'{"last_by_subj": "np.cmd.>"}'
        await hostile.publish(f"$JS.API.STREAM.MSG.GET.{LOG}", newest, reply=target)
    await hostile.flush()
    await request(hostile, f"$JS.API.STREAM.INFO.{LOG}")


async def test_empty_messages_in_the_log_hardly_delay_who_reads_them(tmp_path: Path) -> None:
    (quota,) = services("quota")
    with guarded_server(tmp_path) as server:
        await server.provision()
        access = server.access("quota")
        async with (
            user(server, OPERATOR) as operator,
            serving(quota, server, tmp_path / "quota.log", access=access),
        ):
            # given messages without content and headers, after which the server replies no more
            for _ in range(EMPTY):
                await operator.publish(f"np.cmd.{ORG}._._.SetQuota", b"")
            began = asyncio.get_running_loop().time()

            # when a command follows
            await send(operator, limit(1), "c1")

            # then its outcome comes long before a silent server would be noticed that often
            await outcome(operator, "c1")
            assert asyncio.get_running_loop().time() - began < EMPTY * HEARTBEAT_S / 4
