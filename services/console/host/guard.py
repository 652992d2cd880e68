"""Checks each request for its host, origin and size, and adds headers to each answer."""

import secrets
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

BODY_MAX: Final = 256 * 1024
"""The most bytes of the body of a request: a form with a manifest as it was and as it is typed."""
TARGET_MAX: Final = 4 * 1024
"""The most bytes of a path with its query."""
SAFE: Final = ("GET", "HEAD")
POLICY: Final = (
    "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}';"
    " img-src 'self' data:; connect-src 'self'; form-action 'self'; frame-ancestors 'none';"
    " base-uri 'none';"
    " require-trusted-types-for 'script'; trusted-types htmx"
)
"""The Content-Security-Policy of a page. The page may use only the style and the script that carry
its nonce; only htmx may turn text into HTML; no other origin is asked for anything."""
HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # Not `no-referrer`: a browser then omits the origin of a form.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}


class TooLarge(Exception):
    """The body of a request is larger than `BODY_MAX`."""


class Guard:
    """Refuses requests that no page of the console sends, and adds headers to each answer.

    hosts: the names and ports that the console answers to, as a `Host` header has them.
    is_ending: whether it refuses all requests, as a page that opened now would be cut off.
    """

    def __init__(self, app: ASGIApp, hosts: Iterable[str]) -> None:
        self._app, self.hosts = app, frozenset(hosts)
        self.is_ending = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it with the reason why not."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        nonce = secrets.token_urlsafe(16)
        scope.setdefault("state", {})["nonce"] = nonce

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                _add_headers(MutableHeaders(scope=message), nonce)
            await send(message)

        fault = self._find_fault(scope)
        if fault is not None:
            await PlainTextResponse(fault[1] + "\n", fault[0])(scope, receive, answer)
            return
        # A browser that is gone before its form is whole gets no answer.
        with suppress(ClientDisconnect):
            await self._app(scope, _bounded(receive), answer)

    def _find_fault(self, scope: Scope) -> tuple[int, str] | None:
        """Return the status and the reason why a request is refused; None if it may pass."""
        if self.is_ending:
            return 503, "this console is stopping"
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if host not in self.hosts:
            return 421, f"this console answers to {' and '.join(sorted(self.hosts))}"
        if len(scope["raw_path"]) + len(scope["query_string"]) > TARGET_MAX:
            return 414, f"an address has at most {TARGET_MAX} bytes"
        length = headers.get("content-length", "0")
        if not length.isdecimal() or len(length) > 12 or int(length) > BODY_MAX:
            return 413, f"a form has at most {BODY_MAX} bytes"
        if scope["method"] in SAFE:
            return None
        if scope["method"] != "POST":
            return 405, "a page is read with GET, and changes something with POST"
        return (
            None if _is_own(headers, host) else (403, "this was not sent by a page of the console")
        )


def _is_own(headers: Headers, host: str) -> bool:
    """Return whether a page of this console has sent a request, as the browser says."""
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    return headers.get("origin") in (f"http://{host}", f"https://{host}")


def _add_headers(headers: MutableHeaders, nonce: str) -> None:
    for name, value in HEADERS.items():
        headers[name] = value
    headers["Content-Security-Policy"] = POLICY.format(nonce=nonce)
    headers.setdefault("Cache-Control", "no-store")


def _bounded(receive: Receive) -> Receive:
    """Return a reader of a body that raises TooLarge if it is larger than its header said."""
    size = 0

    async def read() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > BODY_MAX:
            raise TooLarge
        return message

    return read
