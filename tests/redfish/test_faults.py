"""Each fault of a controller becomes one value that says which fault it is, and tells no secret."""

import asyncio
from pathlib import Path

import pytest

from metal.host.redfish.controllers import Controllers
from metal.host.redfish.limits import Limits
from metal.inventory.model import Reference
from metal.reading import ALL_PARTS, BootTarget, Part, Reading
from metal.replies import Failure, Trouble
from nodepool.contract.real_machines import Power
from redfish.emulator import Emulator
from redfish.front import ENVIRONMENT, SECRETS, fronted
from support.loopback import listening
from testbed.ports import free_port

QUICK = Limits(connect_s=2, request_s=2, call_s=20, pause_least_s=0, pause_most_s=0)
"""Limits within which a test does not wait long for a controller that does not answer."""


def assert_fails(found: Reading | Failure | None, trouble: Trouble, text: str) -> None:
    """A call failed in this way, and its text has these words and no secret."""
    assert isinstance(found, Failure)
    assert found.trouble is trouble
    assert text in found.text
    assert found.text.isprintable()
    assert [secret for secret in SECRETS if secret in repr(found)] == []


async def test_a_controller_without_power_is_unreachable(
    machines: Emulator, controllers: Controllers
) -> None:
    async with fronted(machines.machine()) as front:
        place = front.place(address=f"http://127.0.0.1:{free_port()}")

        failure = await controllers.open(place).read()

    assert_fails(failure, Trouble.UNREACHABLE, "for POST /redfish/v1/SessionService/Sessions")


async def test_a_silent_controller_times_out(machines: Emulator) -> None:
    async with fronted(machines.machine()) as front, Controllers(QUICK, ENVIRONMENT) as quick:
        front.held = {front.machine.id}

        failure = await quick.open(front.place()).read()

        text = f"there was no whole answer to GET {front.path} in time"
        assert_fails(failure, Trouble.TIMED_OUT, text)


async def test_a_controller_that_drips_its_answer_times_out(machines: Emulator) -> None:
    async with fronted(machines.machine(), drips=True) as front:
        front.content["/redfish/v1/"] = b" " * 10_000
        async with Controllers(QUICK, ENVIRONMENT) as quick:
            failure = await quick.open(front.place()).read()

        assert_fails(failure, Trouble.TIMED_OUT, "there was no whole answer to GET /redfish/v1/")


@pytest.mark.parametrize(("parts", "seconds"), [(ALL_PARTS, 3), (frozenset[Part](), 2)])
async def test_all_requests_of_a_reading_have_one_bound_together(
    machines: Emulator, parts: frozenset[Part], seconds: int
) -> None:
    limits = Limits(call_s=2, parts_s=3, request_s=60, pause_least_s=0, pause_most_s=0)
    async with fronted(machines.machine()) as front, Controllers(limits, ENVIRONMENT) as opened:
        front.held = {front.machine.id}

        failure = await opened.open(front.place()).read(parts)

        assert_fails(failure, Trouble.TIMED_OUT, f"not all was answered within {seconds} s")


@pytest.mark.parametrize("status", [500, 502, 503])
async def test_a_controller_that_is_being_updated_answers_with_an_error(
    machines: Emulator, controllers: Controllers, status: int
) -> None:
    async with fronted(machines.machine()) as front:
        controller = controllers.open(front.place())
        front.status[front.machine.id] = status

        assert_fails(await controller.read(), Trouble.SERVER_ERROR, f"was answered with {status}")

        front.status.clear()
        assert isinstance(await controller.read(), Reading)


async def test_an_error_at_login_is_an_error_of_the_controller(
    machines: Emulator, controllers: Controllers
) -> None:
    async with fronted(machines.machine()) as front:
        front.status["/Sessions"] = 503

        failure = await controllers.open(front.place()).read()

        assert_fails(failure, Trouble.SERVER_ERROR, "was answered with 503: *** of *** is not")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"<html>",
        b"[]",
        b"[" * 100_000,
        b"1" * 10_000,
        b'{"PowerState": 7}',
        b"\xff\xfe",
        b'{"PowerState": "On"',
    ],
    ids=range(8),
)
async def test_an_answer_that_is_no_redfish_is_nonsense(
    machines: Emulator, controllers: Controllers, content: bytes
) -> None:
    async with fronted(machines.machine()) as front:
        front.content[front.machine.id] = content

        failure = await controllers.open(front.place()).read()

        assert_fails(failure, Trouble.NONSENSE, front.path)


async def test_an_answer_that_is_no_http_is_nonsense(
    machines: Emulator, controllers: Controllers
) -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"SSH-2.0-OpenSSH_9.2\r\n" * 10)
        await writer.drain()

    async with fronted(machines.machine()) as front, listening(greet) as port:
        place = front.place(address=f"http://127.0.0.1:{port}")

        failure = await controllers.open(place).read()

        assert_fails(failure, Trouble.NONSENSE, "is no HTTP")


async def test_endless_headers_are_nonsense(machines: Emulator, controllers: Controllers) -> None:
    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 200 OK\r\nX: ")
        while True:
            writer.write(b"x" * 65_536)
            await writer.drain()

    async with fronted(machines.machine()) as front, listening(flood) as port:
        place = front.place(address=f"http://127.0.0.1:{port}")

        failure = await controllers.open(place).read()

        assert_fails(failure, Trouble.NONSENSE, "is no HTTP")


async def test_an_answer_that_is_too_large_is_not_read_to_its_end(machines: Emulator) -> None:
    async with fronted(machines.machine()) as front:
        front.content[front.machine.id] = b" " * 10_000_000
        limits = Limits(answer_bytes=10_000)
        async with Controllers(limits, ENVIRONMENT) as controllers:
            failure = await controllers.open(front.place()).read()

        assert_fails(failure, Trouble.NONSENSE, "has more than 10000 bytes")


@pytest.mark.parametrize("side", ["breaks_before", "breaks_after"])
async def test_a_connection_that_breaks_is_unreachable(
    machines: Emulator, controllers: Controllers, side: str
) -> None:
    async with fronted(machines.machine()) as front:
        setattr(front, side, {"GET"})
        failure = await controllers.open(front.place()).read()

    assert_fails(failure, Trouble.UNREACHABLE, "the connection broke during GET /redfish/v1/")


async def test_a_change_of_the_boot_during_which_the_connection_breaks_says_so(
    machines: Emulator, controllers: Controllers
) -> None:
    async with fronted(machines.machine(), breaks_after={"PATCH"}) as front:
        failure = await controllers.open(front.place()).set_boot(BootTarget.PXE)

        assert_fails(failure, Trouble.UNREACHABLE, f"broke during PATCH {front.path}")
        assert front.received.count(f"PATCH {front.path}") == 1


async def test_a_wrong_power_state_is_what_is_read(
    machines: Emulator, controllers: Controllers
) -> None:
    async with fronted(machines.machine()) as front:
        front.changes[front.machine.id] = lambda system: system.update(PowerState="On")

        reading = await controllers.open(front.place()).read()

        assert isinstance(reading, Reading)
        assert reading.power is Power.ON


@pytest.mark.parametrize(
    ("reference", "text"),
    [
        (Reference(environment="NOBODY_SET_THIS"), "the variable NOBODY_SET_THIS is not set"),
        (Reference(environment="HALF"), "the variable HALF must hold user:password in one line"),
        (Reference(file="/nowhere/login"), "cannot read /nowhere/login: No such file"),
    ],
)
async def test_a_credential_that_cannot_be_read_is_named_and_nothing_is_sent(
    machines: Emulator, reference: Reference, text: str
) -> None:
    environment = {"HALF": "correct-horse"}
    async with fronted(machines.machine()) as front, Controllers(QUICK, environment) as opened:
        failure = await opened.open(front.place(credentials=reference)).read()

        assert_fails(failure, Trouble.NO_CREDENTIAL, text)
        assert front.received == []


async def test_a_file_of_several_lines_is_no_credential(
    machines: Emulator, controllers: Controllers, tmp_path: Path
) -> None:
    file = tmp_path / "login"
    file.write_text(f"{SECRETS[0]}\n{SECRETS[1]}\n")
    async with fronted(machines.machine()) as front:
        place = front.place(credentials=Reference(file=str(file)))

        failure = await controllers.open(place).read()

    assert_fails(failure, Trouble.NO_CREDENTIAL, "holds more than one line; it must hold one line")
