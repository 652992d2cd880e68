"""Keeps the objects of one kind current, with a list and a watch."""

import asyncio
import random
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, Generic, TypeVar

from structlog.typing import FilteringBoundLogger as Logger

from nodepool.kube.api import Api, Resource
from nodepool.kube.failures import ApiFailure, ApiUnreachable, Document, part
from nodepool.kube.store import Changed, Kept, Store
from nodepool.state.back_off import pause_s

T = TypeVar("T")
PAGE: Final = 500
"""The most objects in one reply, the same limit as in client-go."""
WATCH_S: Final = (240, 480)
"""The range of the random timeout of a watch: watches must not all restart at the same time."""
RETRY_S: Final = 0.2
RETRY_MAX_S: Final = 10.0
STABLE_S: Final = 30.0
"""A watch that lasted longer than this resets the back-off."""
_NO_LONGER = frozenset({"Expired", "Gone", "ResourceVersionTooLarge"})


class Informer(Generic[T]):
    """The objects of one kind.

    store: the objects as they were last seen.
    fault: why the store is not current, as one line; empty while it is current.
    listed_at: when the objects were last listed, by Python's monotonic clock; 0 before that.
    on_deleted: called with each object that a watch reports as deleted, in its last state.
    on_lacking: called with each object that a new list lacks, as it was last seen; not called if
      the list comes from a restored backup of the cluster.

    After a lost connection, the informer lists the objects again and does not resume the watch: the
    cluster may have been restored from a backup, in which the same versions mean other states.
    """

    def __init__(
        self,
        api: Api,
        resource: Resource,
        read: Callable[[Document], T | None],
        changed: Changed[T],
        *,
        log: Logger,
        selector: str = "",
        listed: Callable[[], None] = lambda: None,
    ) -> None:
        """Create the informer.

        read: returns what to keep of an object; None to ignore the object.
        selector: the field selector of the objects that matter. listed: called after each list.
        """
        self.store: Store[T] = Store(changed)
        self.resource = resource
        self.fault = f"listing {resource.plural}"
        self.listed_at = 0.0
        self._api = api
        self._read = read
        self._log = log
        self._selector = {"fieldSelector": selector} if selector else {}
        self._listed = listed
        self.on_deleted: Callable[[T], None] = lambda _: None
        self.on_lacking: Callable[[T], None] = lambda _: None
        self._position: str | None = None

    async def run(self) -> None:
        """Keep the objects current until the task is cancelled; a failure only delays that."""
        failures = 0
        while True:
            began, least_s = time.monotonic(), 0.0
            try:
                if self._position is None:
                    await self._list()
                await self._watch(self._position or "")
                failures = 0
                continue
            except ApiFailure as failure:
                least_s = self._note_failure(failure)
            except ApiUnreachable as error:
                self._position = None
                self._note(str(error))
            failures = 1 if time.monotonic() - began > STABLE_S else failures + 1
            await asyncio.sleep(
                max(least_s, pause_s(failures, RETRY_S, RETRY_MAX_S, random.random()))
            )

    def _note_failure(self, failure: ApiFailure) -> float:
        """Note a failed watch, and return for how many seconds the API server asks to wait."""
        if failure.code == 410 or _NO_LONGER & {failure.reason, *failure.causes}:
            self._position = None
            self._log.info("listing again", resource=self.resource.plural, cause=failure.message)
            return 0.0
        if failure.code == 404:
            self._note(f"the API server knows no {self.resource.plural}: {failure.message}")
        else:
            self._note(f"cannot watch {self.resource.plural}: {failure.message}")
        if failure.code not in (429, 503):
            self._position = None
        return failure.retry_after_s

    def _note(self, fault: str) -> None:
        self.fault = fault
        self._log.warning("cannot watch", resource=self.resource.plural, cause=fault)

    async def _list(self) -> None:
        self.store.begin_list()
        found, version = await self._all(self._selector)
        self._position = version
        for value in self.store.lacking(found, _number(version)):
            self.on_lacking(value)
        self.store.replace(found, _number(version))
        self.listed_at = time.monotonic()
        self.fault = ""
        self._listed()

    async def read(self, selector: str) -> None:
        """Read the objects of a field selector from the API server as they are now.

        Afterwards the store lacks none of these objects, even if the watch has not shown them.
        """
        found, version = await self._all({"fieldSelector": selector})
        self.store.add(found, _number(version))

    async def _all(self, selector: Mapping[str, str]) -> tuple[dict[str, Kept[T]], str]:
        """Return all objects of a selector by key, and the version at which they were read."""
        found: dict[str, Kept[T]] = {}
        following, version = "", ""
        while True:
            params = {"limit": str(PAGE), **selector}
            if following:
                params["continue"] = following
            page = await self._api.list_page(self.resource, params)
            metadata, items = page.get("metadata"), page.get("items")
            if not isinstance(metadata, Mapping) or not isinstance(items, list | None):
                raise ApiUnreachable(f"a list of {self.resource.plural} is none")
            for item in items or ():
                read = self._read_object(item)
                if read is not None and read[1] is not None:
                    found[read[0]] = read[1]
            # Later pages may have a later version; a watch begins at the version of the first page.
            version = version or str(metadata.get("resourceVersion") or "")
            following = str(metadata.get("continue") or "")
            if not following:
                return found, version

    async def _watch(self, position: str) -> None:
        params = {
            "resourceVersion": position,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(random.randint(*WATCH_S)),
            **self._selector,
        }
        async with self._api.watch(self.resource, params) as events:
            if self.fault:
                self.fault = ""
                self._listed()
            async for event in events:
                self._apply(event)

    def _apply(self, event: Document) -> None:
        kind, item = event.get("type"), event.get("object")
        if kind == "ERROR":
            status = item if isinstance(item, Mapping) else {}
            code = status.get("code")
            raise ApiFailure(code if isinstance(code, int) else 500, status, 0.0)
        if not isinstance(item, Mapping):
            return
        if kind != "BOOKMARK":
            read = self._read_object(item)
            if read is not None:
                key, kept, uid = read
                if kind == "DELETED" and kept is not None:
                    self.on_deleted(kept.value)
                self.store.apply(key, uid, _version_of(item), None if kind == "DELETED" else kept)
        self._position = str(part(item, "metadata").get("resourceVersion") or self._position)

    def wrote(self, document: Document) -> None:
        """Store an object as the API server returned it after a write."""
        read = self._read_object(document)
        if read is not None and read[1] is not None:
            self.store.put(read[0], read[1])

    def _read_object(self, document: object) -> tuple[str, Kept[T] | None, str] | None:
        """Return the key of an object, the value to keep, and its uid; None if it is no object."""
        if not isinstance(document, Mapping):
            return None
        metadata = part(document, "metadata")
        name, uid = str(metadata.get("name") or ""), str(metadata.get("uid") or "")
        if not name or not uid:
            return None
        namespace = metadata.get("namespace")
        key = f"{namespace}/{name}" if namespace else name
        try:
            value = self._read(document)
        except ValueError as error:
            self._log.warning("unreadable", kind=self.resource.kind, name=key, cause=str(error))
            return None
        return key, None if value is None else Kept(uid, _version_of(document), value), uid


def _version_of(document: Document) -> int:
    return _number(str(part(document, "metadata").get("resourceVersion") or ""))


def _number(text: str) -> int:
    with suppress(ValueError):
        return int(text)
    return 0
