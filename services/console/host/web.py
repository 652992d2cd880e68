"""The site: which address leads to which page, who may see it, and what forms do."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Final
from urllib.parse import SplitResult, urlencode, urlsplit

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import (
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route
from starlette.types import ASGIApp

from console.host.accounts import Accounts
from console.host.actions import SHOW
from console.host.answering import find_answer
from console.host.doors import Doors
from console.host.files import serve_file
from console.host.guard import TooLarge
from console.host.live import STREAMS_MAX, Shown, Streams
from console.host.openid import OpenID
from console.host.reading import (
    is_made_in,
    parse_query,
    read_fields,
    refuse_large,
)
from console.host.rendering import Done, Page, address, lead, render
from console.host.routes import FORMS, PAGES, Act, Show, find_live, has_past
from console.host.sessions import Session
from console.host.signing_in import SignIn
from console.host.telemetry import Telemetry
from console.host.visit import Visit
from console.view.moments import read_at

PAUSE_S: Final = 0.05
"""The pause between the first part of a long page and the rest, in seconds.

A browser lays out all rows that it has, and runs the script after them, before it shows any.
"""


class Site:
    """The pages of the console."""

    def __init__(
        self, accounts: Accounts, telemetry: Telemetry, doors: Doors, openid: OpenID | None
    ) -> None:
        self._accounts, self._telemetry = accounts, telemetry
        self._sign_in = SignIn(accounts, telemetry, doors, openid, self._show_nobody)
        self.streams = Streams(telemetry)

    def app(self) -> ASGIApp:
        """Return the application without its guard."""
        forms = [Route(p, self._form(do), methods=["GET", "POST"]) for p, do in FORMS.items()]
        shown = [Route(path, self._page(show)) for path, show in PAGES.items()]
        return Starlette(
            routes=[
                Route("/", self._home),
                *self._sign_in.routes(),
                Route("/live", self._live),
                Route("/static/{digest}/{name}", serve_file),
                *forms,
                *shown,
                Route("/{rest:path}", self._nowhere),
            ],
            exception_handlers={TooLarge: refuse_large},
            middleware=[Middleware(GZipMiddleware, minimum_size=1024, compresslevel=5)],
        )

    async def _home(self, request: Request) -> Response:
        session = self._sign_in.session(request)
        return RedirectResponse(session.identity.home if session else "/nodepools", 303)

    def _show_nobody(self, request: Request, page: Page) -> Response:
        """Return a page for somebody who is not signed in."""
        return _send(page, self._frame(request, None))

    # Pages.

    def _page(self, show: Show) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            session = self._sign_in.session(request)
            if session is None:
                back = request.url.path + (f"?{request.url.query}" if request.url.query else "")
                return RedirectResponse(address("/login", next=back), 303)
            began = time.perf_counter()
            visit = await self._visit(session, request.path_params, request.url.query)
            response = await self._answer(request, visit, show)
            self._telemetry.note_page(time.perf_counter() - began)
            return response

        return answer

    def _form(self, do: Act) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            session, typed = self._sign_in.session(request), dict[str, str]()
            if request.method == "POST":
                typed = await read_fields(request)
            if session is None:
                return self._expired(request, typed)
            visit = await self._visit(session, request.path_params, request.url.query, typed)
            response = await self._answer(request, visit, do)
            if typed and typed.get("do") != SHOW:
                fault = "" if response.status_code == 303 else f"status {response.status_code}"
                action = f"{request.method} {request.url.path}"
                self._telemetry.note_action(action, session.name, fault)
            return response

        return answer

    async def _answer(self, request: Request, visit: Visit, show: Show | Act) -> Response:
        visit, page = await find_answer(visit, show)
        if isinstance(page, Done):
            visit.session.said = page.said
            return RedirectResponse(page.address, 303)
        values = self._frame(request, visit)
        # htmx takes a part of the page, in which a browser would refuse the scripts of a whole one.
        values["whole"] = "hx-request" not in request.headers
        values["said"] = visit.session.take_said() if values["whole"] else ""
        return _send(page, values)

    async def _nowhere(self, request: Request) -> Response:
        session = self._sign_in.session(request)
        visit = await self._visit(session, {}, "") if session is not None else None
        page = Page("missing.html", "Not found", "", {"text": "There is no such page."}, 404)
        return _send(page, self._frame(request, visit))

    def _expired(self, request: Request, typed: Mapping[str, str]) -> Response:
        """Ask the user to sign in; keep a form that was sent, so that it can be sent again."""
        if not typed:
            back = request.url.path + (f"?{request.url.query}" if request.url.query else "")
            return RedirectResponse(address("/login", next=back), 303)
        kept = {name: text for name, text in typed.items() if name != "form_token"}
        page = Page("kept.html", "Session ended", "", {"kept": kept, "has_ended": True}, 401)
        return self._show_nobody(request, page)

    async def _live(self, request: Request) -> Response:
        """Keep a page up to date; `view` is its address."""
        session = self._sign_in.session(request)
        view = urlsplit(request.query_params.get("view", ""))
        # Nothing changes in the past.
        found = None if read_at(parse_query(view.query).get("at", [])) else find_live(view.path)
        if session is None or found is None:
            return PlainTextResponse(
                "sign in first\n" if session is None else "no such page\n", 403
            )
        if self.streams.count >= STREAMS_MAX:
            return PlainTextResponse(f"{STREAMS_MAX} pages are open already\n", 503)
        account = await self._accounts.of(session.identity)

        async def make() -> str:
            return await self._make_frame(request, session, view, found)

        def is_signed_in() -> bool:
            return self._accounts.sessions.find(session.id) is not None

        shown = Shown(request.query_params["view"], make, is_signed_in)
        return self.streams.response(account, shown)  # type: ignore[return-value]  # An ASGI app.

    async def _make_frame(
        self,
        request: Request,
        session: Session,
        view: SplitResult,
        found: tuple[Show, Mapping[str, str]],
    ) -> str:
        """Return the inner part of a page, which is the same for all browsers of a user."""
        show, parts = found
        visit = replace(await self._visit(session, parts, view.query), is_frame=True)
        visit, page = await find_answer(visit, show)
        assert isinstance(page, Page), "a page that is kept live carries out no action"
        return "".join(render(page, **{**self._frame(request, visit, view), "whole": False}))

    # What all pages are made from.

    async def _visit(
        self,
        session: Session,
        parts: Mapping[str, str],
        query: str,
        typed: Mapping[str, str] | None = None,
    ) -> Visit:
        account = await self._accounts.of(session.identity)
        await account.mirror.wait_until_read()
        lists = parse_query(query)
        single = {name: values[-1] for name, values in lists.items()}
        given = dict(typed or {})
        is_trusted = is_made_in(given, session)
        return Visit(session, account, parts, single, lists, datetime.now(UTC), given, is_trusted)

    def _frame(
        self, request: Request, visit: Visit | None, view: SplitResult | None = None
    ) -> dict[str, object]:
        """Return the values of the frame around a page; `view` is its address, if it is open."""
        url = view or urlsplit(str(request.url))
        path = url.path + (f"?{url.query}" if url.query else "")
        query = parse_query(url.query)
        is_past = bool(read_at(query.pop("at", [])))
        asked = [(name, each) for name, given in query.items() for each in given]
        values: dict[str, object] = {
            "nonce": request.state.nonce,
            "whole": True,
            "said": "",
            "visit": visit,
            "path": path,
            "now": visit.now if visit is not None else datetime.now(UTC),
            "is_live": find_live(url.path) is not None and not is_past,
            "has_past": visit is not None and visit.account.has_past and has_past(url.path),
            "to": visit.to if visit is not None else partial(lead, ""),
            "asked": asked,
            "base_path": url.path,
            "moved": partial(_move, url.path, asked),
            "real_now": datetime.now(UTC),
            "way_in": self._sign_in.way_in(request),
        }
        if visit is not None:
            values["troubled"], values["running"] = visit.account.mirror.counts()
        return values


def _send(page: Page, values: Mapping[str, object]) -> Response:
    """Return a page that is sent in parts, so that a browser shows the first while others are made.

    All queries were answered before, so the status stays true. The first part is made before the
    status is sent, so that a fault in its templates still leads to an error of the server.
    """
    parts = render(page, **values)
    body = _pace(next(parts), parts)
    return StreamingResponse(body, page.status, media_type="text/html")


async def _pace(first: str, rest: Iterator[str]) -> AsyncIterator[str]:
    """Yield the parts of a page, the second once a browser has had time to show the first.

    Before each later part, other requests have a turn.
    """
    yield first
    pause_s = PAUSE_S
    for part in rest:
        await asyncio.sleep(pause_s)
        yield part
        pause_s = 0.0


def _move(path: str, asked: Sequence[tuple[str, str]], at: str = "") -> str:
    """Return the address of a page, with its filters, at another moment; at now without one."""
    query = [*asked, *([("at", at)] if at else [])]
    return f"{path}?{urlencode(query)}" if query else path
