"""One controller: read it, set or clear its boot override, send it a reset."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from http import HTTPStatus
from typing import NamedTuple

from metal.documents import Document, at, boot_override, link, part, text
from metal.host.redfish.calls import Calls
from metal.host.redfish.collecting import Collector, Paths
from metal.host.redfish.credentials import SHORT_MAX, Secrets
from metal.host.redfish.fault import Fault
from metal.host.redfish.login import Login
from metal.host.redfish.shared import Shared
from metal.host.redfish.wire import Answer, Wire
from metal.inventory.inventory import Place
from metal.reading import (
    ALL_PARTS,
    LOG_START,
    BootOverride,
    BootTarget,
    Part,
    Position,
    Reading,
    ResetType,
)
from metal.replies import Done, Failure, Outcome, Refused, Trouble, Unknown

ENTRIES = 50
"""How many entries of a log are in a reading, if nobody says otherwise."""


class Controller:
    """The controller of one machine.

    Its methods return what went wrong instead of raising it. A call that is cancelled in the middle
    of a reset leaves open whether the reset was carried out.
    """

    def __init__(self, place: Place, shared: Shared) -> None:
        self._place = place
        self._limits = shared.limits
        self._secrets = Secrets()
        self._wire = Wire(shared.session, place, shared.limits, self._secrets)
        self._login = Login(self._wire, place.credentials, shared.environment, self._secrets)
        self._calls = Calls(shared, place.address)
        self._paths = Paths()

    async def read(
        self,
        parts: frozenset[Part] = ALL_PARTS,
        above: Position = LOG_START,
        entries: int = ENTRIES,
        *,
        is_power: bool = False,
    ) -> Reading | Failure:
        """Return a reading with these parts, and so many of the log's entries above a position.

        is_power: whether a power request needs it, which waits for no other reading.
        """
        try:
            return await self._calls.make(
                lambda: self._collector().read(parts, above, entries),
                within_s=self._limits.parts_s if parts else self._limits.call_s,
                is_power=is_power,
            )
        except Fault as fault:
            return self._tell(fault)

    async def set_boot(self, target: BootTarget, uri: str = "") -> Failure | None:
        """Set what the machine boots from once; None if the controller has accepted that.

        uri: the image of a boot over HTTP; empty for the one that DHCP names.
        A later reading shows whether the controller has kept it.
        """
        try:
            await self._calls.make(lambda: self._set_boot(target, uri), is_power=True)
        except Fault as fault:
            return self._tell(fault)
        return None

    async def clear_boot(self) -> Failure | None:
        """Let the machine boot as without an override; None if the controller has accepted that."""
        try:
            await self._calls.make(self._clear_boot, is_power=True)
        except Fault as fault:
            return self._tell(fault)
        return None

    async def read_boot(self) -> BootOverride | Failure | None:
        """Return what the machine boots from next; None if the controller has no such setting."""
        try:
            found = await self._calls.make(self._boot_document, is_power=True)
        except Fault as fault:
            return self._tell(fault)
        return boot_override(found.document)

    async def reset(self, kind: ResetType, check: Callable[[], None] = lambda: None) -> Outcome:
        """Send one reset, at most once, and return what became of it.

        check: called at the last moment before it is sent, and raises an exception of the caller's
            own if it must not be sent any more. A call may wait long for its turn.
        """
        sent: list[ResetType] = []
        try:
            await self._calls.make(lambda: self._reset(kind, sent, check), is_power=True)
        except Fault as fault:
            reason = self._tell(fault)
            return Unknown(reason) if sent and fault.may_have_acted else Refused(reason)
        return Done()

    async def close(self) -> None:
        """End the session, if the controller answers."""
        if not self._calls.has_failed:
            with suppress(Fault):  # The controller ends a session that nobody uses.
                await self._calls.make(self._login.end)

    def hide(self, text: str) -> str:
        """Return a text without the secrets of this controller, which it may show anywhere."""
        return self._secrets.hide(text)

    def _tell(self, fault: Fault) -> Failure:
        return replace(fault.failure, text=self.hide(fault.failure.text))

    def _collector(self) -> Collector:
        named = self._place.system
        explain, hide = self._wire.explain, self._secrets.hide
        return Collector(self._get, explain, hide, self._limits, named, self._paths)

    async def _get(self, path: str) -> Answer:
        return await self._ask("GET", path)

    async def _ask(
        self, method: str, path: str, body: Document | None = None, version: str = ""
    ) -> Answer:
        """Return the answer to a request that may be sent again: with a new session after a 401."""
        needs_document = method == "GET"
        extra = {"If-Match": version} if version else {}
        signed = await self._login.headers()
        for is_last in (False, True):
            answer = await self._wire.send(
                method, path, {**signed, **extra}, body, needs_document=needs_document
            )
            if answer.status != HTTPStatus.UNAUTHORIZED:
                return answer
            if is_last or not await self._login.renew(signed):
                break
            signed = await self._login.headers()
        raise self._wire.explain(answer, f"{method} {path}")

    async def _boot_document(self) -> "_BootDocument":
        """Return where the next boot is set; some controllers have a separate document for it."""
        system, version = await self._collector().system()
        offered = at(system, "Boot", "BootSourceOverrideTarget@Redfish.AllowableValues")
        settings = link(system, "@Redfish.Settings", "SettingsObject")
        if settings:
            answer = await self._get(settings)
            if answer.is_success and part(answer.document, "Boot"):
                document = part({"": answer.document}, "")
                return _BootDocument(settings, document, answer.headers.get("ETag", ""), offered)
        return _BootDocument(self._paths.system, system, version, offered)

    async def _set_boot(self, target: BootTarget, uri: str) -> None:
        path, document, version, offered = await self._boot_document()
        _check_offer(target, offered)
        boot = _boot_change(part(document, "Boot"), target, uri)
        await self._patch_boot(path, boot, version)

    async def _clear_boot(self) -> None:
        path, _, version, _ = await self._boot_document()
        change = {"BootSourceOverrideEnabled": "Disabled", "BootSourceOverrideTarget": "None"}
        await self._patch_boot(path, change, version)

    async def _patch_boot(self, path: str, boot: Document, version: str) -> None:
        answer = await self._ask("PATCH", path, {"Boot": boot}, version.removeprefix("W/"))
        if answer.status == HTTPStatus.PRECONDITION_FAILED:
            answer = await self._ask("PATCH", path, {"Boot": boot})
        if not answer.is_success:
            raise self._wire.explain(answer, f"PATCH {path}")

    async def _reset(
        self, kind: ResetType, sent: list[ResetType], check: Callable[[], None]
    ) -> None:
        """Send one reset; `sent` holds it from then on."""
        system, _ = await self._collector().system()
        action = part(system, "Actions", "#ComputerSystem.Reset")
        _check_offer(kind, action.get("ResetType@Redfish.AllowableValues"))
        usual = f"{self._paths.system}/Actions/ComputerSystem.Reset"
        path = link({"@odata.id": action.get("target")}) or usual
        signed = await self._login.headers()
        check()
        sent.append(kind)
        # Not by `_ask`, which may send a request again.
        answer = await self._wire.send(
            "POST", path, signed, {"ResetType": kind.value}, needs_document=False
        )
        if answer.status == HTTPStatus.UNAUTHORIZED:
            await self._login.renew(signed)
        if not answer.is_success:
            raise self._wire.explain(answer, f"POST {path}")


class _BootDocument(NamedTuple):
    """Where the next boot of a machine is set.

    document, version: as found at its path. offered: what the machine can boot from.
    """

    path: str
    document: Document
    version: str
    offered: object


def _check_offer(value: str, offered: object) -> None:
    """Raise Fault if a controller lists what it can do, and this is not in the list."""
    if not isinstance(offered, Sequence) or isinstance(offered, str) or not offered:
        return
    if value not in offered:
        listed = ", ".join(text({"": each}, "")[:SHORT_MAX] for each in offered[:16])
        told = f"the controller does not offer {value}; it offers {listed}"
        raise Fault(Trouble.REFUSED, told, may_have_acted=False)


def _boot_change(boot: Document, target: BootTarget, uri: str) -> Mapping[str, object]:
    """Return what to change of the next boot; raise Fault if it cannot load the image."""
    change: dict[str, object] = {
        "BootSourceOverrideEnabled": "Once",
        "BootSourceOverrideTarget": target.value,
    }
    if boot.get("BootSourceOverrideMode") not in (None, "UEFI"):
        change["BootSourceOverrideMode"] = "UEFI"
    if uri and "HttpBootUri" not in boot:
        told = "the controller has no HttpBootUri; leave the image to DHCP, or boot over PXE"
        raise Fault(Trouble.REFUSED, told, may_have_acted=False)
    if uri:
        change["HttpBootUri"] = uri
    return change
