"""Open pages, kept up to date: each gets a frame when what it shows has changed."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from starlette.types import Receive, Scope, Send

from console.host.account import Account
from console.host.frames import Frame, make_frame
from console.host.noting import Reads
from console.host.telemetry import Telemetry

FRAME_S: Final = 0.25
"""The least time between two frames, in seconds."""
TICK_S: Final = 10.0
"""After how many seconds a page is made again even if nothing that it has read has changed."""
TAKEN_S: Final = 15.0
"""How long a browser may take for a frame before its stream is closed, in seconds."""
STREAMS_MAX: Final = 500
"""The most open pages at a time."""
HEAD: Final = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]
Render = Callable[[], Awaitable[str]]
ENDED: Final = make_frame(0, '<main id="main" data-ended></main>')
"""The frame after the end of a session: the page is loaded again, and leads to the login."""
NOTHING_NEW: Final = b": nothing new\n\n"


@dataclass(frozen=True, slots=True)
class Shown:
    """A page that a browser shows.

    view: its address, which is equal for browsers of a user that show the same page.
    make: makes the page. is_signed_in: returns whether the session of this browser goes on.
    """

    view: str
    make: Render
    is_signed_in: Callable[[], bool]


class View:
    """A page of a user that at least one browser shows; its frames are the same for all of them."""

    def __init__(self, account: Account, turn: asyncio.Lock) -> None:
        """Begin without a frame; `turn` is shared by all pages."""
        self._account, self._turn = account, turn
        self._frame: Frame | None = None
        self._reads, self._revision = Reads(), -1
        self._looked = self._made = 0.0
        self._looking: asyncio.Task[None] | None = None
        self.viewers = 0

    async def frame(self, shown: Shown, before: Frame | None = None) -> Frame:
        """Return the page as it is now; if that is `before`, wait for a while until it differs."""
        frame, ends = self._frame, time.monotonic() + TICK_S
        is_current = before is None and self._reads.hold()
        while frame is None or not (is_current if before is None else _differs(frame, before)):
            if self._looking is None or self._looking.done():
                # The browser that asks first has the page made, for all that wait for it.
                self._looking = asyncio.create_task(self._look(shown))
            looking = self._looking
            await asyncio.wait((looking,), timeout=TICK_S)
            if looking.done():
                looking.result()
                is_current = True
            frame = self._frame
            if frame is not None and (self._account.is_closed or time.monotonic() >= ends):
                break
        return frame

    def close(self) -> None:
        """Make no more frames."""
        if self._looking is not None:
            self._looking.cancel()

    async def _look(self, shown: Shown) -> None:
        """Make a frame once the page may have changed; it has the number of one that is equal."""
        mirror, before = self._account.mirror, self._frame
        if before is not None:
            await self._wait_until_changed()
        # Between two pages, the loop has a turn: what arrives need not wait until all are made.
        async with self._turn:
            await asyncio.sleep(0)
        self._revision, self._looked = mirror.revision, time.monotonic()
        self._made, reads = self._looked, Reads()
        with reads.open():
            frame = make_frame(mirror.position, await shown.make())
        if before is not None and frame.after(before) is None:
            frame = replace(frame, number=before.number)
        self._frame, self._reads = frame, reads

    async def _wait_until_changed(self) -> None:
        """Wait until something that the page has read has changed, or the page is too old."""
        mirror, ends = self._account.mirror, self._made + TICK_S
        is_same = True
        while is_same:
            await asyncio.sleep(self._looked + FRAME_S - time.monotonic())
            await mirror.wait_for_change(self._revision, ends - time.monotonic())
            self._revision, self._looked = mirror.revision, time.monotonic()
            is_over = self._looked >= ends or self._account.is_closed
            is_same = not is_over and self._reads.hold()


def _differs(one: Frame, other: Frame) -> bool:
    return one.number != other.number


class Streams:
    """The open pages."""

    def __init__(self, telemetry: Telemetry, taken_s: float = TAKEN_S) -> None:
        """Begin without a page; `taken_s` is how long a browser may take for a frame."""
        self._telemetry, self.taken_s = telemetry, taken_s
        self.count = 0
        self._views: dict[tuple[Account, str], View] = {}
        self._turn = asyncio.Lock()

    def response(self, account: Account, shown: Shown) -> "Stream":
        """Return the response that keeps a page up to date."""
        return Stream(self, account, shown)

    @contextmanager
    def open(self, account: Account, view: str) -> Iterator[View]:
        """Count a browser that shows a page; what is kept of the page goes with the last one."""
        self.count += 1
        opened = self._views.setdefault((account, view), View(account, self._turn))
        opened.viewers += 1
        try:
            yield opened
        finally:
            self.count -= 1
            opened.viewers -= 1
            if not opened.viewers:
                opened.close()
                del self._views[account, view]

    def note_frame(self) -> None:
        """Count a frame."""
        self._telemetry.count_frame()

    def note_dropped(self) -> None:
        """Count a page that has not taken its frames."""
        self._telemetry.count_dropped()


class Stream:
    """One open page, as a response that does not end by itself."""

    def __init__(self, streams: Streams, account: Account, shown: Shown) -> None:
        self._streams, self._account, self._shown = streams, account, shown

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send frames until the browser is gone, or does not take them."""
        with self._streams.open(self._account, self._shown.view) as view:
            sending = asyncio.create_task(self._send_all(view, send))
            leaving = asyncio.create_task(_wait_until_gone(receive))
            try:
                await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
                if sending.done() and not sending.cancelled():
                    sending.result()
            except TimeoutError:
                self._streams.note_dropped()
            finally:
                sending.cancel()
                leaving.cancel()

    async def _send_all(self, view: View, send: Send) -> None:
        newest: Frame | None = None
        before: Frame | None = None
        await send({"type": "http.response.start", "status": 200, "headers": HEAD})
        while not self._account.is_closed:
            self._account.used = time.monotonic()
            newest = await view.frame(self._shown, newest)
            frame = newest if self._shown.is_signed_in() else ENDED
            content = frame.whole() if before is None else frame.after(before)
            before = frame
            if content is not None:
                self._streams.note_frame()
            async with asyncio.timeout(self._streams.taken_s):
                body = content if content is not None else NOTHING_NEW
                await send({"type": "http.response.body", "body": body, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _wait_until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
