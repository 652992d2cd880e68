"""The end of a wipe is believed only from the boot that was asked for it."""

import asyncio
import json
from http import HTTPStatus
from pathlib import Path
from urllib.parse import quote

import aiohttp
import pytest
from yarl import URL

from bus.harness import PATIENCE_S, until
from conformance.requests import deleted, registered, stay_of
from metal.host.addresses import Addresses
from metal.host.boot_server import BODY_MAX, CLIENTS_MAX
from nodepool.contract.events import (
    MachineBooted,
    MachineStateChanged,
    MachineWiped,
    PowerRequested,
    WipeEnded,
)
from nodepool.local.ports import HOST
from redfish.audit import audit
from redfish.emulator import Emulator
from redfish.site import KEY, Site, a_site
from support.constants import ZONE

REQUEST = PowerRequested(
    zone=ZONE, machine="m0", number=5, action="on", within_s=1, boot_from="wipe", wipe=2, reason="r"
)
WELL = {"passed": True}


async def post(address: str, content: object) -> int:
    """The status of the answer to a report."""
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    async with aiohttp.ClientSession() as session, session.post(address, data=body) as answer:
        return answer.status


async def being_wiped(site: Site) -> str:
    """The address at which the wipe of m0 after its first stay reports, once it has booted."""
    rig = site.rigs["m0"]
    await site.until_free(1)
    rig.ends_wipe = None
    stay = stay_of("m0", 1)
    await site.tell(stay)
    await site.expect(MachineBooted, "m0")
    await site.tell(registered(stay), deleted(stay))
    await until(lambda: "wipe" in rig.booted[-1])
    return URL(rig.booted[-1]).query["report"]


async def test_only_the_boot_of_a_wipe_tells_its_end_and_once(
    machines: Emulator, tmp_path: Path
) -> None:
    async with a_site(machines, tmp_path, 1, wipes=True) as site:
        with site.process():
            address = await being_wiped(site)
            wrong = Addresses(site.report_url, "another key, which is as long as it has to be")
            for forged in (
                address[:-1] + ("0" if address[-1] != "0" else "1"),
                address.replace("/m0/", "/m1/"),
                address.replace("/2/5/", "/3/5/"),
                address.replace("/2/5/", "/2/6/"),
                URL(wrong.fill("http://x?report={report}", REQUEST)).query["report"],
            ):
                assert await post(forged, WELL) == HTTPStatus.FORBIDDEN
            earlier = REQUEST.model_copy(update={"number": 4})
            own = Addresses(site.report_url, KEY)
            late = URL(own.fill("http://x?report={report}", earlier)).query["report"]
            assert await post(late, WELL) == HTTPStatus.CONFLICT
            for wrong_content in (b"", b"[]", {"passed": "yes"}, {"cause": "c"}, {**WELL, "x": 1}):
                assert await post(address, wrong_content) == HTTPStatus.BAD_REQUEST
            too_large = await post(address, b" " * (BODY_MAX + 1))
            assert too_large == HTTPStatus.REQUEST_ENTITY_TOO_LARGE
            await site.read()
            assert len(site.said(WipeEnded)) == 1

            assert await post(address, WELL) == HTTPStatus.NO_CONTENT
            await site.expect(MachineWiped, "m0", assignment=1)
            assert await post(address, WELL) in (HTTPStatus.NO_CONTENT, HTTPStatus.CONFLICT)

        assert len(site.said(WipeEnded)) == 2
        audit(site)


async def test_clients_that_say_nothing_take_no_more_than_their_share(
    machines: Emulator, tmp_path: Path
) -> None:
    async with a_site(machines, tmp_path, 1, wipes=True) as site:
        with site.process():
            address = await being_wiped(site)
            silent = [
                await asyncio.open_connection(HOST, site.report_port)
                for _ in range(CLIENTS_MAX + 1)
            ]
            async with asyncio.timeout(PATIENCE_S):
                assert await silent[0][0].read() == b""

            assert await post(address, WELL) == HTTPStatus.NO_CONTENT
            await site.expect(MachineWiped, "m0", assignment=1)
            for _, writer in silent:
                writer.close()
        audit(site)


async def test_a_wipe_that_fails_keeps_its_machine_out_of_service(
    machines: Emulator, tmp_path: Path
) -> None:
    async with a_site(machines, tmp_path, 1, wipes=True) as site:
        with site.process():
            address = await being_wiped(site)
            content = {"passed": False, "cause": "the disk nvme3 cannot be erased"}
            assert await post(address, content) == HTTPStatus.NO_CONTENT
            failed = await site.expect(MachineStateChanged, "m0", state="zap-fail")

        assert failed.cause == "its wipe has failed: the disk nvme3 cannot be erased"
        assert site.said(MachineWiped, assignment=1) == []


@pytest.mark.parametrize("image", ["http://boot/wipe.efi", "http://boot/{other}"])
def test_an_image_without_the_placeholder_stays_as_it_is(image: str) -> None:
    assert Addresses("http://metal", KEY).fill(image, REQUEST) == image


def test_the_address_of_a_report_is_quoted_in_that_of_the_image() -> None:
    filled = Addresses("http://metal", KEY).fill("http://boot/wipe.efi?report={report}", REQUEST)

    address = f"http://metal/wipes/{ZONE}/m0/2/5/"
    assert filled.startswith(f"http://boot/wipe.efi?report={quote(address, safe='')}")
    assert KEY not in filled
