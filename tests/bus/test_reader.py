"""The reader on a real server: each message once and in order, whatever is killed or deleted."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from functools import partial

import pytest
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from bus.harness import PATIENCE_S, ROUNDS, connected, fill, freeze, read, restart, until
from nodepool.contract.log import Entry
from nodepool.local.server import NatsServer
from nodepool.nats.log import api
from nodepool.nats.log.consumers import kept_of
from nodepool.nats.log.direct import MOST, read_on
from nodepool.nats.log.filtering import BEHIND
from nodepool.nats.log.reader import BUFFER_MAX, Reader
from nodepool.nats.log.streams import STREAM
from nodepool.nats.wire.connection import Connection
from nodepool.nats.wire.errors import Conflict, InDoubt
from nodepool.nats.wire.waiting import cancel

WANTED, UNWANTED = "np.evt.a.acme.prod.p.Wanted", "np.evt.a.acme.prod.p.Unwanted"
RESTARTS = 10
AT_WORK_S = 1.0
"""How soon a reader must have a message after its server is up again."""


def has_reconnected(connection: Connection, times: int) -> bool:
    return connection.stats["reconnects"] == times


def numbers(first: int, last: int, subject: str = WANTED) -> list[tuple[str, bytes]]:
    return [(subject, str(number).encode()) for number in range(first, last)]


def contents(entries: list[Entry]) -> list[int]:
    return [int(entry.content) for entry in entries]


@asynccontextmanager
async def reading(
    connection: Connection,
    start: int = 1,
    wants: Callable[[str], bool] | None = None,
) -> AsyncIterator[Reader]:
    reader = Reader(connection, STREAM, [WANTED], start=start, wants=wants)
    await reader.open()
    try:
        yield reader
    finally:
        await reader.close()


async def consumers(connection: Connection) -> list[str]:
    names = (await api.request(connection, f"$JS.API.CONSUMER.NAMES.{STREAM}"))["consumers"]
    assert isinstance(names, list)
    return names


async def filters(connection: Connection) -> list[object]:
    """The filters of every consumer; None for one that has none."""
    listed = (await api.request(connection, f"$JS.API.CONSUMER.LIST.{STREAM}"))["consumers"]
    assert isinstance(listed, list)
    configs = [info["config"] for info in listed]
    return [
        [config["filter_subject"]] if "filter_subject" in config else config.get("filter_subjects")
        for config in configs
    ]


async def publish_until_stored(connection: Connection, number: int) -> None:
    """Publishes a number until it is stored, on conditions that keep it from being stored twice."""
    content = b"%d" % number
    while True:
        with suppress(InDoubt, Conflict, NatsError, OSError):
            last = await api.last_message(connection, STREAM, WANTED)
            if last is None or last.content != content:
                condition = {api.EXPECTED_SEQUENCE: str(last.position if last else 0)}
                await api.publish(connection, WANTED, content, condition, timeout_s=2)
            return


# --- what a reader returns ---------------------------------------------------------------------


async def test_a_reader_returns_what_matches_its_filters_in_the_order_of_the_log(
    server: NatsServer,
) -> None:
    async with connected(server.url) as connection:
        # given a log of two kinds of messages
        await fill(connection, [*numbers(0, 10), *numbers(0, 10, UNWANTED), *numbers(10, 20)])

        # when a reader has a filter for one kind
        async with reading(connection) as reader:
            entries = await read(reader, 20)

        # then it returns those, all of them, in order, each with its position and time
        assert contents(entries) == list(range(20))
        assert [entry.position for entry in entries] == [*range(1, 11), *range(21, 31)]
        assert entries == sorted(entries, key=lambda entry: entry.time)
        assert {entry.subject for entry in entries} == {WANTED}


async def test_a_reader_starts_at_the_position_that_it_was_given(server: NatsServer) -> None:
    async with connected(server.url) as connection:
        # given a log
        await fill(connection, numbers(0, 10))

        # when a reader starts in its middle
        async with reading(connection, start=6) as reader:
            entries = await read(reader, 5)

        # then that is the first message it returns
        assert contents(entries) == list(range(5, 10))


async def test_a_reader_without_messages_returns_nothing_when_the_time_is_up(
    server: NatsServer,
) -> None:
    # given an empty log
    async with connected(server.url) as connection, reading(connection) as reader:
        # when its caller waits for a short time only
        entries = await reader.next(timeout_s=0.05)

        # then there is no message
        assert entries == []


async def test_a_reader_that_is_woken_without_a_message_waits_on(server: NatsServer) -> None:
    async with connected(server.url) as connection, reading(connection) as reader:
        # given a caller that waits for a message
        waiting = asyncio.create_task(reader.next())
        await connection.flush()

        # when it is woken, as after each verification, and a message is stored later
        reader.arrived.set()
        await connection.flush()
        await fill(connection, numbers(0, 1))

        # then it returns the message
        assert contents(await waiting) == [0]


async def test_pending_counts_the_messages_in_the_log_that_were_not_returned_yet(
    server: NatsServer,
) -> None:
    async with connected(server.url) as connection:
        # given a log of a hundred wanted messages among others
        await fill(connection, [*numbers(0, 100), *numbers(0, 50, UNWANTED)])

        # when a reader has returned none of them
        async with reading(connection) as reader:
            before = reader.pending
            entries = await read(reader, 100)

            # then all are pending, and none once all are returned
            assert before == 100
            assert len(entries) == 100
            assert reader.pending == 0


async def test_newest_returns_only_the_last_write_of_each_key_and_then_each_change(
    server: NatsServer,
) -> None:
    async with connected(server.url) as connection:
        # given keys that were written more than once
        writes = [(f"$KV.nodes.{key}", b"%d" % number) for number in (1, 2, 3) for key in "abc"]
        for subject, content in writes:
            await api.publish(connection, subject, content)

        # when a reader starts with the newest of each
        reader = Reader(connection, "KV_nodes", ["$KV.nodes.>"], newest=True)
        await reader.open()
        entries = await read(reader, 3)

        # then it returns these
        assert [entry.subject[-1] for entry in entries] == ["a", "b", "c"]
        assert contents(entries) == [3, 3, 3]

        # and then each change
        await api.publish(connection, "$KV.nodes.b", b"4")
        assert contents(await read(reader, 1)) == [4]
        await reader.close()


async def test_a_reader_buffers_a_bounded_number_of_messages_and_loses_none_of_the_rest(
    server: NatsServer,
) -> None:
    async with connected(server.url) as connection:
        # given more messages than a reader buffers
        count = BUFFER_MAX + 3_000
        await fill(connection, numbers(0, count))

        # when they are not taken from it for a while
        async with reading(connection) as reader:
            await until(lambda: reader.last >= BUFFER_MAX)
            for _ in range(3):
                await connection.flush()
            buffered = await reader.take()

            # then it has buffered as many as it may, and the rest follows when they are taken
            assert len(buffered) == BUFFER_MAX
            rest = await read(reader, count - len(buffered))
            assert contents(buffered + rest) == list(range(count))


def foreign(count: int, first: int = 0) -> list[tuple[str, bytes]]:
    """Messages that are not wanted, each on a subject of its own."""
    return [(f"np.evt.a.acme.prod.q{first + number}.Unwanted", b"{}") for number in range(count)]


def mixed(count: int) -> list[tuple[str, bytes]]:
    """So many wanted messages, each followed by one that is not, on a subject of its own."""
    others = foreign(count)
    return [pair for n in range(count) for pair in ((WANTED, b"%d" % n), others[n])]


def is_wanted(subject: str) -> bool:
    return subject == WANTED


async def until_filters_are(connection: Connection, wanted: list[object]) -> None:
    """Returns once the only consumers are those with these filters; None is none."""

    async def are_there() -> bool:
        return await filters(connection) == wanted

    await until(are_there)


async def test_a_reader_far_behind_reads_without_filters_and_follows_with_them(
    server: NatsServer,
) -> None:
    async with connected(server.url) as connection:
        # given a reader that can filter by itself, far behind a mixed log
        count = 2_000
        await fill(connection, mixed(count))

        # when it opens
        async with reading(connection, wants=is_wanted) as reader:
            unfiltered = None in await filters(connection)
            entries = await read(reader, count)

            # then it reads without filters, and returns only what is wanted
            assert unfiltered
            assert contents(entries) == list(range(count))

            # and once it is at the end, it reads with its filters again
            await until_filters_are(connection, [[WANTED]])
            await fill(connection, [*foreign(300, count), *numbers(count, count + 300)])
            assert contents(await read(reader, 300)) == list(range(count, count + 300))


async def test_a_reader_whose_memory_ends_in_a_message_goes_on_with_no_other_message(
    server: NatsServer,
) -> None:
    async with connected(server.url) as connection:
        # given a reader of a mixed log, whose memory ends at the hundredth message
        await fill(connection, mixed(2_000))
        left = iter(range(99))

        def wants(subject: str) -> bool:
            if next(left, None) is None:
                raise MemoryError
            return is_wanted(subject)

        async with reading(connection, wants=wants) as reader:
            # when the log is read, then whoever reads learns of it
            with pytest.raises(MemoryError):
                await read(reader, 2_000)


async def test_a_reader_far_behind_with_few_matches_has_the_server_find_them(
    server: NatsServer,
) -> None:
    async with connected(server.url) as connection:
        # given few messages that are wanted among many that are not
        await fill(connection, [*foreign(2_000), *numbers(0, 20), *foreign(2_000)])

        # when a reader opens
        async with reading(connection, wants=is_wanted) as reader:
            # then it reads with its filter from the beginning
            assert await filters(connection) == [[WANTED]]
            assert contents(await read(reader, 20)) == list(range(20))


async def test_a_reader_with_filters_that_falls_behind_reads_on_without_them(
    server: NatsServer,
) -> None:
    async with connected(server.url) as connection:
        # given a reader that has taken up its filters
        await fill(connection, mixed(1_000))
        async with reading(connection, wants=is_wanted) as reader:
            await read(reader, 1_000)
            await until_filters_are(connection, [[WANTED]])

            # when more is written than it may buffer, and nothing is taken from it
            count = BUFFER_MAX + 2 * BEHIND
            await fill(connection, numbers(0, count))

            # then it reads on without filters, and loses nothing
            await until_filters_are(connection, [None])
            assert contents(await read(reader, count)) == list(range(count))


# --- what may happen to it ----------------------------------------------------------------------


async def test_a_reader_returns_each_message_once_and_in_order_over_ten_killed_servers(
    server: NatsServer,
) -> None:
    async with connected(server.url) as connection, reading(connection) as reader:
        # given a client that publishes all the time
        written = 0
        enough = asyncio.Event()

        async def write() -> None:
            nonlocal written
            while not enough.is_set():
                await publish_until_stored(connection, written)
                written += 1

        writing = asyncio.create_task(write())
        entries: list[Entry] = []

        # when the server is killed ten times, each time after some more was read
        for _ in range(RESTARTS):
            entries += await read(reader, 20)
            await restart(server)
        enough.set()
        await writing
        entries += await read(reader, written - len(entries))

        # then no message is missing, none came twice, and all came in order
        assert contents(entries) == list(range(written))
        positions = [entry.position for entry in entries]
        assert positions == sorted(set(positions))


async def test_a_reader_is_at_work_within_a_second_after_its_server_is_up(
    server: NatsServer,
) -> None:
    # given a reader that follows the log
    async with connected(server.url) as connection, reading(connection) as reader:
        took: list[float] = []
        for number in range(ROUNDS):
            await publish_until_stored(connection, number)
            assert contents(await read(reader, 1)) == [number]

            # when the server is killed and another one started
            async def write(number: int) -> None:
                async with connected(server.url) as writer:
                    await publish_until_stored(writer, number + 100)

            back = await restart(server)
            writing = asyncio.create_task(write(number))
            entries = await read(reader, 1)
            took.append(asyncio.get_running_loop().time() - back)
            await writing

            # then the reader has a message of the new one within the time limit
            assert contents(entries) == [number + 100]
            if took[-1] <= AT_WORK_S:
                break
        assert min(took) <= AT_WORK_S


async def test_a_reader_whose_server_is_killed_while_it_creates_a_consumer_is_soon_back(
    server: NatsServer,
) -> None:
    async with connected(server.url) as connection:
        took: list[float] = []
        for number in range(ROUNDS):
            # given a reader whose consumer is deleted just before the server is killed
            async with reading(connection, start=number * 2 + 1) as reader:
                for name in await consumers(connection):
                    await api.request(connection, f"$JS.API.CONSUMER.DELETE.{STREAM}.{name}")
                publishing = asyncio.create_task(publish_until_stored(connection, number * 2))

                # when the server comes back
                back = await restart(server)
                await publishing
                await publish_until_stored(connection, number * 2 + 1)
                entries = await read(reader, 2)
                took.append(asyncio.get_running_loop().time() - back)

            # then the reader does not wait for the reply that cannot come
            assert contents(entries) == [number * 2, number * 2 + 1]
            if took[-1] <= AT_WORK_S:
                break
        assert min(took) <= AT_WORK_S


async def test_a_deleted_consumer_is_created_anew_at_the_readers_position(
    server: NatsServer,
) -> None:
    async with connected(server.url) as connection, reading(connection) as reader:
        # given a reader that has read something
        await fill(connection, numbers(0, 10))
        before = await read(reader, 10)

        # when its consumer is deleted, and more is published
        for name in await consumers(connection):
            await api.request(connection, f"$JS.API.CONSUMER.DELETE.{STREAM}.{name}")
        await fill(connection, numbers(10, 20))
        after = await read(reader, 10)

        # then it goes on where it was
        assert contents(before + after) == list(range(20))


@pytest.fixture
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has a reader look at its consumer more often than every five seconds."""
    monkeypatch.setattr("nodepool.nats.log.consumers.LOOK_S", 0.3)


@pytest.mark.usefixtures("looks_often")
@pytest.mark.parametrize("change", ["paused", "given other filters"])
async def test_a_reader_whose_consumer_somebody_has_changed_goes_on_with_another(
    server: NatsServer, change: str
) -> None:
    async with connected(server.url) as connection, reading(connection) as reader:
        # given a reader that has read something
        await fill(connection, numbers(0, 10))
        before = await read(reader, 10)
        (name,) = await consumers(connection)

        # when somebody pauses its consumer for ever, or changes its filters, and more comes
        if change == "paused":
            subject = f"$JS.API.CONSUMER.PAUSE.{STREAM}.{name}"
            await api.request(connection, subject, {"pause_until": "2099-01-01T00:00:00Z"})
        else:
            info = await api.request(connection, f"$JS.API.CONSUMER.INFO.{STREAM}.{name}")
            config = {**kept_of(info), "filter_subject": "np.cmd.nobody.x.y.Z"}
            subject = f"$JS.API.CONSUMER.CREATE.{STREAM}.{name}"
            body = {"stream_name": STREAM, "config": config}
            await api.request(connection, subject, body)
        await fill(connection, numbers(10, 20))
        after = await read(reader, 10)

        # then it makes another one, and nothing is missing
        assert contents(before + after) == list(range(20))
        assert await consumers(connection) != [name]


@pytest.mark.usefixtures("looks_often")
async def test_a_reader_keeps_a_consumer_that_nobody_has_changed(server: NatsServer) -> None:
    async with connected(server.url) as connection, connected(server.url) as other:
        # given a reader, and a program that hears how often it looks at its consumer
        looked = list[Msg]()

        async def note(message: Msg) -> None:
            looked.append(message)

        await other.subscribe(f"$JS.API.CONSUMER.INFO.{STREAM}.*", cb=note)
        await other.flush()
        async with reading(connection):
            before = await consumers(connection)

            # when it has looked twice
            await until(lambda: len(looked) >= 2)

            # then the consumer is the same
            assert await consumers(connection) == before


async def test_attempts_to_create_a_consumer_become_rare_while_the_server_refuses(
    server: NatsServer,
) -> None:
    async with connected(server.url) as connection, connected(server.url) as other:
        # given a reader of a stream that is not there, which hears its own requests before
        # the replies to them
        clock, times = asyncio.get_running_loop().time, list[float]()

        async def note(_: Msg) -> None:
            times.append(clock())

        await connection.subscribe("$JS.API.CONSUMER.CREATE.LATE.>", cb=note)
        await connection.flush()
        reader = Reader(connection, "LATE", ["late"])
        opening = asyncio.create_task(reader.open())

        # when the server has refused it some times
        await until(lambda: len(times) >= 8)

        # then the pauses have grown, even where chance made each as short as it can
        assert times[7] - times[0] >= 0.025 + 0.05 + 0.1 + 4 * 0.2

        # and once the stream is there, it is read
        config = {"name": "LATE", "subjects": ["late"]}
        await api.request(other, "$JS.API.STREAM.CREATE.LATE", config)
        await opening
        await api.publish(other, "late", b"1")
        assert [entry.content for entry in await read(reader, 1)] == [b"1"]
        await reader.close()


async def test_a_closed_reader_returns_nothing_and_creates_no_consumer(server: NatsServer) -> None:
    async with connected(server.url) as connection:
        # given a reader that is closed
        async with reading(connection) as reader:
            pass

        # when the server is restarted, and more is published
        await restart(server)
        await publish_until_stored(connection, 1)

        # then the reader returns nothing, and has no consumer
        assert await reader.next(timeout_s=0.05) == []
        assert await consumers(connection) == []


async def test_a_reader_that_is_closed_while_it_creates_its_consumer_leaves_none(
    server: NatsServer,
) -> None:
    async with connected(server.url) as connection, connected(server.url) as other:
        # given a program that hears of consumers
        events = list[str]()

        async def note(message: Msg) -> None:
            events.append(message.subject.split(".")[4])

        await other.subscribe("$JS.EVENT.ADVISORY.CONSUMER.*.>", cb=note)
        await other.flush()

        # and a stopped server, which has yet to read that a reader wants a consumer
        assert server.pid is not None
        freeze(server)
        before = connection.stats["out_msgs"]
        opening = asyncio.create_task(Reader(connection, STREAM, [WANTED]).open())
        await until(lambda: connection.stats["out_msgs"] > before)

        # when the reader is closed, and the server goes on
        closing = asyncio.create_task(cancel(opening))
        os.kill(server.pid, signal.SIGCONT)
        await closing

        # then no consumer stays that looks like that of a replica that hangs
        await until(lambda: events == ["CREATED", "DELETED"])
        assert await consumers(connection) == []


async def test_a_reader_that_waits_for_a_stream_does_not_keep_its_connection_from_being_made_anew(
    server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a server that may reply late (it is not the subject here)
    monkeypatch.setattr("nodepool.nats.wire.connection.CONNECT_S", PATIENCE_S)

    async with connected(server.url) as connection:
        # given a reader that tries again and again, since there is no such stream
        reader = Reader(connection, "LATER", [WANTED])
        faults: list[str] = []
        connection.on_fault.append(faults.append)
        opening = asyncio.create_task(reader.open())

        # when the connection is lost again and again, and the reader is told so twice each time
        for number in range(1, RESTARTS + 1):
            connection._server_lost()
            await connection.force_reconnect()
            await until(partial(has_reconnected, connection, number))

        # then each first attempt to make it anew succeeds
        assert faults == []
        opening.cancel()
        await reader.close()


async def test_nothing_is_read_on_of_a_log_that_lacks_the_message_before(
    server: NatsServer,
) -> None:
    async with connected(server.url) as connection:
        # given a log that has another message where the last one was
        await fill(connection, numbers(0, 20))
        tries = iter(range(10))
        other = datetime(2020, 1, 1, tzinfo=UTC)

        # when it is read on ten times, then nothing comes
        entries = read_on(
            connection, STREAM, lambda: (5, other), lambda: next(tries, None) is not None
        )
        assert [entry async for entry in entries] == []


async def test_a_task_that_reads_on_with_a_closed_reader_can_be_cancelled(
    server: NatsServer,
) -> None:
    async with connected(server.url) as connection:
        # given a task that reads on although its reader is closed
        reader = Reader(connection, STREAM, [WANTED])
        await reader.open()
        await reader.close()

        async def read_on() -> None:
            while True:
                await reader.next()

        task = asyncio.create_task(read_on())
        await asyncio.sleep(0)

        # when it is cancelled
        task.cancel()

        # then it ends
        await asyncio.wait((task,), timeout=5)
        assert task.cancelled()


# Without a consumer.


async def test_a_stream_is_read_on_from_any_position_without_a_consumer(server: NatsServer) -> None:
    async with connected(server.url) as connection:
        # given more messages than one request brings
        await fill(connection, numbers(0, MOST + 10))
        first = await api.message_at(connection, STREAM, 5)
        assert first is not None
        entries = [first]

        # when they are read on from the sixth
        def last() -> tuple[int, datetime]:
            return entries[-1].position, entries[-1].time

        async for entry in read_on(connection, STREAM, last, lambda: len(entries) < MOST + 6):
            entries.append(entry)

        # then each is there once and in order, and the server has no consumer
        assert contents(entries) == list(range(4, MOST + 10))
        assert {entry.subject for entry in entries} == {WANTED}
        assert await consumers(connection) == []
