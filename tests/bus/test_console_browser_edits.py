"""Editing and watching in a real browser: two users at once, zoomed, and on a slow network."""

from pathlib import Path
from typing import Literal

import pytest

pytest.importorskip("bus.test_console_browser")

from playwright.async_api import ViewportSize, expect

from bus.accounts import CLUSTER
from bus.consoles import console_at_work
from bus.test_console import apply
from bus.test_console_browser import LARGE, SMALL, tab
from support.constants import H100

ZOOMED: ViewportSize = {"width": 640, "height": 450}
"""What a window of 1,280 by 900 shows at 200 %."""
TRAIN = f"/nodepools/{CLUSTER}/train"
SLOW = {
    "offline": False,
    "latency": 400,
    "downloadThroughput": 50_000,
    "uploadThroughput": 50_000,
}
"""A bad mobile network: 400 ms, and 50 kB a second."""


async def test_two_users_who_edit_one_nodepool_see_what_differs_and_lose_nothing(
    tmp_path: Path,
) -> None:
    async with console_at_work(tmp_path) as world:
        await apply(world.operator, "train", H100, 2)
        async with tab(world) as one, tab(world, "editor") as two:
            for user in (one, two):
                await user.open(TRAIN)
                await user.sees("nothing blocks it")
                await user.page.get_by_role("link", name="Edit", exact=True).click()
                await user.sees("Edit train")

            # given one of them has checked and saved
            await one.page.get_by_label("Target, in Nodes").fill("3")
            await one.page.get_by_role("button", name="Check with the server").click()
            await one.sees("Would be accepted")
            await one.page.get_by_role("button", name="Save", exact=True).click()
            await one.is_at(TRAIN)
            await expect(one.page.locator("#said")).to_contain_text("train is saved")
            await one.sees("3 of 3")

            # when the other one saves the same field, then both values are shown
            await two.page.get_by_label("Target, in Nodes").fill("1")
            await two.page.get_by_role("button", name="Save", exact=True).click()
            await two.sees("another user changed the same field")
            await expect(two.page.get_by_role("row", name="spec.targetNodes")).to_contain_text("3")
            assert await two.page.get_by_label("Target, in Nodes").input_value() == "1"
            assert await two.audit() == []

            # and when the session ends before it saves again, then nothing is lost
            await two.page.context.clear_cookies()
            await two.page.get_by_role("button", name="Save", exact=True).click()
            await two.sees("Your session has ended")
            page = await two.page.context.new_page()
            await page.goto(world.link("editor"))
            await two.page.get_by_role("button", name="Continue with what I typed").click()
            await two.sees("made in an earlier session")
            assert await two.page.get_by_label("Target, in Nodes").input_value() == "1"
            await two.page.get_by_role("button", name="Save", exact=True).click()
            await two.is_at(TRAIN)
            await one.sees("1 of 1")

            # and the browsers complain about nothing but the session
            assert one.faults == []
            assert [each for each in two.faults if "status of 401" not in each] == []


@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_the_forms_and_the_system_fit_people_with_a_disability_zoomed_and_in_each_theme(
    tmp_path: Path, theme: Literal["light", "dark"]
) -> None:
    async with console_at_work(tmp_path) as world:
        await apply(world.operator, "train", H100, 2)
        await world.operator.nodepools.wait("train", "AtTarget")
        found = list[str]()
        pages = ("/nodepools", TRAIN, f"{TRAIN}/edit", f"{TRAIN}/edit?as=yaml", "/create")
        for user, org, paths in (("owner", None, pages), ("operator", "", ("/system", "/events"))):
            async with tab(world, user, org=org, color_scheme=theme) as opened:
                for path in paths:
                    await opened.open(path)
                    if path == "/system":
                        await opened.sees("Services")
                    found += [f"{path} {each}" for each in await opened.audit()]
                    for size in (ZOOMED, SMALL):
                        await opened.page.set_viewport_size(size)
                        wide = await opened.page.evaluate("document.documentElement.scrollWidth")
                        found += [f"{path} is {wide} wide"] if wide > size["width"] else []
                    await opened.page.set_viewport_size(LARGE)
                assert [each for each in opened.faults if "status of 403" not in each] == []
        assert found == []


async def test_a_page_is_live_on_a_slow_network(tmp_path: Path) -> None:
    async with console_at_work(tmp_path) as world:
        await apply(world.operator, "train", H100, 1)
        async with tab(world) as owner:
            devtools = await owner.page.context.new_cdp_session(owner.page)
            await devtools.send("Network.emulateNetworkConditions", SLOW)
            await owner.open("/nodepools")
            await owner.sees("1 of 1")

            await world.operator.nodepools.scale("train", 2)

            await owner.sees("2 of 2")
            assert owner.faults == []


async def test_a_row_that_stays_as_it_is_keeps_what_it_shows_also_after_a_pause(
    tmp_path: Path,
) -> None:
    async with console_at_work(tmp_path) as world:
        for number in range(5):
            await apply(world.operator, f"pool-{number}", H100, 1)
        async with tab(world) as owner:
            for number in range(5):
                await world.operator.nodepools.wait(f"pool-{number}", "AtTarget")
            await expect(owner.page.locator("tr[data-row]", has_text="1 of 1")).to_have_count(5)

            # when one of them changes, then the others are as they were, and each has its content
            await world.operator.nodepools.scale("pool-3", 2)
            await owner.sees("2 of 2")
            await expect(owner.page.locator("tr[data-row]", has_text="1 of 1")).to_have_count(4)
            assert await owner.page.locator("[data-same]").count() == 0

            # and when it is paused and goes on, then nothing is missing
            await owner.page.get_by_role("button", name="Pause", exact=True).click()
            for number in range(2):
                await world.operator.nodepools.scale(f"pool-{number}", 2)
                await world.operator.nodepools.wait(f"pool-{number}", "AtTarget")
            await expect(owner.page.locator("#live-word")).to_contain_text("new")
            await owner.page.get_by_role("button", name="Resume", exact=True).click()
            await expect(owner.page.locator("tr[data-row]", has_text="2 of 2")).to_have_count(3)
            assert owner.faults == []
