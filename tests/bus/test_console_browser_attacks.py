"""Pages of other sites in a user's browser: they frame, send and read nothing of the console."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bus.accounts import CLUSTER
from bus.browsers import in_browser, tab
from bus.consoles import console_at_work
from bus.test_console import apply
from nodepool.contract.documents import field
from support.constants import H100

TRAIN = f"/nodepools/{CLUSTER}/train"
PAGE = """<!doctype html><title>prize</title>
<iframe id="frame" src="{base}{train}/scale"></iframe>
<form id="form" method="post" action="{base}{train}/scale">
<input name="target" value="7"><input name="before" value="1"><input name="do" value="scale">
</form>"""
READS = """url => Promise.all(["cors", "no-cors"].map(mode =>
fetch(url, {mode, credentials: "include"}).then(answer => answer.text(), () => "")))"""


@asynccontextmanager
async def other_site(host: str, base: str) -> AsyncIterator[str]:
    """Another program on this machine that serves a page about a console."""
    body = PAGE.format(base=base, train=TRAIN)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {len(body)}"
        writer.write(f"{head}\r\nConnection: close\r\n\r\n{body}".encode())
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield f"http://{host}:{server.sockets[0].getsockname()[1]}"


# Cookies do not know ports: what else is at the address of the console is of the same site.
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
@in_browser
async def test_a_page_of_another_origin_can_neither_frame_nor_send_nor_read(
    tmp_path: Path, host: str
) -> None:
    async with console_at_work(tmp_path) as world:
        await apply(world.operator, "train", H100, 1)
        base = world.console.url
        async with tab(world) as owner, other_site(host, base) as site:
            await owner.sees("1 of 1")
            await owner.open(f"{TRAIN}/scale")
            await owner.sees("This NodePool has 1 of 1 Nodes.")

            # when a user who has signed in opens a page of another site as well
            page = await owner.page.context.new_page()
            await page.goto(site)

            # then that page has nothing of the console in its frame, and reads nothing
            assert await page.frame_locator("#frame").locator("main, form").count() == 0
            assert await page.evaluate(READS, f"{base}{TRAIN}") == ["", ""]

            # and when it sends a form, then that is refused, and nothing changes
            async with page.expect_navigation() as navigation:
                await page.evaluate("document.getElementById('form').submit()")
            response = await navigation.value
            assert response is not None
            assert response.status == 403
            document = await world.operator.nodepools.get("train")
            assert field(document, "spec", "targetNodes") == 1
            assert owner.faults == []
