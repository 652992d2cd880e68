"""Open tabs of the console: streams of frames, and when each of them shows a change."""

import asyncio
import gzip
import re
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from typing import Final, cast
from urllib.parse import urlencode, urlsplit

from bench.load import within

Change = tuple[str, int]
"""A NodePool, and its new target."""
PATIENCE_S: Final = 60.0
STUCK_BYTES: Final = 4_096
"""How much a tab that reads nothing takes before the console has to wait."""
DRAIN_S: Final = 5.0
"""For how long such a tab is read at the end."""
_ROW: Final = re.compile(
    rb'id="pool-prod\.(pool-\d+)" data-row data-name.*?data-v="\d+/(\d+)"', re.DOTALL
)
"""A row with its content; a row that stays as it is has none."""
_PAGE: Final = re.compile(rb"<h1>(pool-\d+)</h1>\ndata: <p>([\d,]+) ")
_END: Final = b"\n\n"


@lru_cache(maxsize=64)
def shown_in(frame: bytes) -> Mapping[str, int]:
    """Return the target of each NodePool in a frame; many browsers get the same frame."""
    found = [*_ROW.findall(frame), *_PAGE.findall(frame)]
    return {name.decode(): int(target.replace(b",", b"")) for name, target in found}


class Tab(asyncio.Protocol):
    """A page that is open.

    seen: when the page has shown each change, by a clock that never jumps.
    frames, received: how many frames it got, and how many bytes.
    has_begun, has_ended: set with the first frame, and at the end of the stream.
    """

    def __init__(self, view: str, request: bytes) -> None:
        self.view, self._request = view, request
        self._buffer = bytearray()
        self._shown: dict[str, int] = {}
        self.seen: dict[Change, float] = {}
        self.frames = self.received = 0
        self.has_begun, self.has_ended = asyncio.Event(), asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for the stream."""
        # uvloop's transports are no `asyncio.Transport`.
        cast("asyncio.Transport", transport).write(self._request)

    def connection_lost(self, exc: Exception | None) -> None:
        """Note the end of the stream."""
        self.has_ended.set()

    def data_received(self, data: bytes) -> None:
        """Take every frame that is complete."""
        self.received += len(data)
        start = max(0, len(self._buffer) - len(_END))
        self._buffer += data
        end = self._buffer.rfind(_END, start)
        if end < 0:
            return
        content, now = bytes(self._buffer[:end]), time.monotonic()
        del self._buffer[: end + len(_END)]
        for frame in content.split(_END):
            begin = frame.find(b"id: ")
            if begin >= 0:
                self._take(frame[begin:], now)

    def _take(self, frame: bytes, now: float) -> None:
        self.frames += 1
        self.has_begun.set()
        for name, target in shown_in(frame).items():
            before = self._shown.get(name, target - (self.frames > 1))
            self._shown[name] = target
            self.seen.update(((name, each), now) for each in range(before + 1, target + 1))


class Visitor:
    """A browser in which a user has signed in with a one-time link."""

    def __init__(self, link: str) -> None:
        parts = urlsplit(link)
        self._host, self._port = parts.hostname or "", parts.port or 0
        self._link = f"{parts.path}?{parts.query}"
        self.cookies: Mapping[str, str] = {}

    def url(self, path: str) -> str:
        """Return the whole address of a page."""
        return f"http://{self._host}:{self._port}{path}"

    async def sign_in(self) -> None:
        """Open the link."""
        head, _ = await self.get(self._link)
        found = re.findall(rb"set-cookie: ([^=]+)=([^;]+)", head, re.IGNORECASE)
        self.cookies = {name.decode(): value.decode() for name, value in found}

    async def get(self, path: str) -> tuple[bytes, bytes]:
        """Return the head and the body of an answer, as they came."""
        reader, writer = await asyncio.open_connection(self._host, self._port)
        # Answers to this version of HTTP end with their connection: a long one comes in parts.
        writer.write(self._request(path, "HTTP/1.0"))
        head = await reader.readuntil(b"\r\n\r\n")
        body = await reader.read()
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        return head, body

    async def load(self, path: str) -> int:
        """Return the bytes of a page with all files that it needs, as they came."""
        _, body = await self.get(path)
        files = re.findall(rb'(?:src|href)="(/static/[^"]+)"', gzip.decompress(body))
        return len(body) + sum([len((await self.get(each.decode()))[1]) for each in files])

    def _request(self, path: str, version: str = "HTTP/1.1") -> bytes:
        cookie = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        lines = [f"GET {path} {version}", f"Host: {self._host}:{self._port}"]
        lines += ["Accept-Encoding: gzip", f"Cookie: {cookie}", "", ""]
        return "\r\n".join(lines).encode()

    async def open_tabs(self, views: Sequence[str]) -> Sequence[Tab]:
        """Open these pages; return once each has its first frame."""
        loop = asyncio.get_running_loop()
        tabs = [Tab(view, self._request(_live(view))) for view in views]

        def describe() -> str:
            waiting = [tab for tab in tabs if not tab.has_begun.is_set()]
            ended = sum(tab.has_ended.is_set() for tab in waiting)
            views = sorted({tab.view for tab in waiting})
            return f"{len(waiting)} tabs have no frame, {ended} of them ended: {views}"

        async with within(PATIENCE_S, describe):
            for tab in tabs:
                await loop.create_connection(partial(_same, tab), self._host, self._port)
            await asyncio.gather(*(tab.has_begun.wait() for tab in tabs))
        return tabs

    async def open_stuck(self, view: str) -> socket.socket:
        """Open a page, and read nothing of it."""
        made = socket.socket()
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, STUCK_BYTES)
        made.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(made, (self._host, self._port))
        await loop.sock_sendall(made, self._request(_live(view)))
        return made


async def is_closed(stuck: socket.socket) -> bool:
    """Return whether a page of which nothing was read has ended: the system says so if asked."""
    loop = asyncio.get_running_loop()
    with stuck, suppress(TimeoutError):
        async with asyncio.timeout(DRAIN_S):
            with suppress(OSError):
                await loop.sock_sendall(stuck, b"\r\n")
                while await loop.sock_recv(stuck, 65_536):
                    pass
            return True
    return False


def _live(view: str) -> str:
    return f"/live?{urlencode({'view': view})}"


def _same(tab: Tab) -> Tab:
    return tab
