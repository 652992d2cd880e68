"""Open pages of the console whose browser reads nothing, on a real socket."""

import asyncio
import re
import socket
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest

from bus.accounts import CLUSTER
from bus.consoles import Browser, console_at_work
from bus.harness import PATIENCE_S, until
from nodepool.client import Client
from support.constants import H100
from testbed.pages import page

VIEW = "/nodepools"
STUCK_BYTES = 1_024
"""How much a browser takes that reads nothing: less than a page."""
MANIFEST = """\
apiVersion: compute.coreweave.com/v1alpha1
kind: NodePool
metadata: {{name: train}}
spec: {{instanceType: {type}, targetNodes: {target}}}
"""


async def open_page(browser: Browser, *, is_stuck: bool = False) -> socket.socket:
    """The stream of a page."""
    parts = urlsplit(browser.base)
    made = socket.socket()
    if is_stuck:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, STUCK_BYTES)
    made.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(made, (parts.hostname, parts.port))
    lines = (f"GET /live?{urlencode({'view': VIEW})} HTTP/1.1", f"Host: {parts.netloc}")
    request = "\r\n".join([*lines, f"Cookie: {browser.cookie}", "", ""])
    await loop.sock_sendall(made, request.encode())
    return made


async def read_until(opened: socket.socket, text: str) -> None:
    """Read a stream until it has a text."""
    seen = b""
    async with asyncio.timeout(PATIENCE_S):
        while text.encode() not in seen:
            more = await asyncio.get_running_loop().sock_recv(opened, 65_536)
            assert more, "the stream has ended"
            seen += more


async def scale(operator: Client, target: int) -> None:
    """Give the NodePool another target."""
    await operator.nodepools.apply(MANIFEST.format(type=H100, target=target))


async def test_a_browser_that_reads_nothing_is_cut_off_and_costs_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("console.main.UNTAKEN_S", 1)
    async with console_at_work(tmp_path) as world:

        async def count_open() -> int:
            address = f"http://127.0.0.1:{world.console.port}/metrics"
            found = re.search(
                r"^nodepool_console_streams{.*} (\d+)", await asyncio.to_thread(page, address), re.M
            )
            assert found is not None
            return int(found[1])

        async def is_cut_off() -> bool:
            return await count_open() == 1

        # given two browsers that show the same page, one of which reads nothing
        await scale(world.operator, 1)
        browser = await world.browser("owner")
        with await open_page(browser) as reading, await open_page(browser, is_stuck=True):
            await read_until(reading, f"{CLUSTER}.train")

            # when the NodePool changes, then the other one is not kept waiting
            await scale(world.operator, 2)
            await read_until(reading, "/2")

            # and the one that reads nothing is cut off
            await until(is_cut_off)

            # and the other one goes on
            await scale(world.operator, 3)
            await read_until(reading, "/3")
