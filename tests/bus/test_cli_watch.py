"""`nodepool get --watch` while the server goes and comes back."""

import json
import os
import signal

import pytest

from bus.cli import watching
from bus.harness import connected
from nodepool.local.server import NatsServer
from nodepool.nats.log import api


async def put(server: NatsServer, name: str) -> None:
    """Stores a NodePool of the read model."""
    content = json.dumps({"metadata": {"name": name}}).encode()
    async with connected(server.url) as connection:
        await api.publish(connection, f"$KV.nodepools.demo.demo.{name}", content)


@pytest.mark.parametrize("way", ["killed", "stopped"])
async def test_a_watch_says_when_the_server_is_gone_and_goes_on_when_it_is_back(
    way: str, server: NatsServer
) -> None:
    pid = server.pid
    assert pid is not None
    await put(server, "first")
    with watching(server, "get", "np", "-w", "-o", "name", "--request-timeout", "6s") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "nodepool.compute.coreweave.com/first\n"
        if way == "killed":
            server.kill()
        else:
            os.kill(pid, signal.SIGSTOP)
        gone = process.stderr.readline()
        if way == "killed":
            server.start()
        else:
            os.kill(pid, signal.SIGCONT)
        back = process.stderr.readline()
        await put(server, "second")
        then = process.stdout.readline()

    assert gone == f"the server at {server.url} is gone; waiting for it\n"
    assert back == f"the server at {server.url} is back\n"
    assert then == "nodepool.compute.coreweave.com/second\n"
