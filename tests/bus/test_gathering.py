"""Messages that arrive while others are being stored are stored together, each on its own."""

import asyncio

import pytest

from bus.harness import PATIENCE_S, connected, freeze, read_all
from nodepool.local.server import NatsServer
from nodepool.nats.log.gathering import BATCH_MESSAGES_MAX, Gatherer
from nodepool.nats.wire.errors import InDoubt

SUBJECT = "np.cmd.acme.prod.p%d.ScaleNodePool"
COUNT = 2 * BATCH_MESSAGES_MAX + 10


async def test_each_message_gets_the_position_at_which_it_lies(server: NatsServer) -> None:
    async with connected(server.url) as connection:
        # given more messages at once than fit a batch
        gatherer = Gatherer(connection)
        sent = (gatherer.publish(SUBJECT % number, b"%d" % number) for number in range(COUNT))

        # when they are stored
        positions = await asyncio.gather(*sent)

        # then each lies where it is said to, in the order in which they came
        entries = {entry.position: entry for entry in await read_all(connection)}
        assert positions == list(range(1, COUNT + 1))
        assert [entries[position].content for position in positions] == [
            b"%d" % number for number in range(COUNT)
        ]
        assert entries[COUNT].subject == SUBJECT % (COUNT - 1)


async def test_a_message_that_the_log_does_not_take_stops_no_other(server: NatsServer) -> None:
    async with connected(server.url) as connection:
        # given a message on a subject of no stream, among others
        gatherer = Gatherer(connection)
        subjects = [SUBJECT % 0, SUBJECT % 1, "nowhere", SUBJECT % 2]

        # when they are sent at once
        results = await asyncio.gather(
            *(gatherer.publish(subject, b"{}") for subject in subjects), return_exceptions=True
        )

        # then only that one is not stored, and more can be
        assert isinstance(results.pop(2), InDoubt)
        assert sorted(map(str, results)) == ["1", "2", "3"]
        assert await gatherer.publish(SUBJECT % 3, b"{}") == 4
        assert len(await read_all(connection)) == 4


async def test_messages_are_in_doubt_if_the_connection_is_lost(server: NatsServer) -> None:
    async with connected(server.url) as connection:
        # given messages that a stopped server does not reply to, one of which nobody awaits
        gatherer = Gatherer(connection)
        freeze(server)
        sent = [asyncio.create_task(gatherer.publish(SUBJECT % n, b"{}")) for n in range(20)]
        late = asyncio.create_task(gatherer.publish(SUBJECT % 20, b"{}"))
        await asyncio.sleep(0)
        late.cancel()

        # when the server is killed
        await asyncio.to_thread(server.kill)

        # then each of them is in doubt, and more can be stored
        async with asyncio.timeout(PATIENCE_S):
            results = await asyncio.gather(*sent, return_exceptions=True)
        assert {type(result) for result in results} == {InDoubt}
        with pytest.raises(asyncio.CancelledError):
            await late
        await asyncio.to_thread(server.start)
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    assert await gatherer.publish(SUBJECT % 21, b"{}") > 0
                    break
                except InDoubt:
                    continue
