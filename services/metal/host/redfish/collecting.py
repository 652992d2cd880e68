"""A reading, from the documents that it is made of, asked for one by one."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from metal import documents
from metal.documents import Document, at, link, parts, text
from metal.host.redfish.fault import Fault
from metal.host.redfish.limits import Limits
from metal.host.redfish.long_logs import both_ends, newest_paths, skip_to_last
from metal.host.redfish.wire import Answer
from metal.reading import LogEntry, Part, Position, Reading
from metal.replies import Trouble

Get = Callable[[str], Awaitable[Answer]]
"""Asks for a path; raises Fault if there is no answer, and returns one of whatever status."""
ROOT: Final = "/redfish/v1/"
CHASSIS_MAX: Final = 4
LOGS: Final = ("SEL", "Sel", "IML", "EventLog", "Log1")
"""The ids of the log of the hardware, the best first; else the first log is read."""
_OF_A_PART: Final = frozenset({Trouble.NONSENSE, Trouble.REFUSED, Trouble.SERVER_ERROR})
"""Troubles with one part of a machine, of which the rest can be read all the same."""


@dataclass
class Paths:
    """Where the parts of one machine are, as found; a system that is gone is looked for again.

    expands: whether the controller sends the members of a collection with it, if asked.
    """

    system: str = ""
    thermals: tuple[str, ...] | None = None
    entries: str | None = None
    expands: bool = False


@dataclass
class Collector:
    """Makes one reading.

    get, explain, hide: ask for a path, explain an answer that is no success, hide secrets.
    named: the id of the system; empty for the only one.
    unread: a sentence for each part that could not be read.
    """

    get: Get
    explain: Callable[[Answer, str], Fault]
    hide: Callable[[str], str]
    limits: Limits
    named: str
    paths: Paths
    unread: list[str] = field(default_factory=list)

    async def read(self, wanted: frozenset[Part], above: Position, most: int) -> Reading:
        """Return a reading with these parts; raise Fault if the controller gives no system."""
        system, _ = await self.system()
        processors = macs = trips = log = version = None
        if Part.PROCESSORS in wanted:
            processors = await self._members(link(system, "Processors"))
        if Part.NETWORK in wanted:
            macs = await self._members(link(system, "EthernetInterfaces"))
        if Part.THERMAL in wanted:
            trips = await self._thermals(system)
        if Part.LOG in wanted:
            log = await self._entries(system)
        if Part.CONTROLLER in wanted:
            version = await self._version(system)
        return Reading(
            power=documents.power(system),
            health=documents.health(system),
            progress=documents.boot_progress(system),
            serial=text(system, "SerialNumber"),
            model=text(system, "Model"),
            bios_version=text(system, "BiosVersion"),
            memory_gib=documents.number(system, "MemorySummary", "TotalSystemMemoryGiB"),
            memory_health=documents.health(system, "MemorySummary"),
            boot=documents.boot_override(system),
            controller_version=version,
            processors=None if processors is None else documents.processors(processors),
            macs=None if macs is None else documents.macs(macs),
            trips=None if trips is None else documents.trips(trips),
            log=None if log is None else self._log(documents.log_entries(log, above, most)),
            unread=tuple(self.unread),
        )

    def _log(self, entries: Sequence[LogEntry]) -> tuple[LogEntry, ...]:
        """Return entries without the secrets that a controller may have logged."""
        return tuple(replace(each, message=self.hide(each.message)) for each in entries)

    async def system(self) -> tuple[Document, str]:
        """Return the system, and the version of its document; raise Fault if there is none."""
        if not self.paths.system:
            await self._find_system()
        path = self.paths.system
        answer = await self.get(path)
        if not answer.is_success:
            if answer.is_missing:
                self.paths.system, self.paths.thermals, self.paths.entries = "", None, None
            raise self.explain(answer, f"GET {path}")
        document = answer.document if isinstance(answer.document, dict) else {}
        if not text(document, "PowerState"):
            raise Fault(Trouble.NONSENSE, f"{path} has no PowerState")
        return document, answer.headers.get("ETag", "")

    async def _find_system(self) -> None:
        root = await self._document(ROOT)
        features = documents.part(root, "ProtocolFeaturesSupported", "ExpandQuery")
        expands = at(features, "Levels") is True and at(features, "NoLinks") is True
        collection = link(root, "Systems")
        if not collection:
            raise Fault(Trouble.NONSENSE, f"{ROOT} names no Systems")
        system = f"{collection.rstrip('/')}/{self.named}" if self.named else ""
        if not system:
            found = [link(each) for each in parts(await self._document(collection), "Members")]
            if len(found) != 1 or not found[0]:
                cause = f"has {len(found)} systems; name one with controller.system"
                raise Fault(Trouble.NONSENSE, f"the controller {cause}")
            system = found[0]
        self.paths.system, self.paths.expands = system, expands

    async def _document(self, path: str) -> Document:
        answer = await self.get(path)
        if not answer.is_success:
            raise self.explain(answer, f"GET {path}")
        return answer.document if isinstance(answer.document, dict) else {}

    async def _members(self, path: str) -> Sequence[Document] | None:
        """Return all members of a collection; None, and a sentence in `unread`, if one is missing.

        A GPU that could not be read is not a GPU that is not there.
        """
        before = len(self.unread)
        listed = await self._list(path, self.limits.members)
        if listed is None:
            return None
        members = [await self._member(each) for each in listed]
        if len(self.unread) > before:
            return None
        if None in members:
            self.unread.append(f"a member of {path} is missing")
            return None
        return [each for each in members if each is not None]

    async def _list(self, path: str, most: int) -> Sequence[Document] | None:
        """Return what a collection lists, page by page; with a sentence in `unread` if cut off."""
        if not path:
            return None
        found: list[Document] = []
        page = f"{path}?$expand=.($levels=1)" if self.paths.expands else path
        for _ in range(self.limits.pages):
            collection = await self._try(page)
            if collection is None:
                return None
            found += parts(collection, "Members")
            page = _next_page(collection)
            if not page or len(found) > most:
                break
        if page or len(found) > most:
            self.unread.append(f"{path} has more members than are read")
        return found[:most]

    async def _member(self, entry: Document) -> Document | None:
        """Return a member that a collection lists, asked for if the list has only its path."""
        return entry if entry.keys() - {"@odata.id"} else await self._try(link(entry))

    async def _try(self, path: str, *, may_be_long: bool = False) -> Document | None:
        """Return a document; None if it is missing, or, with a word in `unread`, unreadable.

        may_be_long: whether a document that is larger than an answer may be is only missing.
        """
        if not path:
            return None
        try:
            answer = await self.get(path)
            if answer.is_missing:
                return None
            if answer.is_success:
                return answer.document if isinstance(answer.document, dict) else {}
            raise self.explain(answer, f"GET {path}")
        except Fault as fault:
            if fault.failure.trouble not in _OF_A_PART:
                raise
            if not (may_be_long and fault.is_too_long):
                self.unread.append(self.hide(fault.failure.text))
            return None

    async def _thermals(self, system: Document) -> Sequence[Document] | None:
        """Return the temperatures of each chassis; None if the controller has none."""
        paths, before = self.paths.thermals, len(self.unread)
        if paths is None:
            chassis = [link(each) for each in parts(system, "Links", "Chassis")[:CHASSIS_MAX]]
            found = [link(await self._try(path), "Thermal") for path in chassis]
            paths = tuple(path for path in found if path)
            if len(self.unread) == before:
                self.paths.thermals = paths
        read = [await self._try(path) for path in paths]
        return [each for each in read if each is not None] or None

    async def _entries(self, system: Document) -> Sequence[Document] | None:
        """Return the entries of the log of the hardware; None if there is no log."""
        path, before = self.paths.entries, len(self.unread)
        if path is None:
            path = await self._find_log(system)
            if len(self.unread) == before:
                self.paths.entries = path
        listed = await self._newest(path)
        if listed is None:
            return None
        whole = [each for each in listed if each.keys() - {"@odata.id"}]
        bare = [link(each) for each in listed if not each.keys() - {"@odata.id"}]
        # A log may lose an entry while it is read.
        asked = [await self._try(each) for each in newest_paths(bare, self.limits.members)]
        return [*whole, *(each for each in asked if each is not None)]

    async def _newest(self, path: str) -> Sequence[Document] | None:
        """Return the entries of the first page of a log and of its last pages; None without a log.

        The newest entries are first in some logs and last in others. The length of a log is no
        fault of the machine, so pages that are left out are not in `unread`.
        """
        collection = await self._try(path, may_be_long=True)
        if collection is None:
            return None
        most, pages = self.limits.entries, self.limits.pages - 1
        first, last = both_ends(collection, most), list[Document]()
        page = skip_to_last(_next_page(collection), collection, pages)
        for _ in range(pages):
            collection = await self._try(page, may_be_long=True)
            if collection is None:
                break
            last = [*last, *both_ends(collection, most)][-most:]
            page = _next_page(collection)
        return [*first, *last]

    async def _version(self, system: Document) -> str | None:
        """Return the version of the firmware of the controller; None if that could not be read."""
        before = len(self.unread)
        manager = await self._manager(system)
        return text(manager, "FirmwareVersion") if len(self.unread) == before else None

    async def _manager(self, system: Document) -> Document:
        """Return what the controller says of itself; an empty document if it says nothing."""
        managers = parts(system, "Links", "ManagedBy")
        return (await self._try(link(managers[0])) if managers else None) or {}

    async def _find_log(self, system: Document) -> str:
        services = link(system, "LogServices")
        if not services:
            services = link(await self._manager(system), "LogServices")
        listed = await self._list(services, self.limits.members) or ()
        read = [await self._member(each) for each in listed]
        logs = [each for each in read if each is not None]
        by_id = {text(each, "Id"): each for each in reversed(logs)}
        preferred = [by_id[name] for name in LOGS if name in by_id]
        return next((link(each, "Entries") for each in (*preferred, *logs)), "")


def _next_page(collection: Document) -> str:
    """Return the path of the next page of a collection; empty after the last one."""
    path = at(collection, "Members@odata.nextLink")
    return link({"@odata.id": path})
