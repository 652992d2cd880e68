"""Talks to the OpenID provider: discovery, keys and tokens, each bounded in time and size."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import httpx2
from authlib.integrations.base_client import OAuthError
from authlib.integrations.httpx_client import AsyncOAuth2Client
from authlib.oauth2.rfc6749.parameters import prepare_grant_uri
from authlib.oauth2.rfc7636 import create_s256_code_challenge

from console.host.openid import OpenID, check_url
from console.host.tokens import Expected, Key, Refused, UnknownKey, read_keys, verify_token

ANSWER_S: Final = 5.0
"""The longest wait for an answer of the provider, in seconds."""
ANSWER_MAX: Final = 256 * 1024
"""The most bytes of an answer."""
KNOWN_S: Final = 3_600.0
"""For how long a discovery document is used, in seconds."""
AGAIN_S: Final = 5.0
"""The least time between two looks for keys, or for a provider that failed, in seconds."""
TOGETHER_MAX: Final = 8
"""The most requests to the provider at a time."""


class ProviderFault(Exception):
    """The provider does not answer as it must; the text says how.

    status: 503 if it does not answer, and 502 if it answers nonsense.
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True)
class Discovered:
    """Where the provider has what; `end_session` is empty without a sign-out of its own."""

    authorization: str
    token: str
    keys: str
    end_session: str
    methods: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens that the provider gives in exchange for a code."""

    id_token: str
    access_token: str


class Provider:
    """The OpenID provider of the console. It is asked only when somebody signs in."""

    def __init__(self, settings: OpenID) -> None:
        self.settings = settings
        self._context = settings.make_context()
        self._turns, self._reading = asyncio.Semaphore(TOGETHER_MAX), asyncio.Lock()
        self._discovered: Discovered | None = None
        self._keys: tuple[Key, ...] = ()
        self._discovered_at = self._keys_at = self._failed_at = -KNOWN_S
        self._fault: ProviderFault | None = None

    async def discover(self) -> Discovered:
        """Return what the provider says of itself; raise ProviderFault if it says nothing."""
        async with self._reading:
            now = time.monotonic()
            if self._discovered is not None and now - self._discovered_at < KNOWN_S:
                return self._discovered
            if self._fault is not None and now - self._failed_at < AGAIN_S:
                raise self._fault
            try:
                base = self.settings.issuer.rstrip("/")
                document = await self._get(f"{base}/.well-known/openid-configuration")
                self._discovered = _read_discovered(document, self.settings.issuer)
                self._fault, self._discovered_at = None, now
            except ProviderFault as fault:
                self._fault, self._failed_at = fault, time.monotonic()
                raise
            return self._discovered

    async def request_address(self, back: str, state: str, nonce: str, verifier: str) -> str:
        """Return where a browser asks the provider to sign its user in.

        back: the address to which the provider sends the browser.
        """
        found = await self.discover()
        address = prepare_grant_uri(
            found.authorization,
            self.settings.client_id,
            "code",
            redirect_uri=back,
            scope=" ".join(self.settings.scopes),
            state=state,
            nonce=nonce,
            code_challenge=create_s256_code_challenge(verifier),
            code_challenge_method="S256",
        )
        return str(address)

    async def exchange(self, code: str, verifier: str, back: str) -> Tokens:
        """Return the tokens for a code; raise Refused if the code does not count."""
        found = await self.discover()
        async with self._bounded(), self._client(found, back) as client:
            try:
                given = await client.fetch_token(
                    found.token, grant_type="authorization_code", code=code, code_verifier=verifier
                )
            except OAuthError as error:
                if error.error == "invalid_grant":
                    raise Refused("the provider does not know the code, or no longer") from None
                text = f"{self.settings.host} refuses the console: {str(error.error)[:100]}"
                raise ProviderFault(502, text) from None
        id_token, access = (given.get(name) for name in ("id_token", "access_token"))
        if not isinstance(id_token, str):
            raise ProviderFault(502, f"{self.settings.host} gives no ID token")
        return Tokens(id_token, access if isinstance(access, str) else "")

    async def verify(self, tokens: Tokens, nonce: str) -> dict[str, object]:
        """Return the claims of an ID token; raise Refused if it does not count.

        The keys are read again if none of them has signed the token: providers change their keys.
        """
        issuer, client = self.settings.issuer, self.settings.client_id
        expected = Expected(issuer, client, nonce, tokens.access_token)
        try:
            return verify_token(tokens.id_token, self._keys, expected, int(time.time()))
        except UnknownKey:
            await self._read_keys()
        try:
            return verify_token(tokens.id_token, self._keys, expected, int(time.time()))
        except UnknownKey:
            raise Refused("none of the provider's keys has signed it") from None

    async def _read_keys(self) -> None:
        found = await self.discover()
        async with self._reading:
            now = time.monotonic()
            if now - self._keys_at >= AGAIN_S:
                self._keys_at = now
                self._keys = read_keys(await self._get(found.keys))

    # Any: authlib has no types.
    def _client(self, found: Discovered, back: str) -> Any:
        secret = self.settings.read_secret()
        methods = ("client_secret_basic", "client_secret_post") if secret else ("none",)
        return AsyncOAuth2Client(
            self.settings.client_id,
            secret or None,
            next((each for each in methods if each in found.methods), methods[0]),
            scope=" ".join(self.settings.scopes),
            redirect_uri=back,
            **self._options(),
        )

    # Any: the options of two clients, each of another type.
    def _options(self) -> dict[str, Any]:
        # Without the environment: its proxies would replace the transport, and so the bound.
        return {
            "transport": _Bounded(verify=self._context),
            "timeout": ANSWER_S,
            "trust_env": False,
            "headers": {"Accept": "application/json", "Accept-Encoding": "identity"},
        }

    async def _get(self, address: str) -> Mapping[str, object]:
        async with self._bounded(), httpx2.AsyncClient(**self._options()) as client:
            answer = await client.get(address)
            answer.raise_for_status()
            document = answer.json()
        if not isinstance(document, dict):
            raise ProviderFault(502, f"{self.settings.host} answers with no object")
        return document

    @asynccontextmanager
    async def _bounded(self) -> AsyncIterator[None]:
        """Bound a request in time; whatever goes wrong is a ProviderFault."""
        host = self.settings.host
        try:
            async with asyncio.timeout(ANSWER_S), self._turns:
                yield
        except httpx2.HTTPStatusError as error:
            status = error.response.status_code
            raise ProviderFault(502, f"{host} answers with status {status}") from None
        except (TimeoutError, httpx2.TransportError) as error:
            raise ProviderFault(503, f"{host} does not answer ({type(error).__name__})") from None
        except httpx2.DecodingError as error:
            raise ProviderFault(502, f"{host}: {error}") from None
        except OSError as error:
            text = f"the secret of the console cannot be read ({error.strerror})"
            raise ProviderFault(503, text) from None
        except (httpx2.HTTPError, httpx2.InvalidURL, ValueError, TypeError, RecursionError):
            raise ProviderFault(502, f"{host} answers with what is no JSON") from None


class _Bounded(httpx2.AsyncHTTPTransport):
    """Refuses answers that are too large, or could become so when they are unpacked."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        answer = await super().handle_async_request(request)
        if answer.headers.get("content-encoding", "identity") != "identity":
            await answer.aclose()
            raise httpx2.DecodingError("the answer is compressed", request=request)
        assert isinstance(answer.stream, httpx2.AsyncByteStream), "the transport is asynchronous"
        answer.stream = _BoundedStream(answer.stream)
        return answer


class _BoundedStream(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for part in self._stream:
            size += len(part)
            if size > ANSWER_MAX:
                raise httpx2.DecodingError(f"the answer has over {ANSWER_MAX} bytes")
            yield part

    async def aclose(self) -> None:
        await self._stream.aclose()


def _read_discovered(document: Mapping[str, object], issuer: str) -> Discovered:
    """Return what a discovery document says; raise ProviderFault if the console cannot use it."""
    if document.get("issuer") != issuer:
        text = f"the provider names itself {str(document.get('issuer'))[:200]}, not {issuer}"
        raise ProviderFault(502, text)

    def read(name: str) -> str:
        try:
            return check_url(str(document.get(name, "")))
        except ValueError as error:
            raise ProviderFault(502, f"{name} of the provider {error}") from None

    methods = document.get("token_endpoint_auth_methods_supported")
    return Discovered(
        read("authorization_endpoint"),
        read("token_endpoint"),
        read("jwks_uri"),
        read("end_session_endpoint") if document.get("end_session_endpoint") else "",
        tuple(map(str, methods)) if isinstance(methods, list) else (),
    )
