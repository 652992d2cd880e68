"""What an auditor in front of the machines has counted, under faults that come at random."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial
from random import Random

import pytest

from bus.harness import until
from metal.host.redfish.controller import Controller
from metal.host.redfish.controllers import Controllers
from metal.host.redfish.limits import Limits
from metal.reading import BootTarget, Reading, ResetType
from metal.replies import Done, Failure, Outcome, Refused, Unknown
from redfish.emulator import Emulator
from redfish.front import ENVIRONMENT, PASSWORD, SECRETS, Front, fronted

MACHINES = 6
ROUNDS = 10
LIMITS = Limits(connect_s=5, request_s=0.5, pause_least_s=0, pause_most_s=0)
RESET = "/ComputerSystem.Reset"


def inflict(front: Front, random: Random) -> None:
    """Have a controller one fault from now on, or none."""
    front.let_go()
    front.released = asyncio.Event()
    front.status, front.password = {}, PASSWORD
    front.breaks_before, front.breaks_after = set(), set()
    end = random.choice([RESET, front.machine.id, "/Sessions", "/redfish/v1/"])
    match random.randrange(8):
        case 0:
            front.status = {end: random.choice([307, 400, 401, 404, 500, 503])}
        case 1:
            front.breaks_before = {random.choice(["GET", "POST", "PATCH"])}
        case 2:
            front.breaks_after = {random.choice(["GET", "POST", "PATCH"])}
        case 3:
            front.held = {end}
        case 4:
            front.password = "another"
        case 5:
            front.tokens.clear()


async def run_rounds(
    front: Front, controller: Controller, random: Random
) -> Sequence[tuple[Outcome, Sequence[int]]]:
    """Send resets through faults; each outcome, with the numbers of the resets that arrived."""
    outcomes = []
    for _ in range(ROUNDS):
        inflict(front, random)
        arrived = len(front.resets)

        found = [await controller.read(), await controller.set_boot(BootTarget.PXE)]
        outcome = await controller.reset(random.choice([*ResetType]))

        assert all(isinstance(each, Reading | Failure | None) for each in found)
        assert [secret for secret in SECRETS if secret in repr((found, outcome))] == []
        outcomes.append((outcome, range(arrived, len(front.resets))))
    return outcomes


async def is_read(controller: Controller) -> bool:
    """Tells whether a controller answers a read in time."""
    return isinstance(await controller.read(), Reading)


def audit(front: Front, outcomes: Sequence[tuple[Outcome, Sequence[int]]]) -> None:
    """Compare what was said of each reset with what reached the machine, in the end."""
    assert len(set(front.effects)) == len(front.effects)
    for outcome, numbers in outcomes:
        effects = set(numbers) & set(front.effects)
        match outcome:
            case Done():
                assert len(numbers) == len(effects) == 1
            case Refused():
                assert len(numbers) <= 1
                assert not effects
            case Unknown():
                assert len(numbers) <= 1


@pytest.mark.parametrize("seed", range(3))
async def test_no_outcome_says_more_than_the_auditor_has_counted(
    machines: Emulator, seed: int
) -> None:
    async with AsyncExitStack() as stack:
        controllers = await stack.enter_async_context(Controllers(LIMITS, ENVIRONMENT))
        fronts = [
            await stack.enter_async_context(fronted(machines.machine())) for _ in range(MACHINES)
        ]
        opened = [(front, controllers.open(front.place())) for front in fronts]

        outcomes = await asyncio.gather(
            *(run_rounds(*each, Random(seed * MACHINES + n)) for n, each in enumerate(opened))
        )

        for front, controller in opened:
            inflict(front, Random(0))
            front.status, front.held, front.password = {}, set(), PASSWORD
            front.breaks_before, front.breaks_after = set(), set()
            await until(partial(is_read, controller))
    for front, told in zip(fronts, outcomes, strict=True):
        audit(front, told)
    kinds = {type(outcome) for told in outcomes for outcome, _ in told}
    assert kinds == {Done, Refused, Unknown}
