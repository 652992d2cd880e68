"""One request to one controller: sent once, bounded in time and size, its failure a Fault."""

import asyncio
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus

import aiohttp
from yarl import URL

from metal.documents import error_message
from metal.host.redfish.credentials import Secrets
from metal.host.redfish.fault import Fault
from metal.host.redfish.limits import Limits
from metal.host.redfish.trust import Trust, trust_of
from metal.inventory.inventory import Place
from metal.replies import Trouble

CHUNK = 64 * 1024
HEADER_MAX = 8 * 1024
_HEADERS = {"Accept": "application/json", "Accept-Encoding": "identity", "OData-Version": "4.0"}


@dataclass(frozen=True, slots=True)
class Answer:
    """What a controller answered. document: its content as JSON; None if that cannot be read."""

    status: int
    headers: Mapping[str, str]
    document: object

    @property
    def is_success(self) -> bool:
        """Whether the controller did what it was asked."""
        return HTTPStatus.OK <= self.status < HTTPStatus.MULTIPLE_CHOICES

    @property
    def is_missing(self) -> bool:
        """Whether the controller does not have what it was asked for."""
        return self.status in (
            HTTPStatus.NOT_FOUND,
            HTTPStatus.METHOD_NOT_ALLOWED,
            HTTPStatus.NOT_IMPLEMENTED,
        )


def open_session(limits: Limits) -> aiohttp.ClientSession:
    """Return the session of all controllers, without cookies, proxies and netrc files."""
    return aiohttp.ClientSession(
        auto_decompress=False,
        # How many requests there are at a time is bounded by who sends them.
        connector=aiohttp.TCPConnector(keepalive_timeout=limits.idle_s, limit=0, ttl_dns_cache=60),
        cookie_jar=aiohttp.DummyCookieJar(),
        headers=_HEADERS,
        max_line_size=HEADER_MAX,
        max_field_size=HEADER_MAX,
        timeout=aiohttp.ClientTimeout(),
        trust_env=False,
    )


class Wire:
    """The way to one controller."""

    def __init__(
        self, session: aiohttp.ClientSession, place: Place, limits: Limits, secrets: Secrets
    ) -> None:
        self._session = session
        self._place = place
        self._limits = limits
        self._secrets = secrets
        # aiohttp uses a connection again only for the same value, not for an equal one.
        self._trust: Trust | None = None

    async def send(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: Mapping[str, object] | None = None,
        *,
        needs_document: bool = True,
    ) -> Answer:
        """Send a request once, and return the answer with whatever status; raise Fault for none.

        needs_document: whether an answer is of use only if its content can be read.
        """
        what = f"{method} {path}"
        if self._trust is None:
            self._trust = trust_of(self._place)
        try:
            async with (
                asyncio.timeout(self._limits.request_s),
                self._session.request(
                    method,
                    URL(self._place.address + path, encoded=True),
                    allow_redirects=False,
                    headers=headers,
                    json=body,
                    ssl=self._trust,
                    timeout=aiohttp.ClientTimeout(connect=self._limits.connect_s),
                ) as response,
            ):
                document = await self._document(response, what, needs_document=needs_document)
                return Answer(response.status, response.headers, document)
        except Fault:
            raise
        except (aiohttp.ClientError, OSError, ValueError) as error:
            fault = fault_of(error, what)
            if fault.failure.trouble is Trouble.UNTRUSTED:
                self._trust = None  # The file with the authorities may be a new one by then.
            raise fault from None

    async def _document(
        self, response: aiohttp.ClientResponse, what: str, *, needs_document: bool
    ) -> object:
        """Return the content of an answer as JSON; None if nobody needs it and it is none."""
        is_needed = needs_document and response.status == HTTPStatus.OK
        try:
            content = await self._content(response)
            return self._parse(content, what, is_needed=is_needed)
        except (Fault, aiohttp.ClientError, OSError):
            if is_needed:
                raise
            # The status says what became of the request; the rest of the answer changes nothing.
            response.close()
            return None

    async def _content(self, response: aiohttp.ClientResponse) -> bytes:
        """Return the content of an answer; raise Fault, and hang up, if it is too large."""
        most = self._limits.answer_bytes
        content = bytearray()
        async for chunk in response.content.iter_chunked(CHUNK):
            content += chunk
            if len(content) > most:
                response.close()
                what = f"{response.method} {response.url.path}"
                text = f"the answer to {what} has more than {most} bytes"
                raise Fault(Trouble.NONSENSE, text, is_too_long=True)
        return bytes(content)

    def _parse(self, content: bytes, what: str, *, is_needed: bool) -> object:
        """Return content as JSON without secrets; raise Fault if it is none and is needed."""
        try:
            document: object = self._secrets.clean(json.loads(content), content)
        except (ValueError, RecursionError):
            document = None
        if is_needed and not isinstance(document, dict):
            raise Fault(Trouble.NONSENSE, f"the answer to {what} is no JSON object")
        return document

    def explain(self, answer: Answer, what: str) -> Fault:
        """Return why an answer is no success, in the words of the controller."""
        told = self._secrets.hide(error_message(answer.document))
        text = f"{what} was answered with {answer.status}{f': {told}' if told else ''}"
        if answer.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            return Fault(Trouble.UNAUTHORIZED, text, may_have_acted=False)
        if answer.status == HTTPStatus.TOO_MANY_REQUESTS:
            return Fault(Trouble.SERVER_ERROR, text, may_have_acted=False)
        if answer.status == HTTPStatus.NOT_IMPLEMENTED or answer.status < HTTPStatus(500):
            return Fault(Trouble.REFUSED, text, may_have_acted=False)
        return Fault(Trouble.SERVER_ERROR, text)


def fault_of(error: Exception, what: str) -> Fault:
    """Return what an exception of aiohttp stands for; no text of it is repeated.

    Its text may quote what the controller has sent, or the address with its parts.
    """
    match error:
        case aiohttp.ServerFingerprintMismatch():
            found = error.got.hex()
            text = f"its certificate is sha256:{found}, not the pinned one"
            return Fault(Trouble.UNTRUSTED, text, may_have_acted=False)
        case aiohttp.ClientConnectorCertificateError():
            return _untrusted(error.certificate_error)
        case aiohttp.ClientConnectorSSLError():
            return _untrusted(error.os_error)
        case aiohttp.ConnectionTimeoutError():
            text = f"it could not be connected to in time, for {what}"
            return Fault(Trouble.TIMED_OUT, text, may_have_acted=False)
        case TimeoutError():
            return Fault(Trouble.TIMED_OUT, f"there was no whole answer to {what} in time")
        case aiohttp.ClientConnectorError():
            reason = error.os_error.strerror or "it cannot be connected to"
            return Fault(Trouble.UNREACHABLE, f"{reason}, for {what}", may_have_acted=False)
        case aiohttp.ClientConnectionError() | aiohttp.ClientPayloadError() | OSError():
            return Fault(Trouble.UNREACHABLE, f"the connection broke during {what}")
    return Fault(Trouble.NONSENSE, f"the answer to {what} is no HTTP")


def _untrusted(error: Exception) -> Fault:
    reason = "it speaks no TLS that can be checked"
    if isinstance(error, ssl.SSLCertVerificationError):
        reason = f"its certificate is not trusted: {error.verify_message}"
    return Fault(Trouble.UNTRUSTED, reason, may_have_acted=False)
