"""Which certificates of controllers are trusted; others are sent nothing."""

from pathlib import Path

import pytest

from metal.host.redfish.controllers import Controllers
from metal.host.redfish.trust import trust_of
from metal.reading import Reading
from metal.replies import Failure, Trouble
from redfish.emulator import Emulator
from redfish.front import fronted
from support.certificates import Certificates, certificates, needs_openssl

pytestmark = needs_openssl
OTHER = "ab" * 32


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """The certificate of a controller, and its authority."""
    return certificates(tmp_path_factory.mktemp("controller"))


async def test_a_certificate_of_a_trusted_authority_is_trusted(
    machines: Emulator, controllers: Controllers, made: Certificates
) -> None:
    async with fronted(machines.machine(), made.tls) as front:
        reading = await controllers.open(front.place(ca_file=str(made.ca))).read()

    assert isinstance(reading, Reading)


async def test_a_certificate_with_the_pinned_fingerprint_is_trusted(
    machines: Emulator, controllers: Controllers, made: Certificates
) -> None:
    async with fronted(machines.machine(), made.tls) as front:
        reading = await controllers.open(front.place(fingerprint=made.fingerprint)).read()

    assert isinstance(reading, Reading)


async def test_a_certificate_of_another_authority_is_not_trusted_and_nothing_is_sent(
    machines: Emulator, controllers: Controllers, made: Certificates, tmp_path: Path
) -> None:
    other = certificates(tmp_path)
    async with fronted(machines.machine(), made.tls) as front:
        failure = await controllers.open(front.place(ca_file=str(other.ca))).read()

        assert_untrusted(failure, "its certificate is not trusted: ")
        assert front.received == []


async def test_a_certificate_for_another_host_is_not_trusted(
    machines: Emulator, controllers: Controllers, tmp_path: Path
) -> None:
    other = certificates(tmp_path, "DNS:bmc.example")
    async with fronted(machines.machine(), other.tls) as front:
        failure = await controllers.open(front.place(ca_file=str(other.ca))).read()

        assert_untrusted(failure, "IP address mismatch")
        assert front.received == []


async def test_a_certificate_with_another_fingerprint_is_not_trusted_and_nothing_is_sent(
    machines: Emulator, controllers: Controllers, made: Certificates
) -> None:
    async with fronted(machines.machine(), made.tls) as front:
        failure = await controllers.open(front.place(fingerprint=OTHER)).read()

        text = f"its certificate is sha256:{made.fingerprint}, not the pinned"
        assert_untrusted(failure, text)
        assert front.received == []


async def test_a_connection_to_one_controller_is_not_used_for_another_pin(
    machines: Emulator, controllers: Controllers, made: Certificates
) -> None:
    async with fronted(machines.machine(), made.tls) as front:
        await controllers.open(front.place(fingerprint=made.fingerprint)).read()
        front.received.clear()

        failure = await controllers.open(front.place(fingerprint=OTHER)).read()

        assert_untrusted(failure, "not the pinned one")
        assert front.received == []


async def test_a_controller_that_speaks_no_tls_is_not_trusted(
    machines: Emulator, controllers: Controllers, made: Certificates
) -> None:
    async with fronted(machines.machine()) as front:
        address = front.place().address.replace("http:", "https:")

        failure = await controllers.open(front.place(address=address, ca_file=str(made.ca))).read()

        assert_untrusted(failure, "it speaks no TLS that can be checked")


@pytest.mark.parametrize(
    ("content", "text"),
    [(None, "cannot read"), ("no certificate", "holds no certificates in PEM")],
)
async def test_authorities_that_cannot_be_read_are_named(
    machines: Emulator,
    controllers: Controllers,
    tmp_path: Path,
    content: str | None,
    text: str,
) -> None:
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_text(content)
    async with fronted(machines.machine()) as front:
        place = front.place(address="https://127.0.0.1:1", ca_file=str(file))

        failure = await controllers.open(place).read()

    assert_untrusted(failure, text)
    assert isinstance(failure, Failure)
    assert str(file) in failure.text


async def test_one_connection_serves_a_reading_whatever_its_certificate_is_checked_by(
    machines: Emulator, controllers: Controllers, made: Certificates
) -> None:
    for checks in ({"ca_file": str(made.ca)}, {"fingerprint": made.fingerprint}):
        async with fronted(machines.machine(), made.tls) as front:
            controller = controllers.open(front.place(**checks))

            await controller.read()
            await controller.read()

            assert len(front.connections) == 1


async def test_authorities_are_read_again_after_they_were_not_the_right_ones(
    machines: Emulator, controllers: Controllers, made: Certificates, tmp_path: Path
) -> None:
    file = tmp_path / "trusted.pem"
    file.write_bytes(certificates(tmp_path).ca.read_bytes())
    async with fronted(machines.machine(), made.tls) as front:
        controller = controllers.open(front.place(ca_file=str(file)))
        assert_untrusted(await controller.read(), "its certificate is not trusted")

        file.write_bytes(made.ca.read_bytes())

        assert isinstance(await controller.read(), Reading)


async def test_thousands_of_controllers_share_what_their_authority_is_checked_by(
    machines: Emulator, made: Certificates
) -> None:
    async with fronted(machines.machine()) as one, fronted(machines.machine()) as other:
        places = [front.place(ca_file=str(made.ca)) for front in (one, other)]

    assert trust_of(places[0]) is trust_of(places[1])


def assert_untrusted(found: Reading | Failure, text: str) -> None:
    """A controller was not trusted, for this reason."""
    assert isinstance(found, Failure)
    assert found.trouble is Trouble.UNTRUSTED
    assert text in found.text
