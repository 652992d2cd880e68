"""Open pages, kept up to date: each gets a frame when what it shows has changed."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from starlette.types import Receive, Scope, Send

from console.host.account import Account
from console.host.frames import Frame, make_frame
from console.host.identities import Identity
from console.host.telemetry import Telemetry

FRAME_S: Final = 0.25
"""The least time between two frames, in seconds."""
TICK_S: Final = 10.0
"""How often a page is made again without a change, in seconds: deadlines pass."""
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
Key = tuple[Identity, str]
"""A page as a user sees it: the user, and the address."""
SHARED_S: Final = 1.0
"""For how long a frame is good for further browsers, while nothing changes, in seconds."""
ENDED: Final = make_frame(0, 0, 0.0, '<main id="main" data-ended></main>')
"""The frame after the end of a session: the page is loaded again, and leads to the login."""
NOTHING_NEW: Final = b": nothing new\n\n"


@dataclass(frozen=True, slots=True)
class Shown:
    """A page that a browser shows.

    key: equal for browsers that show the same page to the same user. make: makes the page.
    is_signed_in: returns whether the session of this browser goes on.
    """

    key: Key
    make: Render
    is_signed_in: Callable[[], bool]


class Streams:
    """The open pages; equal pages of one user share their frames."""

    def __init__(self, telemetry: Telemetry, taken_s: float = TAKEN_S) -> None:
        """Begin without a page; `taken_s` is how long a browser may take for a frame."""
        self._telemetry, self.taken_s = telemetry, taken_s
        self.count = 0
        self._empty = asyncio.Event()
        self._frames: dict[Key, Frame] = {}
        self._viewers: Counter[Key] = Counter()
        self._making: dict[Key, asyncio.Lock] = {}

    def response(self, account: Account, shown: Shown) -> "Stream":
        """Return the response that keeps a page up to date."""
        return Stream(self, account, shown)

    async def frame(self, account: Account, shown: Shown) -> Frame:
        """Return a page as it is now, made at most once for each change."""
        if not shown.is_signed_in():
            return ENDED
        key = shown.key
        async with self._making.setdefault(key, asyncio.Lock()):
            frame, now = self._frames.get(key), time.monotonic()
            mirror = account.mirror
            if frame is None or frame.revision != mirror.revision or now - frame.made > SHARED_S:
                revision, position = mirror.revision, mirror.position
                frame = make_frame(revision, position, now, await shown.make())
                self._frames[key] = frame
            return frame

    def begin(self, key: Key) -> None:
        """Count a browser that opens a page."""
        self.count += 1
        self._empty.clear()
        self._viewers[key] += 1

    def end(self, key: Key) -> None:
        """Count a browser that leaves a page; the frame goes with the last one."""
        self.count -= 1
        if not self.count:
            self._empty.set()
        self._viewers[key] -= 1
        if not self._viewers[key]:
            for kept in (self._viewers, self._frames, self._making):
                kept.pop(key, None)

    async def wait_until_left(self, timeout_s: float) -> None:
        """Return once no page is open, or after a timeout."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self.count:
                    await self._empty.wait()

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
        self._streams.begin(self._shown.key)
        sending = asyncio.create_task(self._send_all(send))
        leaving = asyncio.create_task(_wait_until_gone(receive))
        try:
            await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
            if sending.done() and not sending.cancelled():
                sending.result()
        except TimeoutError:
            self._streams.note_dropped()
        finally:
            self._streams.end(self._shown.key)
            sending.cancel()
            leaving.cancel()

    async def _send_all(self, send: Send) -> None:
        mirror, before = self._account.mirror, None
        await send({"type": "http.response.start", "status": 200, "headers": HEAD})
        while not self._account.is_closed:
            revision = mirror.revision
            self._account.used = time.monotonic()
            frame = await self._streams.frame(self._account, self._shown)
            body = frame.whole() if before is None else frame.after(before)
            if body is not None:
                before = frame
                self._streams.note_frame()
            async with asyncio.timeout(self._streams.taken_s):
                content = body if body is not None else NOTHING_NEW
                await send({"type": "http.response.body", "body": content, "more_body": True})
            await asyncio.sleep(FRAME_S)
            await mirror.wait_for_change(revision, TICK_S)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _wait_until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
