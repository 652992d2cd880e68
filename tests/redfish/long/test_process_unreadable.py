"""A check of a machine, a part of which cannot be read, however long the check waits."""

from pathlib import Path

from conformance.requests import deleted, registered, stay_of
from nodepool.contract.commands_metal import VerifyMachine
from nodepool.contract.events import (
    MachineAdded,
    MachineBooted,
    MachineCheckRequested,
    MachineConditionChanged,
    MachineRepaired,
)
from redfish.audit import audit
from redfish.emulator import Emulator
from redfish.site import a_site
from support.constants import ZONE

CHECKED_S = 90.0
"""Longer than a check waits for its reading."""


async def test_a_check_of_a_machine_that_cannot_be_read_ends_and_says_why(
    machines: Emulator, tmp_path: Path
) -> None:
    async with a_site(machines, tmp_path, 1) as site:
        front = site.rigs["m0"].front
        with site.process():
            # given a machine in triage, and a part that its controller cannot show
            await site.expect(MachineAdded, "m0")
            stay = stay_of("m0", 1)
            await site.tell(stay)
            await site.expect(MachineBooted, "m0")
            await site.tell(registered(stay), deleted(stay, triage=True))
            front.status = {"/EthernetInterfaces": 500}

            # when it is verified
            await site.tell(VerifyMachine(zone=ZONE, machine="m0"))
            await site.expect(MachineCheckRequested, "m0")

            # then it stays there, and its condition says what cannot be read
            unfit = await site.expect(
                MachineConditionChanged, "m0", type="Unfit", status=True, within_s=CHECKED_S
            )
            assert "/EthernetInterfaces was answered with 500" in unfit.message

            # and it comes back when it is verified once that can be read
            front.status = {}
            await site.expect(MachineConditionChanged, "m0", type="Unfit", status=False)
            await site.tell(VerifyMachine(zone=ZONE, machine="m0"))
            await site.expect(MachineRepaired, "m0")

        audit(site)
