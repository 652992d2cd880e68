"""The end of a console: a process that is asked to stop says nothing but its log."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from bus.accounts import ORG
from bus.consoles import Browser, World, console_at_work
from bus.harness import PATIENCE_S, until
from bus.test_console import frame_with, frames


@dataclass
class Process:
    """A console as a process, and a browser in which its owner has signed in."""

    running: asyncio.subprocess.Process
    browser: Browser

    def stop(self) -> None:
        """Ask it to stop."""
        self.running.terminate()

    async def last_words(self) -> tuple[int | None, str]:
        """Its exit status, and what it has said beside its log, once it has ended."""
        async with asyncio.timeout(PATIENCE_S):
            _, errors = await self.running.communicate()
        return self.running.returncode, errors.decode()


@asynccontextmanager
async def console_process(world: World, folder: Path) -> AsyncIterator[Process]:
    """A console as a process."""
    links = folder / "other-links"
    settings = {"URL": world.server.url, "METRICS_PORT": "-1", "CONSOLE_PORT": "0"}
    settings |= {"CONSOLE_KEYS": str(folder / "keys"), "CONSOLE_LINKS": str(links)}
    environment = {f"NODEPOOL_{name}": text for name, text in settings.items()}
    paths = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path)}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "console"),
        env={**environment, **paths},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        await until((links / f"{ORG}.owner").is_file)
        link = (links / f"{ORG}.owner").read_text().strip()
        browser = Browser(link.partition("/login")[0])
        assert (await browser.get(link)).status == 303
        yield Process(process, browser)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_a_console_that_ends_takes_leave_of_open_pages_without_an_error(
    tmp_path: Path,
) -> None:
    async with (
        console_at_work(tmp_path) as world,
        console_process(world, tmp_path) as console,
        # given a page is open
        frames(console.browser, "/nodepools") as stream,
    ):
        await frame_with(stream, "No NodePools yet")

        # when the console is asked to stop, then it does, and says nothing but its log
        console.stop()
        assert await console.last_words() == (0, "")


async def test_a_console_that_ends_opens_no_page_again_and_says_nothing_but_its_log(
    tmp_path: Path,
) -> None:
    async with console_at_work(tmp_path) as world, console_process(world, tmp_path) as console:
        # given an open page, whose browser opens it again as soon as it ends
        async def stay() -> None:
            while True:
                with suppress(ConnectionError):
                    async with frames(console.browser, "/nodepools") as stream:
                        await stream.left()

        async with frames(console.browser, "/nodepools") as stream:
            await frame_with(stream, "No NodePools yet")
            staying = asyncio.create_task(stay())

            # when the console is asked to stop, then it does, and says nothing but its log
            console.stop()
            assert await console.last_words() == (0, "")
        staying.cancel()


async def test_a_console_that_ends_waits_for_no_form_that_does_not_arrive(tmp_path: Path) -> None:
    async with console_at_work(tmp_path) as world, console_process(world, tmp_path) as console:
        # given a browser that has sent the begin of a form
        host = urlsplit(console.browser.base)
        _, writer = await asyncio.open_connection(host.hostname, host.port)
        head = f"POST /create HTTP/1.1\r\nHost: {host.netloc}\r\nOrigin: {console.browser.base}\r\n"
        kind = "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 100\r\n"
        writer.write(f"{head}{kind}Cookie: {console.browser.cookie}\r\n\r\nname=".encode())
        await writer.drain()
        assert (await console.browser.get("/create")).status == 200

        # when the console is asked to stop, then it does, and says nothing but its log
        console.stop()
        assert await console.last_words() == (0, "")
        writer.close()
