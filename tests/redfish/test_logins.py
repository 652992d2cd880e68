"""Sessions with controllers: begun once, renewed after a change of the credential, ended."""

import asyncio
from pathlib import Path

import pytest

from metal.host.redfish.controllers import Controllers
from metal.host.redfish.credentials import Credential
from metal.host.redfish.limits import Limits
from metal.inventory.model import Reference
from metal.reading import Part, Reading
from metal.replies import Failure, Trouble
from redfish.emulator import Emulator
from redfish.front import ENVIRONMENT, PASSWORD, SECRETS, SESSIONS, USER, fronted

NO_PARTS: frozenset[Part] = frozenset()
NEW = "new-horse"


def login_file(folder: Path) -> Path:
    """A file with the credential of the tests."""
    file = folder / "login"
    file.write_text(f"{USER}:{PASSWORD}\n")
    return file


async def test_one_session_serves_all_readings_and_ends_with_the_program(
    machines: Emulator,
) -> None:
    async with fronted(machines.machine()) as front:
        async with Controllers(Limits(), ENVIRONMENT) as controllers:
            controller = controllers.open(front.place())
            await asyncio.gather(*(controller.read(NO_PARTS) for _ in range(5)))
            assert len(front.tokens) == front.logins == 1

        assert front.tokens == {}
        assert front.received[-1] == f"DELETE {SESSIONS}/1"


async def test_the_session_of_a_machine_that_leaves_the_inventory_ends(
    machines: Emulator, controllers: Controllers
) -> None:
    async with fronted(machines.machine()) as front:
        controller = controllers.open(front.place())
        await controller.read(NO_PARTS)

        await controllers.close(controller)

        assert front.tokens == {}


async def test_a_controller_that_never_answers_does_not_keep_the_program_from_ending(
    machines: Emulator,
) -> None:
    async with fronted(machines.machine()) as front:
        limits = Limits(closing_s=0.2, request_s=60)
        async with Controllers(limits, ENVIRONMENT) as controllers:
            await controllers.open(front.place()).read(NO_PARTS)
            front.held = {f"{SESSIONS}/1"}

        assert len(front.tokens) == 1


async def test_a_controller_without_sessions_gets_the_credential_with_each_request(
    machines: Emulator, controllers: Controllers
) -> None:
    async with fronted(machines.machine(), has_sessions=False) as front:
        controller = controllers.open(front.place())

        assert isinstance(await controller.read(NO_PARTS), Reading)
        assert isinstance(await controller.read(NO_PARTS), Reading)

        assert front.received.count(f"POST {SESSIONS}") == 1


async def test_a_session_that_the_controller_has_ended_is_begun_again(
    machines: Emulator, controllers: Controllers
) -> None:
    async with fronted(machines.machine()) as front:
        controller = controllers.open(front.place())
        await controller.read(NO_PARTS)
        front.tokens.clear()

        assert isinstance(await controller.read(NO_PARTS), Reading)
        assert front.logins == 2


async def test_a_credential_that_has_changed_is_read_again(
    machines: Emulator, controllers: Controllers, tmp_path: Path
) -> None:
    for has_sessions in (True, False):
        file = login_file(tmp_path)
        async with fronted(machines.machine(), has_sessions=has_sessions) as front:
            place = front.place(credentials=Reference(file=str(file)))
            controller = controllers.open(place)
            await controller.read(NO_PARTS)

            front.password = NEW
            file.write_text(f"{USER}:{NEW}\n")

            assert isinstance(await controller.read(NO_PARTS), Reading)


async def test_a_wrong_credential_is_offered_once_per_call_so_that_no_account_is_locked(
    machines: Emulator, controllers: Controllers
) -> None:
    for has_sessions, offers in ((True, f"POST {SESSIONS}"), (False, "GET /redfish/v1/")):
        async with fronted(machines.machine(), has_sessions=has_sessions) as front:
            front.password = NEW
            if not has_sessions:
                front.status[SESSIONS] = 404
            failure = await controllers.open(front.place()).read(NO_PARTS)

            assert isinstance(failure, Failure)
            assert failure.trouble is Trouble.UNAUTHORIZED
            assert "was answered with 401" in failure.text
            assert [secret for secret in SECRETS if secret in failure.text] == []
            assert front.received.count(offers) == 1


async def test_a_credential_that_is_mended_works_from_the_next_call_on(
    machines: Emulator, controllers: Controllers, tmp_path: Path
) -> None:
    file = login_file(tmp_path)
    async with fronted(machines.machine(), password=NEW) as front:
        controller = controllers.open(front.place(credentials=Reference(file=str(file))))
        assert isinstance(await controller.read(NO_PARTS), Failure)

        file.write_text(f"{USER}:{NEW}\n")

        assert isinstance(await controller.read(NO_PARTS), Reading)


@pytest.mark.parametrize("token", ["", "x" * 5_000, "tö"])
async def test_a_session_without_a_token_that_can_be_one_is_nonsense(
    machines: Emulator, controllers: Controllers, token: str
) -> None:
    async with fronted(machines.machine(), token=token) as front:
        failure = await controllers.open(front.place()).read(NO_PARTS)

        assert isinstance(failure, Failure)
        assert failure.trouble is Trouble.NONSENSE
        assert len(front.received) == 1


async def test_the_session_of_a_controller_that_has_failed_is_left_to_end_by_itself(
    machines: Emulator, controllers: Controllers
) -> None:
    async with fronted(machines.machine()) as front:
        controller = controllers.open(front.place())
        await controller.read(NO_PARTS)
        front.status[front.machine.id] = 503
        await controller.read(NO_PARTS)
        front.received.clear()

        await controllers.close(controller)

        assert front.received == []


def test_a_credential_is_not_shown_by_its_representation() -> None:
    assert repr(Credential(USER, PASSWORD)) == "Credential()"
