"""A machine gets its configuration and its join token while the boot that needs them is wanted.

The address of the configuration is in the address of the image, so nobody else knows it.
"""

from http import HTTPStatus
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from yarl import URL

from bus.harness import until
from bus.test_process_life import readiness
from conformance.requests import CLUSTER, ORG, deleted, registered, stay_of
from metal.host.addresses import Addresses, config_path
from nodepool.contract.events import MachineAdded, MachineBooted, MachineFailed, MachineWiped
from redfish.emulator import Emulator
from redfish.site import JOIN, KEY, NODE_IMAGE, Rig, Site, a_site
from support.constants import ZONE

ARGUMENTS = ["console=ttyS0", "quiet"]
CONFIGURED = f"{NODE_IMAGE}?config={{config}}"


async def get(address: str) -> tuple[int, Any]:
    """The status and the document of the answer, which nobody may store."""
    async with aiohttp.ClientSession() as session, session.get(address) as answer:
        assert answer.headers["Cache-Control"] == "no-store"
        return answer.status, await answer.json()


def configure(site: Site) -> None:
    """Declares images that get a configuration, those of the cluster with arguments."""
    site.boots = [
        {"image": CONFIGURED, "kernelArguments": ARGUMENTS, "org": ORG, "cluster": CLUSTER}
    ]
    site.wipe = {"image": "https://boot.test/wipe.efi?report={report}&config={config}"}
    site.declare()


def config_of(rig: Rig) -> str:
    """The address of the configuration of what a machine has booted last."""
    return URL(rig.booted[-1]).query["config"]


async def test_a_machine_gets_the_configuration_of_its_boot_while_this_is_wanted(
    machines: Emulator, tmp_path: Path
) -> None:
    async with a_site(machines, tmp_path, 1, wipes=True) as site:
        rig = site.rigs["m0"]
        configure(site)
        with site.process():
            # given a machine that has booted for its cluster
            await site.until_free(1)
            rig.ends_wipe = None
            stay = stay_of("m0", 1)
            await site.tell(stay)
            await site.expect(MachineBooted, "m0")
            first = config_of(rig)

            # then it gets the arguments and the token of this cluster, as they are now
            named = {"zone": ZONE, "machine": "m0", "kernelArguments": ARGUMENTS}
            document = {**named, "org": ORG, "cluster": CLUSTER, "joinToken": JOIN}
            assert await get(first) == (HTTPStatus.OK, document)
            site.join_token.write_text("a-new-token")
            assert await get(first) == (HTTPStatus.OK, {**document, "joinToken": "a-new-token"})
            site.join_token.write_text(f"{JOIN}\n{JOIN}")
            status, answer = await get(first)
            assert status == HTTPStatus.SERVICE_UNAVAILABLE
            assert answer == {"error": "no join token; try again"}
            assert JOIN not in answer["error"]
            site.join_token.write_text(JOIN)
            await refuses_forgeries(site, first)

            # when its stay is over and it has booted to be wiped, the first address gives nothing
            await site.tell(registered(stay), deleted(stay))
            await site.until(lambda: "wipe" in rig.booted[-1])
            over = (HTTPStatus.CONFLICT, {"error": "this boot is over"})
            assert await get(first) == over

            # then the wipe gets the address of its report, and no token
            wiping = config_of(rig)
            report = URL(rig.booted[-1]).query["report"]
            wanted = {**named, "kernelArguments": [], "report": report}
            assert await get(wiping) == (HTTPStatus.OK, wanted)
            rig.end_wipe()
            await site.expect(MachineWiped, "m0", assignment=1)

            # and nothing once the process knows of the end that it has stored
            async def is_over() -> bool:
                return await get(wiping) == over

            await until(is_over)

        site.check_secrets("a-new-token", URL(first).name, URL(report).name)


async def refuses_forgeries(site: Site, address: str) -> None:
    """Nobody who does not know the key can make the address of a configuration."""
    other = Addresses(site.report_url, "another key, which is as long as it has to be")
    for forged in (
        address[:-1] + ("0" if address[-1] != "0" else "1"),
        address.replace("/m0/", "/m1/"),
        address.replace("/m0/3/", "/m0/4/"),
        other.sign(config_path(ZONE, "m0", 3)),
    ):
        refused = (HTTPStatus.FORBIDDEN, {"error": "no boot has this address"})
        assert await get(forged) == refused
    # This replica may not yet know a request that another one has sent.
    soon = Addresses(site.report_url, KEY).sign(config_path(ZONE, "m0", 4))
    assert await get(soon) == (HTTPStatus.SERVICE_UNAVAILABLE, {"error": "not ready; try again"})


@pytest.mark.parametrize(
    ("content", "port", "cause"),
    [
        (None, "", "cannot read {file}: No such file or directory"),
        (f"{JOIN}\n{JOIN}", "", "{file} holds more than one line"),
        (JOIN, "-1", "set NODEPOOL_METAL_REPORT_PORT"),
    ],
)
async def test_a_machine_that_could_not_join_is_not_powered_on(
    machines: Emulator,
    tmp_path: Path,
    content: str | None,
    port: str,
    cause: str,
) -> None:
    async with a_site(machines, tmp_path, 1) as site:
        configure(site)
        site.join_token.unlink()
        if content is not None:
            site.join_token.write_text(content)
        with site.process(metal_report_port=port or str(site.report_port)):
            await site.expect(MachineAdded, "m0")
            await site.tell(stay_of("m0", 1))
            failed = await site.expect(MachineFailed, "m0")

        assert cause.format(file=site.join_token) in failed.cause
        assert site.rigs["m0"].front.resets == []


async def test_join_tokens_pass_in_clear_text_only_if_the_network_of_boots_is_trusted(
    machines: Emulator, tmp_path: Path
) -> None:
    async with a_site(machines, tmp_path, 1) as site:
        # given a profile whose image, and with it the join token, comes over http://
        site.boots = [{"image": "http://boot.test/node.efi?config={config}"}]
        site.declare()

        # then the process refuses the inventory, and names the field and the fix
        with site.process() as process:
            await until(lambda: "image: must begin with https://" in readiness(process))
            assert "NODEPOOL_METAL_TRUST_BOOT_NETWORK=on" in readiness(process)

        # and a process whose network is trusted uses it
        with site.process(metal_trust_boot_network="on"):
            await site.expect(MachineAdded, "m0")


async def test_a_controller_that_quotes_an_address_tells_it_to_nobody(
    machines: Emulator, tmp_path: Path
) -> None:
    async with a_site(machines, tmp_path, 1) as site:
        configure(site)
        site.rigs["m0"].front.refuses_boot = True
        with site.process():
            await site.expect(MachineAdded, "m0")
            await site.tell(stay_of("m0", 1))
            failed = await site.expect(MachineFailed, "m0")

        assert "***" in failed.cause
        made = [Addresses("", KEY).sign(config_path(ZONE, "m0", each)) for each in range(4)]
        site.check_secrets(*(URL(each).name[:32] for each in made))
