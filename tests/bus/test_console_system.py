"""The page of operators: the services, the log, and dead letters that are sent again."""

import re
from pathlib import Path

import pytest

from bus.accounts import CLUSTER, ORG
from bus.broken import BROKEN, FAILING
from bus.consoles import console_at_work
from bus.harness import serving
from bus.test_console import apply, read_until
from console.host import operations
from metal.decide import SERVICE as METAL
from nodepool.client.errors import Refused
from quota.decide import SERVICE as QUOTA
from support.constants import A100, H100, ZONE


async def test_an_operator_sees_the_services_and_sends_a_dead_letter_again(tmp_path: Path) -> None:
    async with console_at_work(tmp_path, but=(QUOTA.name,)) as world:
        operator, quota = await world.browser("operator", ""), world.server.access(QUOTA.name)

        # given quota fails on a command
        async with serving(BROKEN, world.server, tmp_path / "broken.log", access=quota):
            with pytest.raises(Refused, match="bug"):
                await world.operator.quotas.set(ZONE, H100, FAILING)

            # when the operator looks, then each service, the log and the letter are there
            shown = await read_until(operator, "/system", "the bug", "Services", "dead letter")
        assert "nodepool dead list" in shown
        position = shown.partition('href="/system/dead/')[2].partition('"')[0]
        letter = await operator.get(f"/system/dead/{position}")
        assert "np.cmd" in letter.text
        assert "Send the command again" in letter.text

        # when quota is mended and the letter is sent again, then the command is done
        async with serving(QUOTA, world.server, tmp_path / "mended.log", access=quota):
            sent = await operator.post(f"/system/dead/{position}", {"do": "replay"})
            assert (sent.status, sent.headers["location"]) == (303, "/system")
            assert ": accepted" in (await operator.get("/system")).text

            # and once more it is not
            again = await operator.post(f"/system/dead/{position}", {"do": "replay"})
            assert (again.status, "accepted since" in again.text) == (422, True)
        assert (await operator.get("/system/dead/1")).status == 404
        assert (await operator.get("/system/dead/x")).status == 404


async def test_an_operator_sees_the_gateway_and_a_service_that_not_each_cell_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations, "LOOK_S", 0.2)
    async with console_at_work(tmp_path) as world:
        operator, metal = await world.browser("operator", ""), world.server.access(METAL.name)

        # given a cell without real machines, then the gateway that its users need is there
        shown = await read_until(operator, "/system", "1 replica answers")
        assert f">{METAL.name}<" not in shown

        # when the service for real machines was at work and ends, then it is missing
        async with serving(METAL, world.server, tmp_path / "metal.log", access=metal):
            await read_until(operator, "/system", f">{METAL.name}<")
        await read_until(operator, "/system", f"python -m {METAL.name}")


async def test_an_operator_sees_the_machines_of_each_zone_used_held_back_and_free(
    tmp_path: Path,
) -> None:
    async with console_at_work(tmp_path) as world:
        # given one Node, and two machines that are held back
        await apply(world.operator, "train", H100, 1)
        await world.operator.nodepools.wait("train", "AtTarget")
        await world.operator.capacity.reclaim(ZONE, H100, 2)
        operator = await world.browser("operator", "")

        # when the operator looks, then each type has a row, and the machines of all add up
        shown = await read_until(operator, "/fleet", "11 of 14 machines are free", ZONE, A100)
        row = shown.partition(f'id="stock-{ZONE}.{H100}"')[2].partition("</tr>")[0]
        assert re.findall(r'class="r[^"]*"[^>]*>(?:<b>)?(\d+)', row) == ["5", "1", "2", "0", "8"]
        assert "nodepool get capacities" in shown


async def test_the_operator_sees_no_organisation_and_users_see_no_system(tmp_path: Path) -> None:
    async with console_at_work(tmp_path) as world:
        await apply(world.operator, "train", H100, 1)
        operator, owner = await world.browser("operator", ""), await world.browser("owner")

        home = await operator.get("/")
        assert home.headers["location"] == "/system"
        for path in ("/nodepools", f"/nodepools/{CLUSTER}/train", "/events", "/create"):
            answer = await operator.get(path)
            assert (answer.status, ORG in answer.text) == (403, False), path
        for path in ("/system", "/fleet", "/system/dead/5"):
            answer = await owner.get(path)
            assert (answer.status, "Ask an operator" in answer.text) == (403, True), path
        assert "/system" not in (await owner.get("/nodepools")).text
