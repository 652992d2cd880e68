"""Sends the power requests that this process has stored, each at most once."""

import asyncio
import random
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Final, Literal, assert_never

from metal.host.addresses import Addresses
from metal.host.configuring import read_token
from metal.host.managed import Managed, ManagedMachines
from metal.host.polling import Poller
from metal.host.redfish.limits import Limits
from metal.host.replica import MetalReplica, Stored
from metal.inventory.model import CONFIG, BootProfile, WipeProfile
from metal.power import is_wanted
from metal.reading import BootOverride, BootTarget, ResetType
from metal.replies import Done, Failure, Outcome, Refused, Unknown
from metal.sight import find_stranger
from nodepool.contract.events import PowerAnswered, PowerRequested
from nodepool.contract.grammar import TEXT_LIMIT
from nodepool.contract.real_machines import PowerAction
from nodepool.host.edge import FAULTS
from nodepool.nats.wire.errors import AccessError
from nodepool.state.back_off import pause_s

RESETS: Final[dict[PowerAction, ResetType]] = {
    "on": ResetType.ON,
    "off": ResetType.FORCE_OFF,
    "shutdown": ResetType.GRACEFUL_SHUTDOWN,
}
ANSWER_S: Final = (0.2, 5.0)
"""The first and the longest pause until an answer is published again."""
ENDING_S: Final = 5.0
"""How long requests under way may go on when the process stops."""


class _Refusal(Exception):
    """A request is not sent, for the reason that its text tells."""


class Sender:
    """Sends each request after its commit is stored, and never once it is overdue.

    A request that another process, or an earlier process of this replica, has stored is never sent:
    once it is overdue, another request follows.
    """

    def __init__(
        self,
        replica: MetalReplica,
        machines: ManagedMachines,
        limits: Limits,
        addresses: Addresses,
        poller: Poller,
    ) -> None:
        self._replica = replica
        self._machines = machines
        self._call = timedelta(seconds=limits.call_s)
        self._addresses = addresses
        self._poller = poller
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_open = True

    def hear(self, stored: Stored) -> None:
        """Begin to send each request of a commit that is stored."""
        for item in stored.processed:
            for envelope in item.envelopes:
                request = envelope.data
                if isinstance(request, PowerRequested):
                    due = item.input.entry.time + timedelta(seconds=request.within_s)
                    task = asyncio.create_task(self._send_alone(request, due))
                    self._tasks.add(task)
                    task.add_done_callback(self._note_end)

    def _note_end(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._replica.log.error("request crashed", exc_info=task.exception())

    async def finish(self) -> None:
        """Send nothing more; give requests under way a moment to end."""
        self._is_open = False
        with suppress(TimeoutError):
            async with asyncio.timeout(ENDING_S):
                while self._tasks:
                    await asyncio.wait(self._tasks)
        for task in self._tasks:
            task.cancel()

    async def _send_alone(self, request: PowerRequested, due: datetime) -> None:
        """Carry out a request while its controller is not read."""
        with self._poller.holding(request.machine_key):
            await self._send(request, due)

    async def _send(self, request: PowerRequested, due: datetime) -> None:
        """Carry out a request, and say what became of it, unless it is overdue."""
        await self._replica.wait_ready(request.within_s)
        try:
            outcome, cause = _describe(await self._carry_out(request, due))
        except _Refusal as refusal:
            outcome, cause = "refused", str(refusal)
        if (managed := self._machines.get(request.machine_key)) is not None:
            cause = managed.controller.hide(cause)
        answer = PowerAnswered(
            zone=request.zone,
            machine=request.machine,
            number=request.number,
            outcome=outcome,
            cause=self._addresses.hide(cause, request)[:TEXT_LIMIT],
        )
        self._replica.log.info(
            "power request ended",
            machine=request.machine_key,
            number=request.number,
            action=request.action,
            outcome=answer.outcome,
            cause=answer.cause,
        )
        await self._say(answer, due)

    async def _say(self, answer: PowerAnswered, due: datetime) -> None:
        """Store an answer, again and again until it is overdue."""
        failures = 0
        while self._replica.now() < due:
            with suppress(*FAULTS):
                await self._replica.say(answer)
                return
            failures += 1
            await asyncio.sleep(pause_s(failures, *ANSWER_S, random.random()))

    async def _carry_out(self, request: PowerRequested, due: datetime) -> Outcome:
        """Return what became of a request; raise _Refusal if it must not be sent."""
        managed = self._machines.get(request.machine_key)
        if managed is None:
            raise _Refusal("the inventory does not have the machine")
        check = partial(self._check_open, managed, request, due)
        check()
        if request.boot_from:
            await self._set_boot(managed, request)
        elif request.action == "on":
            await _clear_boot(managed)
        return await managed.controller.reset(RESETS[request.action], check)

    def _check_open(self, managed: Managed, request: PowerRequested, due: datetime) -> None:
        """Raise _Refusal for a request that is not needed any more, or that comes too late.

        A request is too late if it may be overdue before the call that sends it has ended. A
        process that stops refuses what its replica stores until it ends, so that nobody waits.
        """
        if not self._is_open:
            raise _Refusal("the process that was to send it stops")
        if self._replica.now() + self._call >= due:
            raise _Refusal("it could not be sent in time")
        machine = self._replica.machine(request.machine_key)
        current, declared = machine.request, self._machines.get(request.machine_key)
        if current is None or current.number != request.number or current.is_answered:
            raise _Refusal("it was given up before it could be sent")
        is_there = declared is not None and declared.controller is managed.controller
        if not (is_there and is_wanted(machine, request)):
            raise _Refusal("it was not needed any more when it could be sent")

    async def _set_boot(self, managed: Managed, request: PowerRequested) -> None:
        """Set what a machine boots from once; raise _Refusal if its controller has not kept it."""
        profile = self._find_profile(managed, request)
        self._check_told(profile)
        reading = await managed.controller.read(frozenset(), is_power=True)
        if isinstance(reading, Failure):
            raise _Refusal(f"the machine could not be read before its power-on: {reading.text}")
        if stranger := find_stranger(managed.known, reading):
            raise _Refusal(stranger)
        image = ""
        if profile.target is BootTarget.UEFI_HTTP:
            image = self._addresses.fill(profile.image, request)
        failure = await managed.controller.set_boot(profile.target, image)
        if failure is not None:
            raise _Refusal(f"the next boot could not be set: {failure.text}")
        found = await managed.controller.read_boot()
        if isinstance(found, Failure):
            raise _Refusal(f"the next boot could not be read back: {found.text}")
        if not _keeps(found, profile.target, image):
            shown = "none" if found is None else f"{found.target or 'None'} {found.enabled}"
            raise _Refusal(
                f"its controller forgets the boot override: {profile.target} Once was set, and"
                f" {shown} was read back"
            )

    def _check_told(self, profile: BootProfile | WipeProfile) -> None:
        """Raise _Refusal if a boot could not get its configuration, or a wipe could not report."""
        is_wipe, needs_config = isinstance(profile, WipeProfile), CONFIG in profile.image
        if (is_wipe or needs_config) and not self._addresses.are_served:
            what = "wipe can report its end" if is_wipe else "boot can get its configuration"
            raise _Refusal(f"no {what}: set NODEPOOL_METAL_REPORT_PORT")
        if needs_config and isinstance(profile, BootProfile):
            try:
                read_token(profile)
            except AccessError as error:
                raise _Refusal(str(error)) from None

    def _find_profile(self, managed: Managed, request: PowerRequested) -> BootProfile | WipeProfile:
        """Return what a machine boots for a request; raise _Refusal if nothing is declared."""
        inventory, kind = self._machines.inventory, managed.known.instance_type
        profile = None
        if inventory is not None:
            boot = (request.boot_from, kind, request.org, request.cluster)
            profile = inventory.find_boot(*boot)
        if profile is None:
            word = "WipeProfile" if request.boot_from == "wipe" else "BootProfile"
            raise _Refusal(f"the inventory has no {word} for {kind}")
        return profile


async def _clear_boot(managed: Managed) -> None:
    """Clear what an earlier request has set and no boot has used; raise _Refusal if it stays.

    An operator who powers a machine on in maintenance must not boot the image of a request that was
    refused or overdue, least of all the image that wipes the machine. Other overrides stay: the
    operator may have set them.
    """
    found = await managed.controller.read_boot()
    if isinstance(found, BootOverride) and found.is_of_network:
        failure = await managed.controller.clear_boot()
        if failure is not None:
            raise _Refusal(f"an earlier boot override could not be cleared: {failure.text}")
        found = await managed.controller.read_boot()
    if isinstance(found, Failure):
        raise _Refusal(f"the next boot could not be read: {found.text}")
    if found is not None and found.is_of_network:
        raise _Refusal(f"its controller keeps an earlier boot override: {found.target} Once")


def _describe(outcome: Outcome) -> tuple[Literal["done", "refused", "unknown"], str]:
    """Return what became of a reset as an answer says it: in one word, and why."""
    match outcome:
        case Done():
            return "done", ""
        case Refused(reason):
            return "refused", reason.text
        case Unknown(reason):
            return "unknown", reason.text
        case _:
            assert_never(outcome)


def _keeps(found: BootOverride | None, target: BootTarget, image: str) -> bool:
    """Return whether a controller has kept the boot override that was set."""
    if found is None or found.enabled != "Once" or found.target != target:
        return False
    return not image or found.uri == image
