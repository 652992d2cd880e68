"""`nodepool get --watch` while the server goes and comes back."""

import asyncio
import json
import os
import subprocess
import sys

from bus.harness import connected
from nodepool.local.server import NatsServer
from nodepool.nats import api


def put(server: NatsServer, name: str) -> None:
    """Stores a NodePool of the read model."""
    content = json.dumps({"metadata": {"name": name}}).encode()

    async def story() -> None:
        async with connected(server.url) as connection:
            await api.publish(connection, f"$KV.nodepools.demo.demo.{name}", content)

    asyncio.run(story())


def test_a_watch_says_when_the_server_is_gone_and_goes_on_when_it_is_back(
    server: NatsServer,
) -> None:
    put(server, "first")
    command = [sys.executable, "-m", "nodepool.cli", "--url", server.url, "get", "np", "-w"]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [*command, "-o", "name"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.readline() == "nodepool.compute.coreweave.com/first\n"
            server.kill()
            gone = process.stderr.readline()
            server.start()
            back = process.stderr.readline()
            put(server, "second")
            then = process.stdout.readline()
        finally:
            process.kill()

    assert gone == f"the server at {server.url} is gone; waiting for it\n"
    assert back == f"the server at {server.url} is back\n"
    assert then == "nodepool.compute.coreweave.com/second\n"
