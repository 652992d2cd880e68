"""A boot override that no boot has used does not decide what an operator's power-on boots."""

import pytest

from conformance.requests import stay_of
from metal.host.redfish.controllers import Controllers
from metal.reading import BootOverride, BootTarget
from nodepool.contract.commands_metal import MaintainMachine, SetMachinePower
from nodepool.contract.events import MachineAdded, MachineMaintenanceChanged, PowerAnswered
from redfish.emulator import Emulator
from redfish.front import fronted
from redfish.power import RESET
from redfish.site import NODE_IMAGE, Site, a_site
from support.constants import ZONE

IN = MaintainMachine(zone=ZONE, machine="m0", maintenance=True, reason="a new fan")
ON = SetMachinePower(zone=ZONE, machine="m0", power="on")


async def test_a_boot_override_is_cleared_and_read_back(
    machines: Emulator, controllers: Controllers
) -> None:
    async with fronted(machines.machine()) as front:
        controller = controllers.open(front.place())
        await controller.set_boot(BootTarget.UEFI_HTTP, NODE_IMAGE)

        assert await controller.clear_boot() is None

        found = await controller.read_boot()
        assert isinstance(found, BootOverride)
        assert (found.target, found.enabled, found.is_of_network) == ("None", "Disabled", False)


async def maintain_after_a_refusal(site: Site) -> None:
    """Take the machine into maintenance after the reset that was to boot an image was refused."""
    front = site.rigs["m0"].front
    front.status = {RESET: 400}
    await site.expect(MachineAdded, "m0")
    await site.tell(stay_of("m0", 1))
    await site.expect(PowerAnswered, "m0", outcome="refused")
    await site.tell(IN)
    await site.expect(MachineMaintenanceChanged, "m0")
    front.status = {}


@pytest.mark.parametrize("wipes", [False, True])
async def test_a_power_on_in_maintenance_boots_no_image_of_a_refused_request(
    machines: Emulator, tmp_path_factory: pytest.TempPathFactory, wipes: bool
) -> None:
    async with a_site(machines, tmp_path_factory.mktemp("site"), 1, wipes=wipes) as site:
        rig = site.rigs["m0"]
        with site.process():
            # given a controller that keeps the image of a boot, or of a wipe, that was refused
            await maintain_after_a_refusal(site)
            assert rig.front.boot["BootSourceOverrideEnabled"] == "Once"

            # when an operator powers the machine on
            await site.tell(ON)
            await site.expect(PowerAnswered, "m0", outcome="done")

            # then the machine boots its disk
            await site.until(lambda: rig.history == [""])


async def test_a_power_on_is_refused_while_the_controller_keeps_an_earlier_boot_override(
    machines: Emulator, tmp_path_factory: pytest.TempPathFactory
) -> None:
    async with a_site(machines, tmp_path_factory.mktemp("site"), 1) as site:
        rig = site.rigs["m0"]
        with site.process():
            await maintain_after_a_refusal(site)
            kept = {"BootSourceOverrideEnabled": "Once", "BootSourceOverrideTarget": "UefiHttp"}
            rig.front.changes["/" + rig.front.machine.id] = lambda it: it["Boot"].update(kept)

            await site.tell(ON)

            cause = "its controller keeps an earlier boot override: UefiHttp Once"
            await site.expect(PowerAnswered, "m0", outcome="refused", cause=cause)
        assert rig.history == []
