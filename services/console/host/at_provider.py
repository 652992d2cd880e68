"""Signing in at the OpenID provider: the way there, the way back, and the way out."""

import base64
import hmac
import json
import secrets
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from console.host.accounts import Accounts
from console.host.doors import Door, Doors
from console.host.openid import OpenID
from console.host.provider import Provider, ProviderFault, Tokens
from console.host.reading import local_path
from console.host.rendering import Page, address
from console.host.sessions import Session
from console.host.signing_in import CALLBACK, LOGIN, START
from console.host.telemetry import Telemetry
from console.host.tokens import LEEWAY_S, Refused
from console.view.claims import Unmapped, find_user, name_person

ASKED_S: Final = 600
"""The longest time that a person may take to sign in at the provider, in seconds."""
BACK_MAX: Final = 1_500
"""The longest path to come back to, in characters: a cookie has 4,096 bytes."""
TEXT_MAX: Final = 200


class AtProvider:
    """The pages of signing in at the provider.

    begin: begins a session in the browser of a request.
    show: returns a page for somebody who is not signed in.
    """

    def __init__(
        self,
        accounts: Accounts,
        telemetry: Telemetry,
        doors: Doors,
        openid: OpenID,
        begin: Callable[[Request, Callable[[], Session]], Session],
        show: Callable[[Request, Page], Response],
    ) -> None:
        self._accounts, self._telemetry, self._doors = accounts, telemetry, doors
        self._provider, self._begin, self._show = Provider(openid), begin, show
        self._secret = secrets.token_bytes(32)

    def routes(self) -> list[Route]:
        """Return the addresses of signing in at the provider."""
        return [Route(START, self._start), Route(CALLBACK, self._come_back)]

    async def leave(self, session: Session) -> str:
        """Return where a person signs out at the provider; empty if the provider offers nothing."""
        provider = self._provider
        try:
            found = await provider.discover()
        except ProviderFault:
            return ""
        if not found.end_session:
            return ""
        back = f"{self._doors.main.base}{LOGIN}"
        hint, id = session.id_token, provider.settings.client_id
        query = {"id_token_hint": hint, "client_id": id, "post_logout_redirect_uri": back}
        return address(found.end_session, **query)

    async def _start(self, request: Request) -> Response:
        """Send the browser to the provider, and note in a cookie what was asked."""
        back, door = local_path(request.query_params.get("next", "")), self._doors.of(request)
        main = self._doors.main
        if request.headers["host"] != main.base.partition("://")[2]:
            return RedirectResponse(main.base + address(START, next=back), 303)
        state, nonce, verifier = (secrets.token_urlsafe(48) for _ in range(3))
        try:
            to = await self._provider.request_address(main.base + CALLBACK, state, nonce, verifier)
        except ProviderFault as fault:
            return self._refuse(request, str(fault), fault.status)
        path = back if len(back) <= BACK_MAX else ""
        asked = _Asked(state, nonce, verifier, time.time(), path)
        response = RedirectResponse(to, 303)
        door.give(response, _asked(door), self._seal(json.dumps(asked)), ASKED_S)
        return response

    async def _come_back(self, request: Request) -> Response:
        """Sign in whoever comes back from the provider with a code."""
        door, query = self._doors.of(request), request.query_params
        asked = self._unseal(request.cookies.get(_asked(door), ""))
        try:
            if asked is None or not secrets.compare_digest(
                query.get("state", "").encode(), asked.state.encode()
            ):
                raise Refused("this browser has not asked for it, or over ten minutes ago")
            if query.get("iss", self._provider.settings.issuer) != self._provider.settings.issuer:
                raise Refused("another provider has sent it")
            if "code" not in query:
                raise Refused(f"the provider says {query.get('error', 'nothing')[:TEXT_MAX]}")
            tokens = await self._provider.exchange(
                query["code"], asked.verifier, self._doors.main.base + CALLBACK
            )
            claims = await self._provider.verify(tokens, asked.nonce)
            response = self._admit(request, claims, tokens, asked.back)
        except ProviderFault as fault:
            response = self._refuse(request, str(fault), fault.status)
        except Refused as refusal:
            response = self._refuse(request, f"The sign-in does not count: {refusal}.", 403)
        except Unmapped as lack:
            response = self._refuse(request, str(lack), 403)
        door.take(response, _asked(door))
        return response

    def _admit(
        self, request: Request, claims: dict[str, object], tokens: Tokens, back: str
    ) -> Response:
        """Begin the session of the user to whom claims lead; raise Unmapped without one."""
        settings, door = self._provider.settings, self._doors.of(request)
        name = find_user(claims, settings.claim, settings.users)
        identity = self._accounts.find(name)
        if identity is None:
            raise Unmapped(f"The claim {settings.claim} leads to {name}, whose key is not here.")
        expires = claims["exp"]
        assert isinstance(expires, int | float), "a verified token has a time"
        most_s = expires + LEEWAY_S - time.time()
        if settings.session_minutes is not None:
            most_s = 60.0 * settings.session_minutes
        session = self._begin(
            request,
            lambda: self._accounts.sessions.begin(
                identity, name_person(claims), most_s, tokens.id_token
            ),
        )
        response = RedirectResponse(back or identity.home, 303)
        door.give(response, door.cookie, session.id)
        return response

    def _refuse(self, request: Request, text: str, status: int) -> Response:
        self._telemetry.log.warning("sign-in failed", cause=text)
        page = Page("refused.html", "Not signed in", "", {"text": text}, status)
        return self._show(request, page)

    # The cookie of a request to the provider needs no memory here, which a flood would fill.

    def _seal(self, text: str) -> str:
        content = base64.urlsafe_b64encode(text.encode()).decode()
        return f"{content}.{hmac.digest(self._secret, content.encode(), 'sha256').hex()}"

    def _unseal(self, value: str) -> "_Asked | None":
        content, _, mark = value.partition(".")
        expected = hmac.digest(self._secret, content.encode(), "sha256").hex()
        if not secrets.compare_digest(mark.encode(), expected.encode()):
            return None
        asked = _Asked(*json.loads(base64.urlsafe_b64decode(content)))
        return asked if time.time() - asked.at < ASKED_S else None


class _Asked(NamedTuple):
    """What the provider was asked, when, and the path to go to afterwards."""

    state: str
    nonce: str
    verifier: str
    at: float
    back: str


def _asked(door: Door) -> str:
    """Return the name of the cookie of a request to the provider."""
    return f"{door.cookie}-asked"
