"""A cluster of three servers under load: its leader killed, each restarted in turn, one wiped."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from bus.harness import fill, read_all, until
from faults.cluster import SIZE, Cluster
from faults.copies import FAULTS, PATIENCE_S, leader
from faults.maintenance import Maintenance, beside
from faults.run import provisioned, run
from nodepool.client.doctor.log import check_streams
from nodepool.local.binary import find_server
from nodepool.nats.log import api
from nodepool.nats.log.streams import STREAM, streams
from nodepool.nats.wire.connection import connect

SEED = 11
LOG = f"stream {STREAM}"
"""What the doctor calls the log."""
LONGEST_S = 300
"""How long the acts may take, tried again or not; the run ends with the last of them."""
SERVICES_S = 1.0
"""How long services may take after the bus, in the best of a few tries of each act."""


def test_the_new_server_is_never_the_one_that_is_killed_beside_it() -> None:
    numbers = range(SIZE)

    killed = {(new, leader): beside(new, leader) for new in numbers for leader in numbers}

    assert [key for key, number in killed.items() if number == key[0]] == []
    assert [key for key, number in killed.items() if key[0] != key[1] != number] == []


@pytest.mark.timeout(700)
def test_a_cluster_goes_on_while_its_servers_are_killed_restarted_and_replaced() -> None:
    maintenance = Maintenance(SERVICES_S)

    report = asyncio.run(run(SEED, LONGEST_S, maintenance.run))

    assert report.violations == [], "\n".join(report.violations)
    assert len(maintenance.recoveries) == 2 + SIZE
    assert max(each.services_s for each in maintenance.recoveries) < SERVICES_S


@asynccontextmanager
async def three_servers(folder: Path) -> AsyncIterator[Cluster]:
    """A cluster at work, which is gone afterwards."""
    cluster = Cluster(folder, find_server(os.environ.get("NODEPOOL_NATS_SERVER")))
    try:
        for server in cluster.servers:
            await server.start()
        yield cluster
    finally:
        for server in cluster.servers:
            await server.kill()


async def test_a_log_with_one_copy_gets_three(tmp_path: Path) -> None:
    async with three_servers(tmp_path) as cluster:
        connection = await connect(cluster.url, "test", patience_s=60)

        # given a log with one copy, and something in it
        log = await provisioned(connection, 1)
        await fill(connection, [("np.cmd.a._._.X", b"{}")] * 50)

        # when the services want three
        again = await provisioned(connection, SIZE)

        # then it is the same log, and each stream has three
        copies = []
        for name in streams():
            info = await api.request(connection, f"$JS.API.STREAM.INFO.{name}")
            config = info["config"]
            assert isinstance(config, dict)
            copies.append(config["num_replicas"])
        assert (again, set(copies)) == (log, {SIZE})
        assert len(await read_all(connection, STREAM)) == 50

        # and where one is wanted again, it has one
        assert await provisioned(connection, 1) == log
        assert len(await read_all(connection, STREAM)) == 50
        await connection.close()


async def test_the_doctor_names_the_server_whose_copy_is_missing(tmp_path: Path) -> None:
    async with three_servers(tmp_path) as cluster:
        # given a log with three copies, of which none is missing
        connection = await connect(cluster.url, "test", patience_s=60)
        await provisioned(connection, SIZE)

        async def problems() -> list[str]:
            with suppress(*FAULTS):
                each = [finding async for finding in check_streams(connection, 0)]
                return [f.text for f in each if (f.status, f.check) == ("problem", LOG)]
            return ["the log cannot be asked for"]

        async def is_whole() -> bool:
            return await problems() == []

        await until(is_whole, PATIENCE_S)

        # when a server that does not lead the log is gone
        gone = (await leader(connection) + 1) % SIZE
        await cluster.servers[gone].kill()

        # then that is the problem, and the server is named: its copy does not follow, or is
        # behind (where nothing is stored meanwhile, the others take long to call it offline)
        async def is_named() -> bool:
            texts = await problems()
            return len(texts) == 1 and texts[0].startswith(f"its copy on s{gone} ")

        await until(is_named, PATIENCE_S)
        await connection.close()
