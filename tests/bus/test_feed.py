"""The reader that the services of a process share: each gets each message once, in order."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from bus.harness import connected, fill, restart, until
from bus.test_lost_streams import keep, put_back
from nodepool.contract.log import LogId
from nodepool.local.server import NatsServer
from nodepool.nats.log import api
from nodepool.nats.log.consumers import REPLICA, SERVICE
from nodepool.nats.log.feed import Feed, Member
from nodepool.nats.log.reader import BUFFER_MAX, Reader
from nodepool.nats.log.streams import STREAM, provision
from nodepool.nats.log.verification import verify_log
from nodepool.nats.wire.connection import Connection
from nodepool.nats.wire.errors import LogChanged, StreamChanged
from nodepool.nats.wire.waiting import cancel
from support.loopback import CHUNK, leading_to, pass_on
from support.loopback import listening as listening_on

ALL = "np.evt.a.acme.prod.p"
MANY = 3 * BUFFER_MAX


def messages(first: int, last: int) -> list[tuple[str, bytes]]:
    """Messages with these numbers: a third is on the subject `Third`, the others on `Rest`."""
    return [
        (f"{ALL}.{'Rest' if number % 3 else 'Third'}", str(number).encode())
        for number in range(first, last)
    ]


class Gate:
    """Leads to a server, and holds back what the server sends while it is shut."""

    def __init__(self, server: NatsServer) -> None:
        self._port = urlsplit(server.url).port or 0
        self.opened = asyncio.Event()
        self.opened.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serves one client."""
        async with leading_to(self._port) as (server, to_server):
            passing = asyncio.create_task(pass_on(reader, to_server))
            while chunk := await server.read(CHUNK):
                await self.opened.wait()
                writer.write(chunk)
                await writer.drain()
            await cancel(passing)


@asynccontextmanager
async def feeding(connection: Connection, feed: Feed, log: LogId) -> AsyncIterator[None]:
    """The feed reads the log from its end on, until the end of the context."""
    start = await api.last_position(connection, STREAM) + 1
    verify = partial(verify_log, connection, log, is_whole=True)
    reader = Reader(connection, STREAM, [], start=start, wants=lambda _: True, verify=verify)
    task = asyncio.create_task(feed.run(reader, log))
    await until(lambda: feed.reads(log))
    try:
        yield
    finally:
        await cancel(task)


class Listener:
    """A member of a feed, and the numbers of the messages that it got.

    name: `Third` or `Rest`, the messages that it wants, or `All`.
    turns: how often it has taken messages.
    is_paused: whether it takes no messages for now.
    """

    def __init__(self, connection: Connection, feed: Feed, log: LogId, name: str) -> None:
        filters = [f"{ALL}.{'*' if name == 'All' else name}"]
        verify = partial(verify_log, connection, log)

        def wants(subject: str) -> bool:
            return subject.startswith(ALL) and (name == "All" or subject.endswith(name))

        self.name = name
        self.got: list[int] = []
        self.turns = 0
        self.is_paused = False
        self.member = Member(feed, log, connection, filters, start=1, wants=wants, verify=verify)
        self.member.metadata = {SERVICE: name, REPLICA: f"mark of {name}"}

    async def listen(self) -> None:
        """Takes messages as a session does, until cancelled."""
        await self.member.open()
        try:
            while True:
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.05):
                        await self.member.arrived.wait()
                self.member.arrived.clear()
                if self.is_paused:
                    continue
                entries = await self.member.take()
                self.turns += 1
                self.got += [int(entry.content) for entry in entries]
        finally:
            await self.member.close()

    def has(self, last: int) -> bool:
        """Whether it has each message up to this number that it wants, once and in order."""
        wanted = [
            number
            for number in range(last)
            if self.name == "All" or (number % 3 == 0) is (self.name == "Third")
        ]
        assert self.got == wanted[: len(self.got)], "one is missing, or there twice"
        return len(self.got) == len(wanted)


@asynccontextmanager
async def listening(*listeners: Listener) -> AsyncIterator[None]:
    """Lets listeners listen until the end of the context, and raises what has ended one."""
    tasks = [asyncio.create_task(each.listen()) for each in listeners]
    try:
        yield
        for task in tasks:
            if task.done():
                task.result()
    finally:
        await cancel(*tasks)


async def all_have(last: int, *listeners: Listener) -> None:
    await until(lambda: all(each.has(last) for each in listeners))


async def shown(connection: Connection, key: str) -> list[set[str]]:
    """Return what each consumer shows under a key of its metadata, if it shows anything."""
    listed = (await api.request(connection, f"$JS.API.CONSUMER.LIST.{STREAM}"))["consumers"]
    assert isinstance(listed, list)
    found = [info["config"].get("metadata", {}).get(key) for info in listed]
    return [set(text.split(",")) for text in found if text is not None]


async def one_consumer(connection: Connection, services: set[str]) -> bool:
    """Return whether there is one consumer, and it shows these services."""
    return await shown(connection, SERVICE) == [services]


async def test_members_that_have_caught_up_read_by_one_consumer(server: NatsServer) -> None:
    async with connected(server.url) as connection:
        # given a log with messages, and a feed
        log = await provision(connection)
        await fill(connection, messages(0, 100))
        feed = Feed()
        listeners = [Listener(connection, feed, log, name) for name in ("Third", "Rest", "All")]
        async with feeding(connection, feed, log), listening(*listeners):
            # when members that begin at the start of the log have caught up
            await until(lambda: all(each.member.is_joined for each in listeners))

            # then each has what it wants, and one consumer reads for all of them
            await all_have(100, *listeners)
            await until(lambda: one_consumer(connection, {"All", "Rest", "Third"}))

            # and they get further messages of it
            await fill(connection, messages(100, 200))
            await all_have(200, *listeners)
            assert all(each.member.is_joined for each in listeners)


async def test_no_member_misses_a_message_whatever_ends_the_feed(server: NatsServer) -> None:
    async with connected(server.url) as connection, connected(server.url) as others:
        # given members of a feed, and messages that come all the time
        log = await provision(connection)
        feed, stop, sent = Feed(), asyncio.Event(), 0
        listeners = [Listener(connection, feed, log, name) for name in ("Third", "Rest", "All")]

        async def send() -> None:
            nonlocal sent
            while not stop.is_set():
                await fill(others, messages(sent, sent + 50))
                sent += 50

        sending = asyncio.create_task(send())
        async with listening(*listeners):
            # when the feed begins and ends again and again
            for _ in range(5):
                async with feeding(connection, feed, log):
                    await until(lambda: any(each.member.is_joined for each in listeners))
            stop.set()
            await sending

            # then each member has each message once
            await all_have(sent, *listeners)


async def test_a_member_joins_only_once_it_has_what_was_stored_before_the_feed_began(
    server: NatsServer,
) -> None:
    gate = Gate(server)
    async with (
        connected(server.url) as connection,
        listening_on(gate.serve) as port,
        connected(f"nats://127.0.0.1:{port}") as slow,
    ):
        # given a member that has all messages, and whose connection brings none any more
        log = await provision(connection)
        await fill(connection, messages(0, 10))
        feed = Feed()
        listener = Listener(slow, feed, log, "All")
        async with listening(listener):
            await all_have(10, listener)
            gate.opened.clear()

            # when a message is stored, then a feed begins, and the member looks for messages
            await fill(connection, messages(10, 11))
            async with feeding(connection, feed, log):
                turns = listener.turns
                await until(lambda: listener.turns > turns + 3)

                # then it has not joined the feed, which does not have that message
                assert not listener.member.is_joined

                # and it joins once its connection has brought the message
                gate.opened.set()
                await fill(connection, messages(11, 20))
                await all_have(20, listener)
                await until(lambda: listener.member.is_joined)


async def test_members_read_on_after_the_server_was_killed(server: NatsServer) -> None:
    async with connected(server.url) as connection:
        # given members that have joined a feed
        log = await provision(connection)
        feed = Feed()
        listeners = [Listener(connection, feed, log, name) for name in ("Third", "Rest")]
        async with feeding(connection, feed, log), listening(*listeners):
            await fill(connection, messages(0, 100))
            await until(lambda: all(each.member.is_joined for each in listeners))

            # when the server is killed, and more messages come once it is back
            await restart(server)
            async with connected(server.url) as others:
                await fill(others, messages(100, 200))

            # then each has each message once
            await all_have(200, *listeners)


async def test_a_member_reads_alone_while_its_feed_does_not_run(server: NatsServer) -> None:
    async with connected(server.url) as connection:
        # given a member that has read all messages, and a feed that does not run
        log = await provision(connection)
        await fill(connection, messages(0, 10))
        listener = Listener(connection, Feed(), log, "All")
        async with listening(listener):
            await all_have(10, listener)

            # when it looks for messages again
            turns = listener.turns
            await until(lambda: listener.turns > turns + 3)

            # then it has not joined the feed, and has what is stored next
            assert not listener.member.is_joined
            await fill(connection, messages(10, 20))
            await all_have(20, listener)


async def test_members_read_alone_while_the_feed_hears_nothing(server: NatsServer) -> None:
    gate = Gate(server)
    async with (
        connected(server.url) as connection,
        listening_on(gate.serve) as port,
        connected(f"nats://127.0.0.1:{port}") as of_feed,
    ):
        # given members of a feed that has a connection of its own
        log = await provision(connection)
        feed = Feed()
        listeners = [Listener(connection, feed, log, name) for name in ("Third", "Rest")]
        async with feeding(of_feed, feed, log), listening(*listeners):
            await fill(connection, messages(0, 100))
            await until(lambda: all(each.member.is_joined for each in listeners))

            # when that connection brings nothing any more, and messages are stored
            gate.opened.clear()
            await fill(connection, messages(100, 200))

            # then each has each message once, and reads alone
            await all_have(200, *listeners)
            assert not any(each.member.is_joined for each in listeners)

            # and they join the feed again once it hears the server
            gate.opened.set()
            await until(lambda: all(each.member.is_joined for each in listeners))
            await fill(connection, messages(200, 300))
            await all_have(300, *listeners)


async def test_a_member_notices_that_the_log_has_gone_back_beneath_the_feed(
    server: NatsServer, tmp_path: Path
) -> None:
    data, copy = tmp_path / "nats", tmp_path / "copy"
    async with connected(server.url) as connection:
        # given a copy of the log, and a member that has read further messages by the feed
        log = await provision(connection)
        await fill(connection, messages(0, 10))
        await asyncio.to_thread(server.stop)
        keep(data, copy)
        await restart(server)
        feed = Feed()
        listener = Listener(connection, feed, log, "All")
        with suppress(StreamChanged):  # The feed notices it, too.
            async with feeding(connection, feed, log):
                listens = asyncio.create_task(listener.listen())
                await until(lambda: listener.member.is_joined)
                await fill(connection, messages(10, 20))
                await all_have(20, listener)
                assert listener.member.is_joined

                # when the copy is put in the place of the log, which grows beyond what it has read
                await asyncio.to_thread(server.stop)
                put_back(data, copy)
                await asyncio.to_thread(server.start)
                async with connected(server.url) as others:
                    await fill(others, messages(30, 60))

                # then it reads nothing of that, and says why; it may look before the log grows
                with pytest.raises(LogChanged, match=r"was set back and has|ends at 10, and was"):
                    await listens
                assert listener.has(20)


async def test_a_member_that_takes_nothing_keeps_nobody_waiting_and_misses_nothing(
    server: NatsServer,
) -> None:
    async with connected(server.url) as connection:
        # given two members of a feed, of which one takes nothing for now
        log = await provision(connection)
        feed = Feed()
        slow, quick = (Listener(connection, feed, log, name) for name in ("All", "Rest"))
        async with feeding(connection, feed, log), listening(slow, quick):
            await until(lambda: slow.member.is_joined and quick.member.is_joined)
            slow.is_paused = True

            # when more messages come than may wait for it
            await fill(connection, messages(0, MANY))

            # then the other member has them, and it has them once it takes messages again
            await all_have(MANY, quick)
            assert (slow.got, slow.member.is_joined) == ([], False)
            slow.is_paused = False
            await all_have(MANY, slow)
            await until(lambda: slow.member.is_joined)


async def test_a_member_of_another_log_does_not_read_by_the_feed(server: NatsServer) -> None:
    async with connected(server.url) as connection:
        # given a feed, and a member that has read another log
        log = await provision(connection)
        feed = Feed()
        listener = Listener(connection, feed, LogId("another"), "All")
        async with feeding(connection, feed, log):
            # when it is to read
            # then it learns that the log is another one
            with pytest.raises(LogChanged, match="and no longer another"):
                await listener.listen()
