"""What each server of a cluster holds is read from that server, and from no other."""

from pathlib import Path

import pytest

from bus.harness import BINARY, fill
from faults.cluster import SIZE, Cluster
from faults.copies import copies, copy_of
from faults.run import provisioned
from nodepool.nats.wire.connection import connect

MESSAGES = [("np.cmd.a._._.X", f"message {number}".encode()) for number in range(1, 51)]
GONE = 1
"""The number of a server that is not the first, nor the last."""


async def test_the_copy_of_a_server_that_is_gone_is_not_read_from_another(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, BINARY)
    connection = None
    try:
        for server in cluster.servers:
            await server.start()
        connection = await connect(cluster.url, "test", patience_s=60)

        # given a log of which every server has a copy
        await provisioned(connection)
        await fill(connection, MESSAGES)
        for copy in await copies(connection):
            assert [(entry.subject, entry.content) for entry in copy] == MESSAGES

        # when one of the servers is gone
        await cluster.servers[GONE].kill()

        # then there is no copy of that one, and one of each of the others
        with pytest.raises(TimeoutError):
            await copy_of(connection, GONE, patience_s=5)
        for number in set(range(SIZE)) - {GONE}:
            assert len(await copy_of(connection, number)) == len(MESSAGES)
    finally:
        if connection is not None:
            await connection.close()
        for server in cluster.servers:
            await server.kill()
