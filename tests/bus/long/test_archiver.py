"""An archiver that is killed at any moment."""

import asyncio
import random
from pathlib import Path

from bus.archives import (
    archived_to,
    audit,
    end_of,
    fill_with_messages,
    launched_archiver,
)
from bus.harness import connected, until
from bus.test_archiver import MESSAGES, verify
from nodepool.local.server import NatsServer
from nodepool.nats.log import api
from nodepool.nats.log.streams import STREAM


async def test_an_archiver_that_is_killed_at_any_moment_archives_each_message_once(
    server: NatsServer, tmp_path: Path
) -> None:
    archive, chance = tmp_path / "archive", random.Random(7)

    async with connected(server.url) as connection:
        await fill_with_messages(connection, MESSAGES)
        # given an archiver that is killed again and again, while messages arrive
        for number in range(1, 7):
            with launched_archiver(server, archive, tmp_path) as archiver:
                before, wanted = end_of(archive), chance.randrange(1, MESSAGES // 3)
                filling = asyncio.create_task(
                    fill_with_messages(connection, MESSAGES // 4, start=number * MESSAGES)
                )
                await until(lambda: end_of(archive) - before >= wanted)  # noqa: B023
                archiver.process.kill()
            await filling

        # when it is started once more
        last = await api.last_position(connection, STREAM)
        with launched_archiver(server, archive, tmp_path):
            await archived_to(archive, last)

        # then the archive holds all messages exactly once, and is whole
        assert await audit(connection, archive) == last
    assert await verify(archive) == 0
