"""Requests to the API server of a cluster, and their failures."""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final, Literal, NamedTuple

import httpx2
from lightkube.config.client_adapter import AsyncClient, ConnectionParams
from lightkube.config.kubeconfig import SingleConfig

from agent.bus import Document

Verb = Literal["get", "list", "watch", "create", "update", "patch", "delete"]
REQUEST_S: Final = 3.0
"""The timeout of a request that changes something. It is shorter than the remaining time of a Lease
that was renewed in time, so no request is in flight when another replica begins."""
LIST_S: Final = 30.0
SILENCE_S: Final = 100.0
"""How long a watch may be silent: the API server sends a bookmark about every minute."""
RETRY_AFTER_MAX_S: Final = 60.0
LINE_MAX: Final = 16 << 20
"""The longest line of a watch in bytes, over five times the largest object of an API server."""
MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
_METHODS: Final[Mapping[Verb, str]] = {
    "get": "GET",
    "list": "GET",
    "watch": "GET",
    "create": "POST",
    "update": "PUT",
    "patch": "PATCH",
    "delete": "DELETE",
}


class Unreachable(Exception):
    """No reply arrived, so the change may or may not have been made; the message is one line."""


class Failure(Exception):
    """The API server refused a request, and nothing was changed.

    code: the HTTP status.
    reason: the reason of the Status object, such as `NotFound` or `AlreadyExists`.
    causes: the message of each cause in the Status, by the reason of the cause.
    fields: the fields of the object that the Status names.
    message: its message, as one line.
    retry_after_s: how long the API server asks to wait before a retry; 0 if it does not ask.
    """

    def __init__(self, code: int, status: Mapping[str, object], retry_after_s: float) -> None:
        self.code = code
        self.reason = str(status.get("reason") or "")
        self.message = " ".join(str(status.get("message") or "").split()) or f"HTTP {code}"
        causes = _causes(status)
        self.causes = {str(each.get("reason")): str(each.get("message") or "") for each in causes}
        self.fields = tuple(str(each["field"]) for each in causes if each.get("field"))
        self.retry_after_s = retry_after_s
        super().__init__(self.message)

    @property
    def lacks_right(self) -> bool:
        """Whether the account lacks the right to make this request, regardless of the object.

        Admission also refuses individual objects with 403, but with a different message.
        """
        return self.code == 401 or (self.code == 403 and bool(_NO_RIGHT.search(self.message)))

    @property
    def is_lasting(self) -> bool:
        """Whether a retry would be refused too, because of the content of the request."""
        return 400 <= self.code < 500 and self.code not in _PASSING and not self.lacks_right


_PASSING: Final = frozenset({404, 408, 409, 410, 429})
"""The codes for a missing object, a changed object, or a request that comes too early."""
_NO_RIGHT: Final = re.compile(r'User ".*" cannot \w+ (resource|path) "')
"""The message of the API server if authorization fails; no field of its Status says so."""


def _causes(status: Mapping[str, object]) -> Sequence[Document]:
    details = status.get("details")
    causes = details.get("causes") if isinstance(details, Mapping) else None
    return [each for each in causes or () if isinstance(each, Mapping)]


class Resource(NamedTuple):
    """A kind of object.

    group: its API group and version, as in the URL: `api/v1`, or `apis/<group>/<version>`.
    plural: its name in URLs.
    kind: its kind.
    """

    group: str
    plural: str
    kind: str

    def path(self, name: str = "", namespace: str = "", subresource: str = "") -> str:
        """Return the URL path of all objects, or of the object with this name."""
        place = f"namespaces/{namespace}/" if namespace else ""
        parts = (f"{self.group}/{place}{self.plural}", name, subresource)
        return "/".join(part for part in parts if part)


class Counted(NamedTuple):
    """A request that has ended: its verb, its resource, and the HTTP status; 0 without a reply."""

    verb: Verb
    resource: str
    code: int


class Api:
    """The API server of one cluster.

    ended: called after each request, with the seconds it took.

    Each method raises Failure or Unreachable.
    """

    def __init__(self, config: SingleConfig, ended: Callable[[Counted, float], None]) -> None:
        timeout = httpx2.Timeout(REQUEST_S)
        self._client = AsyncClient(config, ConnectionParams(timeout=timeout))
        self._ended = ended

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def send(
        self,
        verb: Verb,
        resource: Resource,
        path: str,
        body: Document | None = None,
        *,
        params: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        timeout_s: float = REQUEST_S,
    ) -> Document:
        """Send a request, and return the reply of the API server."""
        headers = {"Content-Type": content_type} if body is not None else {}
        content = json.dumps(body).encode() if body is not None else None
        request = self._client.build_request(
            _METHODS[verb],
            path,
            params=dict(params or {}),
            content=content,
            headers=headers,
            timeout=httpx2.Timeout(timeout_s),
        )
        began, code = time.monotonic(), 0
        try:
            async with asyncio.timeout(timeout_s):
                response = await self._client.send(request)
            code = response.status_code
            return _document(response)
        except (httpx2.HTTPError, OSError, TimeoutError) as error:
            raise _unreachable(error) from error
        finally:
            self._ended(
                Counted(verb, _counted_name(resource, path), code), time.monotonic() - began
            )

    @asynccontextmanager
    async def watch(
        self, resource: Resource, params: Mapping[str, str]
    ) -> AsyncIterator[AsyncIterator[Document]]:
        """Open a watch, and yield its events as sent, until the API server ends the watch."""
        timeout = httpx2.Timeout(REQUEST_S, read=SILENCE_S)
        request = self._client.build_request(
            "GET", resource.path(), params={"watch": "1", **params}, timeout=timeout
        )
        began, code = time.monotonic(), 0
        try:
            response = await self._client.send(request, stream=True)
            try:
                code = response.status_code
                if not response.is_success:
                    await response.aread()
                    _document(response)
                yield _events(response)
            finally:
                await response.aclose()
        except (httpx2.HTTPError, OSError) as error:
            raise _unreachable(error) from error
        finally:
            self._ended(Counted("watch", resource.plural, code), time.monotonic() - began)


def _counted_name(resource: Resource, path: str) -> str:
    subresource = path.rsplit("/", 1)[-1]
    return f"{resource.plural}/{subresource}" if subresource in _SUBRESOURCES else resource.plural


_SUBRESOURCES = frozenset({"status", "eviction"})


async def _events(response: httpx2.Response) -> AsyncIterator[Document]:
    """Yield the events of a watch. Only `\\n` ends a line: a name may hold other line ends."""
    rest = b""
    async for piece in response.aiter_bytes():
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield _event(line)
        if len(rest) > LINE_MAX:
            raise Unreachable(f"a watch sent a line of more than {LINE_MAX} bytes")


def _event(line: bytes) -> Document:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        event = None
    if not isinstance(event, dict):
        raise Unreachable("a watch sent a line that is no JSON object")
    return event


def _document(response: httpx2.Response) -> Document:
    try:
        document = json.loads(response.content or b"{}")
    except (ValueError, RecursionError):
        document = {"message": response.text[:200]}
    if not isinstance(document, dict):
        document = {}
    if not response.is_success:
        raise Failure(response.status_code, document, _retry_after_s(response))
    return document


def _retry_after_s(response: httpx2.Response) -> float:
    """Return the seconds of `Retry-After` (RFC 9110, 10.2.3); the API server sends no dates."""
    text = response.headers.get("Retry-After", "")
    return min(float(text), RETRY_AFTER_MAX_S) if text.isdecimal() else 0.0


def _unreachable(error: Exception) -> Unreachable:
    cause = " ".join(str(error).split()) or type(error).__name__
    return Unreachable(f"no reply of the API server: {cause}")
