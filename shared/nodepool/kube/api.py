"""Sends requests to the API server of a cluster."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final, Literal, NamedTuple

from aiohttp import ClientError, ClientResponse
from lightkube.config.kubeconfig import SingleConfig

from nodepool.kube.failures import ApiFailure, ApiUnreachable, Document, part
from nodepool.kube.session import open_session

Verb = Literal["get", "list", "watch", "create", "update", "patch", "delete"]
REQUEST_S: Final = 3.0
"""The timeout of a request that changes something. It is shorter than the remaining time of a Lease
that was renewed in time, so no request is in flight when another replica begins."""
LIST_S: Final = 30.0
SILENCE_S: Final = 100.0
"""How long a watch may be silent: the API server sends a bookmark about every minute."""
RETRY_AFTER_MAX_S: Final = 60.0
CONTENT_MAX: Final = 1 << 28
"""The largest content of a response that is no watch, in bytes; a page of objects is smaller."""
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

    manager: the name of this program in the managed fields of the objects that it writes.
    ended: called after each request, with the seconds it took.

    Each method raises ApiFailure or ApiUnreachable.
    """

    def __init__(
        self, config: SingleConfig, manager: str, ended: Callable[[Counted, float], None]
    ) -> None:
        self._server = config.cluster.server.rstrip("/")
        self._session = open_session(config)
        self._manager = {"fieldManager": manager}
        self._ended = ended

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()

    async def get(self, resource: Resource, name: str, namespace: str = "") -> Document:
        """Return an object."""
        return await self._send("get", resource, resource.path(name, namespace))

    async def list_page(self, resource: Resource, params: Mapping[str, str]) -> Document:
        """Return a page of the objects of all namespaces."""
        return await self._send("list", resource, resource.path(), params=params, timeout_s=LIST_S)

    async def create(
        self,
        resource: Resource,
        document: Document,
        *,
        name: str = "",
        namespace: str = "",
        subresource: str = "",
    ) -> Document:
        """Create an object, or the subresource of the object with this name."""
        path = resource.path(name, namespace, subresource)
        return await self._send("create", resource, path, document, params=self._manager)

    async def update(self, resource: Resource, document: Document) -> Document:
        """Replace an object; the API server refuses that if the object has changed."""
        metadata = part(document, "metadata")
        path = resource.path(str(metadata["name"]), str(metadata.get("namespace") or ""))
        return await self._send("update", resource, path, document, params=self._manager)

    async def patch(
        self,
        resource: Resource,
        name: str,
        patch: Document,
        *,
        subresource: str = "",
        content_type: str = MERGE,
    ) -> Document:
        """Change an object without a namespace, and return it as it is afterwards."""
        path = resource.path(name, subresource=subresource)
        return await self._send(
            "patch", resource, path, patch, params=self._manager, content_type=content_type
        )

    async def delete(
        self, resource: Resource, name: str, namespace: str, options: Document
    ) -> Document:
        """Delete an object; return its last state or, if it is gone at once, a Status."""
        return await self._send("delete", resource, resource.path(name, namespace), options)

    @asynccontextmanager
    async def watch(
        self, resource: Resource, params: Mapping[str, str]
    ) -> AsyncIterator[AsyncIterator[Document]]:
        """Open a watch, and yield its events as sent, until the API server ends the watch."""
        path, params = resource.path(), {"watch": "1", **params}
        try:
            async with (
                asyncio.timeout(REQUEST_S) as limit,
                self._open_response("watch", resource, path, params=params) as response,
            ):
                yield _events(response, limit)
        except TimeoutError as error:
            raise _unreachable(error) from error

    async def _send(
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
        content = None if body is None else (json.dumps(body).encode(), content_type)
        try:
            async with (
                asyncio.timeout(timeout_s),
                self._open_response(verb, resource, path, content, params) as response,
            ):
                return _document(await _content(response))
        except TimeoutError as error:
            raise _unreachable(error) from error

    @asynccontextmanager
    async def _open_response(
        self,
        verb: Verb,
        resource: Resource,
        path: str,
        content: tuple[bytes, str] | None = None,
        params: Mapping[str, str] | None = None,
    ) -> AsyncIterator[ClientResponse]:
        """Send a request, and yield the response, whose content is not read yet."""
        data, content_type = content or (None, "")
        headers = {"Content-Type": content_type} if content_type else {}
        began, code = time.monotonic(), 0
        try:
            async with self._session.request(
                _METHODS[verb],
                f"{self._server}/{path}",
                params=params,
                data=data,
                headers=headers,
                allow_redirects=False,
            ) as response:
                code = response.status
                if not 200 <= code < 300:
                    found = _document(await _content(response))
                    raise ApiFailure(code, found, _retry_after_s(response))
                yield response
        except (ClientError, OSError) as error:
            raise _unreachable(error.__cause__ or error) from error
        finally:
            subresource = path.rsplit("/", 1)[-1]
            is_named = subresource in _SUBRESOURCES
            name = f"{resource.plural}/{subresource}" if is_named else resource.plural
            self._ended(Counted(verb, name, code), time.monotonic() - began)


_SUBRESOURCES = frozenset({"status", "eviction"})


async def _content(response: ClientResponse) -> bytes:
    """Return the content of a response."""
    content = bytearray()
    async for piece in response.content.iter_any():
        content += piece
        if len(content) > CONTENT_MAX:
            raise ApiUnreachable(f"the content of a response is over {CONTENT_MAX} bytes")
    return bytes(content)


async def _events(response: ClientResponse, limit: asyncio.Timeout) -> AsyncIterator[Document]:
    """Yield the events of a watch. Only `\\n` ends a line: a name may hold other line ends."""
    rest, clock = b"", asyncio.get_running_loop().time
    limit.reschedule(clock() + SILENCE_S)
    async for piece in response.content.iter_any():
        limit.reschedule(clock() + SILENCE_S)
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield _event(line)
        if len(rest) > LINE_MAX:
            raise ApiUnreachable(f"a watch sent a line of more than {LINE_MAX} bytes")


def _event(line: bytes) -> Document:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        event = None
    if not isinstance(event, dict):
        raise ApiUnreachable("a watch sent a line that is no JSON object")
    return event


def _document(content: bytes) -> Document:
    """Return the content of a response; its beginning as a message if it is no JSON object."""
    try:
        document = json.loads(content or b"{}")
    except (ValueError, RecursionError):
        document = {"message": content[:200].decode(errors="replace")}
    return document if isinstance(document, dict) else {}


def _retry_after_s(response: ClientResponse) -> float:
    """Return the seconds of `Retry-After` (RFC 9110, 10.2.3); the API server sends no dates."""
    text = response.headers.get("Retry-After", "")
    return min(float(text), RETRY_AFTER_MAX_S) if text.isdecimal() else 0.0


def _unreachable(error: BaseException) -> ApiUnreachable:
    cause = " ".join(str(error).split()) or type(error).__name__
    return ApiUnreachable(f"no reply of the API server: {cause}")
