"""A reset is sent at most once, and its outcome says no more than is known."""

import asyncio

import pytest

from metal.host.redfish.controllers import Controllers
from metal.host.redfish.limits import Limits
from metal.reading import ResetType
from metal.replies import Done, Failure, Refused, Trouble, Unknown
from redfish.emulator import Emulator
from redfish.front import ENVIRONMENT, SECRETS, fronted
from testbed.ports import free_port

RESET = "/Actions/ComputerSystem.Reset"


@pytest.mark.parametrize("kind", list(ResetType))
async def test_a_reset_is_sent_once_and_done(
    machines: Emulator, controllers: Controllers, kind: ResetType
) -> None:
    async with fronted(machines.machine()) as front:
        assert await controllers.open(front.place()).reset(kind) == Done()

        assert front.resets == front.carried_out == [kind.value]


async def test_a_connection_that_breaks_before_the_reset_is_carried_out_leaves_it_unknown(
    machines: Emulator, controllers: Controllers
) -> None:
    async with fronted(machines.machine()) as front:
        # The session is begun with a POST too.
        controller = controllers.open(front.place())
        await controller.read()
        front.breaks_before = {"POST"}

        outcome = await controller.reset(ResetType.ON)

        assert_unknown(outcome, Trouble.UNREACHABLE, f"broke during POST {front.path}{RESET}")
        assert (front.resets, front.carried_out) == (["On"], [])


async def test_a_connection_that_breaks_after_the_reset_is_carried_out_leaves_it_unknown(
    machines: Emulator, controllers: Controllers
) -> None:
    async with fronted(machines.machine()) as front:
        controller = controllers.open(front.place())
        await controller.read()
        front.breaks_after = {"POST"}

        outcome = await controller.reset(ResetType.FORCE_OFF)

        assert_unknown(outcome, Trouble.UNREACHABLE, "the connection broke during POST")
        assert front.resets == front.carried_out == ["ForceOff"]


async def test_a_reset_that_is_not_answered_is_unknown_and_not_sent_again(
    machines: Emulator,
) -> None:
    limits = Limits(connect_s=2, request_s=2, pause_least_s=0, pause_most_s=0)
    async with fronted(machines.machine()) as front, Controllers(limits, ENVIRONMENT) as opened:
        front.held = {RESET}

        outcome = await opened.open(front.place()).reset(ResetType.ON)

        assert_unknown(outcome, Trouble.TIMED_OUT, f"POST {front.path}{RESET}")
        assert front.resets == ["On"]


@pytest.mark.parametrize("status", [500, 503])
async def test_a_reset_that_is_answered_with_an_error_of_the_controller_is_unknown(
    machines: Emulator, controllers: Controllers, status: int
) -> None:
    async with fronted(machines.machine()) as front:
        front.status[RESET] = status

        outcome = await controllers.open(front.place()).reset(ResetType.ON)

        assert_unknown(outcome, Trouble.SERVER_ERROR, f"was answered with {status}")
        assert (front.resets, front.carried_out) == (["On"], [])


@pytest.mark.parametrize("status", [307, 400, 404, 409, 501])
async def test_a_reset_that_the_controller_turns_down_is_refused(
    machines: Emulator, controllers: Controllers, status: int
) -> None:
    async with fronted(machines.machine()) as front:
        front.status[RESET] = status

        outcome = await controllers.open(front.place()).reset(ResetType.ON)

        assert_refused(outcome, Trouble.REFUSED, f"was answered with {status}")
        assert (front.resets, front.carried_out) == (["On"], [])


async def test_a_reset_after_which_the_content_is_nonsense_is_done(
    machines: Emulator, controllers: Controllers
) -> None:
    async with fronted(machines.machine()) as front:
        front.content[RESET] = b"<html>accepted</html>"

        assert await controllers.open(front.place()).reset(ResetType.ON) == Done()


async def test_a_reset_with_a_session_that_has_ended_is_refused_and_the_next_one_is_done(
    machines: Emulator, controllers: Controllers
) -> None:
    async with fronted(machines.machine()) as front:
        front.status[RESET] = 401
        controller = controllers.open(front.place())

        outcome = await controller.reset(ResetType.ON)

        assert_refused(outcome, Trouble.UNAUTHORIZED, "was answered with 401")
        front.status.clear()
        assert await controller.reset(ResetType.ON) == Done()
        assert front.resets == ["On", "On"]
        assert front.carried_out == ["On"]
        assert front.logins == 2


async def test_a_session_that_ended_before_a_reset_costs_no_reset(
    machines: Emulator, controllers: Controllers
) -> None:
    async with fronted(machines.machine()) as front:
        controller = controllers.open(front.place())
        await controller.read()
        front.tokens.clear()

        assert await controller.reset(ResetType.ON) == Done()

        assert front.resets == ["On"]


async def test_a_reset_of_a_controller_that_is_gone_is_refused(
    machines: Emulator, controllers: Controllers
) -> None:
    async with fronted(machines.machine()) as front:
        place = front.place(address=f"http://127.0.0.1:{free_port()}")

        outcome = await controllers.open(place).reset(ResetType.ON)

    assert_refused(outcome, Trouble.UNREACHABLE, "for POST")


async def test_a_connection_that_breaks_before_the_reset_is_sent_refuses_it(
    machines: Emulator, controllers: Controllers
) -> None:
    async with fronted(machines.machine(), breaks_before={"GET"}) as front:
        outcome = await controllers.open(front.place()).reset(ResetType.ON)

        assert_refused(outcome, Trouble.UNREACHABLE, "the connection broke during GET")
        assert front.resets == []


async def test_a_reset_that_is_not_offered_is_refused_and_not_sent(
    machines: Emulator, controllers: Controllers
) -> None:
    async with fronted(machines.machine()) as front:
        offer = {"#ComputerSystem.Reset": {"ResetType@Redfish.AllowableValues": ["On"]}}
        front.changes[front.machine.id] = lambda system: system.update(Actions=offer)

        outcome = await controllers.open(front.place()).reset(ResetType.GRACEFUL_SHUTDOWN)

        text = "the controller does not offer GracefulShutdown; it offers On"
        assert outcome == Refused(Failure(Trouble.REFUSED, text))
        assert front.resets == []


async def test_a_reset_in_a_pause_is_refused_and_not_sent(machines: Emulator) -> None:
    async with fronted(machines.machine()) as front, Controllers(Limits(), ENVIRONMENT) as opened:
        controller = opened.open(front.place())
        front.status[front.machine.id] = 503
        await controller.read()
        front.status.clear()

        outcome = await controller.reset(ResetType.ON)

        assert_refused(outcome, Trouble.SERVER_ERROR, "was answered with 503")
        assert front.resets == []


async def test_a_reset_that_is_cancelled_in_the_middle_is_not_sent_again(
    machines: Emulator, controllers: Controllers
) -> None:
    async with fronted(machines.machine()) as front:
        front.held = {RESET}
        controller = controllers.open(front.place())
        reset = asyncio.create_task(controller.reset(ResetType.ON))
        await front.holds()

        reset.cancel()
        await asyncio.wait([reset])
        front.let_go()

        await controller.read()
        assert front.resets == ["On"]


async def test_a_reset_that_has_waited_for_its_turn_is_not_sent_if_it_must_not_be(
    machines: Emulator,
) -> None:
    class TooLate(Exception):
        """The caller does not want the reset any more."""

    late = False

    def check() -> None:
        if late:
            raise TooLate

    one = Limits(at_once=4, suspects=2, power=1, suspects_power=1)
    async with (
        Controllers(one, ENVIRONMENT) as controllers,
        fronted(machines.machine(), held={"/Sessions"}) as slow,
        fronted(machines.machine()) as front,
    ):
        # given a reset that waits because two other machines are slow to be reset
        others = [
            asyncio.create_task(controllers.open(slow.place()).reset(ResetType.ON))
            for _ in range(2)
        ]
        await slow.holds(2)
        reset = asyncio.create_task(controllers.open(front.place()).reset(ResetType.ON, check))
        await asyncio.sleep(0)

        # when it must not be sent any more once it is its turn
        late = True
        slow.let_go()

        # then it is not sent
        with pytest.raises(TooLate):
            await reset
        await asyncio.gather(*others)
        assert front.resets == []


async def test_two_resets_of_two_callers_are_two_resets(
    machines: Emulator, controllers: Controllers
) -> None:
    async with fronted(machines.machine()) as front:
        controller = controllers.open(front.place())

        await asyncio.gather(controller.reset(ResetType.ON), controller.reset(ResetType.ON))

        assert front.resets == ["On", "On"]
        assert front.logins == 1


def assert_unknown(outcome: object, trouble: Trouble, text: str) -> None:
    """Nobody knows what became of a reset, for this reason."""
    assert isinstance(outcome, Unknown)
    _assert_reason(outcome.reason, trouble, text)


def assert_refused(outcome: object, trouble: Trouble, text: str) -> None:
    """A reset was not carried out, for this reason."""
    assert isinstance(outcome, Refused)
    _assert_reason(outcome.reason, trouble, text)


def _assert_reason(reason: Failure, trouble: Trouble, text: str) -> None:
    assert reason.trouble is trouble
    assert text in reason.text
    assert [secret for secret in SECRETS if secret in reason.text] == []
