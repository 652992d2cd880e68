"""Each action on a Node, taken in a real browser, and how soon its effect is on the screen."""

import asyncio
from pathlib import Path

import pytest
from playwright.async_api import expect

from bus.accounts import CLUSTER
from bus.broken import BROKEN, FAILING
from bus.browsers import Tab, in_browser, tab
from bus.consoles import World, console_at_work
from bus.harness import serving, until
from bus.test_console_browser import SOON_S
from console.host import operations
from nodepool.client.errors import Refused
from nodepool.contract.commands import BreakMachine
from nodepool.contract.documents import condition
from quota.decide import SERVICE as QUOTA
from support.constants import H100, ZONE

SPOT = f"""
apiVersion: compute.coreweave.com/v1alpha1
kind: NodePool
metadata: {{name: batch}}
spec: {{instanceType: {H100}, computeClass: spot, targetNodes: %d}}
"""
TIMES = 3
"""How often a time limit is tried on a machine that may be busy; the best time counts."""


async def spot_nodes(world: World, count: int) -> list[str]:
    """Create a spot NodePool with so many Nodes; return their names."""
    await world.operator.nodepools.apply(SPOT % count)
    await world.operator.nodepools.wait("batch", "AtTarget")
    return sorted(each.key for each in await world.operator.nodes.list())


async def take(owner: Tab, node: str, link: str, button: str) -> None:
    """Follow the link of an action on the page of a Node, and press the button of its form."""
    await owner.page.get_by_role("link", name=link, exact=True).click()
    await owner.page.get_by_role("button", name=f"{button} {node}", exact=True).click()
    await owner.is_at(f"/nodes/{CLUSTER}/{node}")


async def finds(owner: Tab, text: str, *, scripts: bool) -> None:
    """Return once a text is shown: by itself, or without scripts when the page is loaded again."""
    if scripts:
        await owner.sees(text)
        return

    async def is_shown() -> bool:
        if text in await owner.page.locator("main").inner_text():
            return True
        await owner.page.reload()
        return False

    await until(is_shown)


@in_browser
async def test_every_action_on_a_node_is_taken_by_its_button_and_seen_on_its_page(
    tmp_path: Path,
) -> None:
    async with console_at_work(tmp_path) as world:
        nodes = await spot_nodes(world, 4)
        for scripts, (kept, leaves) in ((True, nodes[:2]), (False, nodes[2:])):
            async with tab(world, java_script_enabled=scripts) as owner:
                await act_on(owner, kept, leaves, scripts=scripts)


async def act_on(owner: Tab, kept: str, leaves: str, *, scripts: bool) -> None:
    """Take each action on a Node that stays or on a Node that leaves."""
    await owner.open(f"/nodes/{CLUSTER}/{kept}")
    for link, button, text in (
        ("Cordon…", "Cordon", "This Node is cordoned (AdminCordon)."),
        ("Uncordon…", "Uncordon", "Nothing runs on this Node."),
        ("Reboot…", "Reboot", "is cordoned: AdminReboot"),
        ("Drain…", "Drain", "(AdminDrain)."),
    ):
        await finds(owner, link, scripts=scripts)
        await take(owner, kept, link, button)
        await finds(owner, text, scripts=scripts)

    await owner.open(f"/nodes/{CLUSTER}/{leaves}")
    await take(owner, leaves, "Preempt…", "Preempt")
    await finds(owner, "This Node is being preempted.", scripts=scripts)
    await take(owner, leaves, "Give back now…", "Give back")
    await finds(owner, "This Node left the NodePool batch", scripts=scripts)
    # The browser notes the status of the page of a Node that has left.
    assert [each for each in owner.faults if "status of 404" not in each] == []


@in_browser
async def test_an_operator_sends_a_dead_letter_again_by_its_button(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations, "LOOK_S", 1.0)
    async with (
        console_at_work(tmp_path, but=(QUOTA.name,)) as world,
        tab(world, "operator", org="") as operator,
    ):
        # given quota fails on a command, and is mended
        access = world.server.access(QUOTA.name)
        async with serving(BROKEN, world.server, tmp_path / "broken.log", access=access):
            with pytest.raises(Refused, match="bug"):
                await world.operator.quotas.set(ZONE, H100, FAILING)
        async with serving(QUOTA, world.server, tmp_path / "mended.log", access=access):
            # when the operator follows the letter and sends it again, then it is done
            await operator.sees("the bug")
            await operator.page.get_by_role("link", name="Replay…", exact=True).click()
            await operator.sees("carried out at most once")
            assert await operator.audit_in_each_theme() == []
            await operator.page.get_by_role("button", name="Send the command again").click()
            await operator.is_at("/system")
            await expect(operator.page.locator("#said")).to_contain_text("accepted")
            assert operator.faults == []


@in_browser
async def test_a_preemption_and_a_broken_machine_are_on_the_screen_soon(tmp_path: Path) -> None:
    async with console_at_work(tmp_path) as world:
        nodes = await spot_nodes(world, 2 * TIMES)
        async with tab(world) as owner:
            await owner.sees("At target")
            clock = asyncio.get_running_loop().time
            row = owner.page.locator("tr[data-row]")
            preempted, broken = list[float](), list[float]()
            for number in range(TIMES):
                # when the preemption of a Node is accepted, then its NodePool says so
                began = clock()
                await world.operator.nodes.preempt("batch", nodes[number])
                await expect(row).to_contain_text(f"Losing {number + 1} Node")
                preempted.append(clock() - began)

                # when the control plane knows that a machine is broken, then so do users
                machine = nodes[TIMES + number]
                breaks = BreakMachine(zone=ZONE, machine=machine, fault="gpu-lost")
                await world.operator.commands.send(breaks)

                async def is_known(machine: str = machine) -> bool:
                    document = await world.operator.nodes.get(machine)
                    return condition(document, "GPUMissing", "status") == "True"

                await until(is_known)
                began = clock()
                await expect(row).to_contain_text(f"{number + 1} unhealthy")
                broken.append(clock() - began)
            assert min(preempted) < SOON_S, preempted
            assert min(broken) < SOON_S, broken
            assert owner.faults == []
