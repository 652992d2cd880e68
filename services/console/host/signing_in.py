"""Signing in, with a one-time link or at the OpenID provider, and signing out."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from console.host.accounts import Accounts
from console.host.doors import Doors
from console.host.openid import OpenID
from console.host.reading import is_made_in, local_path, read_fields
from console.host.rendering import Page
from console.host.sessions import Session
from console.host.telemetry import Telemetry

if TYPE_CHECKING:
    from console.host.at_provider import AtProvider

LOGIN, LOGOUT, START, CALLBACK = "/login", "/logout", "/login/start", "/login/callback"
WAYS_IN: Final = (LOGIN, LOGOUT, START, CALLBACK)
"""The addresses that need no session."""


class SignIn:
    """The pages that need no session.

    show: returns a page for somebody who is not signed in.
    """

    def __init__(
        self,
        accounts: Accounts,
        telemetry: Telemetry,
        doors: Doors,
        openid: OpenID | None,
        show: Callable[[Request, Page], Response],
    ) -> None:
        self._accounts, self._telemetry, self._doors = accounts, telemetry, doors
        self._show, self._host = show, openid.host if openid is not None else ""
        self._at_provider = self._make(openid) if openid is not None else None

    def routes(self) -> list[Route]:
        """Return the addresses of signing in and out."""
        return [
            Route(LOGIN, self._login),
            Route(LOGOUT, self._logout, methods=["POST"]),
            *(self._at_provider.routes() if self._at_provider is not None else []),
        ]

    def _make(self, openid: OpenID) -> "AtProvider":
        # The libraries for OpenID take 15 MB, which a console without a provider does not need.
        from console.host.at_provider import AtProvider

        common = self._accounts, self._telemetry, self._doors
        return AtProvider(*common, openid, self._begin, self._show)

    def session(self, request: Request) -> Session | None:
        """Return the session of a request; None if its browser is not signed in."""
        cookie = self._doors.of(request).cookie
        return self._accounts.sessions.find(request.cookies.get(cookie, ""))

    def way_in(self, request: Request) -> dict[str, object]:
        """Return how somebody can sign in here: the provider's name, and whether links count."""
        return {"provider": self._host, "links": self._doors.of(request).is_own}

    async def _login(self, request: Request) -> Response:
        """Sign in with a one-time link, or say how to sign in."""
        back = local_path(request.query_params.get("next", ""))
        token, door = request.query_params.get("token", ""), self._doors.of(request)
        # Elsewhere a link would sign in whoever has seen it.
        identity = self._accounts.links.redeem(token) if token and door.is_own else None
        if identity is None:
            values = {"back": back, "is_used": bool(token)}
            return self._show(
                request, Page("login.html", "Sign in", "", values, 403 if token else 200)
            )
        session = self._begin(request, lambda: self._accounts.sessions.begin(identity))
        response = RedirectResponse(back or identity.home, 303)
        door.give(response, door.cookie, session.id)
        return response

    def _begin(self, request: Request, begin: Callable[[], Session]) -> Session:
        # The former session of this browser ends, so that nobody can use an id known before.
        self._accounts.sessions.end(request.cookies.get(self._doors.of(request).cookie, ""))
        session = begin()
        self._telemetry.log.info("signed in", user=session.name)
        return session

    async def _logout(self, request: Request) -> Response:
        """Sign out here, and at the provider if it offers that."""
        session, door = self.session(request), self._doors.of(request)
        response: Response = RedirectResponse(LOGIN, 303)
        if session is not None and is_made_in(await read_fields(request), session):
            self._accounts.sessions.end(session.id)
            if session.id_token and self._at_provider is not None:
                # A form may lead to this site alone, so a page leads on to the provider.
                on = await self._at_provider.leave(session)
                page = Page("signed_out.html", "Signed out", "", {"on": on})
                response = self._show(request, page)
        door.take(response, door.cookie)
        return response
