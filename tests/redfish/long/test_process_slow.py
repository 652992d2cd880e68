"""A controller that takes ten seconds for each answer, as old ones do under load."""

from pathlib import Path

import pytest

from conformance.requests import stay_of
from nodepool.contract.events import ControllerSilent, MachineAdded, MachineBooted, PowerAnswered
from redfish.audit import audit
from redfish.emulator import Emulator
from redfish.site import a_site

ANSWER_S = 10.0
WITHIN_S = 240.0


@pytest.mark.timeout(WITHIN_S + 60)
async def test_a_controller_that_takes_ten_seconds_for_each_answer_delays_no_other_machine(
    machines: Emulator, tmp_path: Path
) -> None:
    async with a_site(machines, tmp_path, 6) as site:
        slow, *others = site.rigs
        with site.process(hurry=False, metal_poll_seconds="2"):
            # given machines in production, and a controller that has become slow
            await site.expect(MachineAdded, count=6)
            site.rigs[slow].front.delay_s = ANSWER_S

            # when a NodePool gets the slow machine, and then others, one after another
            await site.tell(stay_of(slow, 1))
            for number, machine in enumerate(others, 2):
                await site.tell(stay_of(machine, number))
                await site.expect(MachineBooted, machine)

            # then they have all booted before the slow controller has answered to its reset
            answered = await site.expect(PowerAnswered, slow, within_s=WITHIN_S)
            assert answered.outcome == "done"
            ((last, _),) = site.placed(PowerAnswered, slow)
            assert all(at < last for m in others for at, _ in site.placed(MachineBooted, m))

            # and it boots too, by one reset, and is never taken for silent
            await site.expect(MachineBooted, slow, within_s=WITHIN_S)
        assert [rig.front.resets for rig in site.rigs.values()] == [["On"]] * 6
        assert site.said(ControllerSilent) == []
        audit(site)
