"""The process of real machines trusts a controller by its certificate, or sends it nothing."""

from contextlib import AsyncExitStack
from pathlib import Path

from nodepool.contract.events import ControllerSilent, MachineAdded, MachineConditionChanged
from redfish.audit import audit
from redfish.emulator import Emulator
from redfish.front import fronted
from redfish.site import a_site
from support.certificates import Certificates, certificates, needs_openssl

pytestmark = needs_openssl
OTHER = "sha256:" + "ab" * 32


def made(folder: Path) -> Certificates:
    """A certificate of an authority of its own."""
    folder.mkdir()
    return certificates(folder)


async def test_a_controller_that_is_not_trusted_is_a_condition_and_learns_no_credentials(
    machines: Emulator, tmp_path: Path
) -> None:
    own, other = made(tmp_path / "own"), made(tmp_path / "other")
    async with AsyncExitStack() as stack, a_site(machines, tmp_path, 0) as site:
        # given controllers with one certificate, two of which the inventory does not trust
        trust = (
            {"fingerprint": f"sha256:{own.fingerprint}"},
            {"caFile": str(own.ca)},
            {"fingerprint": OTHER},
            {"caFile": str(other.ca)},
        )
        for each in trust:
            front = await stack.enter_async_context(fronted(machines.machine(), own.tls))
            site.add(front).trust = each
        site.declare()
        with site.process():
            # then two machines are added, and the others have a condition that names TLS
            await site.expect(MachineAdded, "m0")
            await site.expect(MachineAdded, "m1")
            pinned = await site.expect(ControllerSilent, "m2")
            signed = await site.expect(ControllerSilent, "m3")
            found = f"its certificate is sha256:{own.fingerprint}"
            assert pinned.cause == f"Untrusted: {found}, not the pinned one"
            assert signed.cause.startswith("Untrusted: its certificate is not trusted: ")
            for machine in ("m2", "m3"):
                silent = await site.expect(
                    MachineConditionChanged, machine, type="ControllerSilent", status=True
                )
                assert silent.message.startswith("Untrusted: its certificate is")
                # and their controllers were sent no request, so no credentials
                assert site.rigs[machine].front.received == []

            # when the inventory trusts them, they are added too
            site.rigs["m2"].trust, site.rigs["m3"].trust = trust[:2]
            site.declare()
            await site.expect(MachineAdded, "m2")
            await site.expect(MachineAdded, "m3")

        audit(site)
