"""The session with one controller: begun before the first request, ended when it is closed."""

import asyncio
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from metal.documents import PATH_MAX
from metal.host.redfish.credentials import Credential, Secrets, read_credential
from metal.host.redfish.fault import Fault
from metal.host.redfish.wire import Answer, Wire
from metal.inventory.model import Reference
from metal.replies import Trouble

SESSIONS: Final = "/redfish/v1/SessionService/Sessions"
TOKEN: Final = "X-Auth-Token"
TOKEN_MAX: Final = 4_096

Headers = Mapping[str, str]


class Login:
    """Signs requests to one controller.

    A controller without sessions gets user and password with each request. The credential is read
    when a session begins, and when the controller refuses what it was given.
    """

    def __init__(
        self, wire: Wire, reference: Reference, environment: Mapping[str, str], secrets: Secrets
    ) -> None:
        self._wire = wire
        self._reference = reference
        self._environment = environment
        self._secrets = secrets
        self._turn = asyncio.Lock()
        self._headers: Headers = {}
        self._session = ""
        self._basic: Credential | None = None

    async def headers(self) -> Headers:
        """Return the headers that sign a request; begin a session if there is none."""
        async with self._turn:
            if not self._headers:
                self._headers = await self._begin()
            return self._headers

    async def renew(self, refused: Headers) -> bool:
        """Forget headers that were refused; return whether there may be others that are not.

        The same user and password are not offered again: controllers lock accounts after a few.
        """
        async with self._turn:
            if self._headers is not refused:
                return True
            known, self._headers, self._session, self._basic = self._basic, {}, "", None
        return known is None or known != read_credential(self._reference, self._environment)

    async def _begin(self) -> Headers:
        credential = read_credential(self._reference, self._environment)
        self._secrets.learn(credential)
        body = {"UserName": credential.user, "Password": credential.password}
        answer = await self._wire.send("POST", SESSIONS, {}, body, needs_document=False)
        if answer.is_missing:
            self._basic = credential
            return {"Authorization": credential.basic}
        if not answer.is_success:
            raise self._refusal(answer)
        token = answer.headers.get(TOKEN, "")
        if not _is_token(token):
            text = f"the answer to POST {SESSIONS} has no {TOKEN} that can be one"
            raise Fault(Trouble.NONSENSE, text, may_have_acted=False)
        self._secrets.learn_token(token)
        self._session = _session_path(answer.headers.get("Location", ""))
        return {TOKEN: token}

    def _refusal(self, answer: Answer) -> Fault:
        """Return why there is no session; whatever the reason, nothing else can be asked."""
        failure = self._wire.explain(answer, f"POST {SESSIONS}").failure
        is_refused = failure.trouble is Trouble.REFUSED  # There may be too many sessions.
        trouble = Trouble.UNAUTHORIZED if is_refused else failure.trouble
        return Fault(trouble, failure.text, may_have_acted=False)

    async def end(self) -> None:
        """End the session, if there is one; raise Fault if the controller does not answer."""
        async with self._turn:
            headers, session = self._headers, self._session
            self._headers, self._session, self._basic = {}, "", None
        if session:
            await self._wire.send("DELETE", session, headers, needs_document=False)


def _is_token(token: str) -> bool:
    return 0 < len(token) <= TOKEN_MAX and token.isascii() and token.isprintable()


def _session_path(location: str) -> str:
    """Return the path of a session; empty if it is none. Some controllers give a whole address."""
    if len(location) > PATH_MAX or not location.isascii() or not location.isprintable():
        return ""
    try:
        path = urlsplit(location).path
    except ValueError:
        return ""
    return path if path.startswith("/redfish/v1/") else ""
