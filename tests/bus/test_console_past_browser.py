"""The past in a real browser: picked by time, marked, and left again."""

from datetime import datetime, timedelta
from pathlib import Path

from playwright.async_api import expect

from bus.browsers import SMALL, in_browser, tab
from bus.consoles import console_at_work
from bus.test_console import TRAIN
from bus.test_console_past import ONE, THREE, scaled
from nodepool.contract.moments import rfc3339

ZONE = "America/New_York"
"""The zone of the browser, far from UTC."""


@in_browser
async def test_a_user_picks_a_moment_sees_the_older_target_and_goes_back_to_now(
    tmp_path: Path,
) -> None:
    async with (
        console_at_work(tmp_path, archives=True) as world,
        tab(world, timezone_id=ZONE) as owner,
    ):
        # given a NodePool that was scaled after a moment
        then, page = await scaled(world), owner.page
        await owner.open(TRAIN)
        await owner.sees(THREE)
        await expect(page.locator("#when-zone")).to_have_text("UTC-5")

        # when its position is picked, then the page shows the older target, marked as past
        await page.get_by_label("or log position").fill(str(then))
        await page.get_by_role("button", name="Show", exact=True).click()
        await owner.is_at(f"{TRAIN}?at={then}")
        await owner.sees("The past: ")
        await owner.sees(f"log position {then}")
        await owner.sees(ONE)
        # and it offers no action, and is not live
        for action in ("Scale", "Edit", "Delete…"):
            await expect(page.get_by_role("link", name=action, exact=True)).to_have_count(0)
        await expect(page.locator("#stream")).to_have_count(0)
        await expect(page.locator("#live-word")).to_be_hidden()
        assert await owner.audit() == []
        # and the keys start none either, on the list as well
        await page.get_by_role("link", name="NodePools", exact=True).first.click()
        await owner.is_at(f"/nodepools?at={then}")
        await page.get_by_role("link", name="train").focus()
        await page.keyboard.press("s")
        await owner.is_at(f"/nodepools?at={then}")
        # and those that lead to other pages stay at the moment
        await page.keyboard.press("g")
        await page.keyboard.press("p")
        await owner.is_at(f"/preemptions?at={then}")
        await owner.open(f"/nodepools?at={then}")
        # and times stand still
        since = page.locator("td.since")
        before = await since.inner_text()
        await page.wait_for_timeout(1_500)
        assert await since.inner_text() == before
        # and a filter stays there
        await page.get_by_label("Filter NodePools").fill("tra")
        await page.keyboard.press("Enter")
        await owner.is_at(f"/nodepools?at={then}&q=tra")
        await owner.sees("The past: ")

        # when the time is picked in the zone of the browser, then it is the same in UTC
        await owner.open(f"/nodepools?at={then}")
        shown = page.get_by_label("Show the past: time in")
        local = await shown.input_value()
        # and a later time can be picked as well, up to now
        latest = await shown.get_attribute("max")
        assert latest is not None
        assert latest > local
        stamp = await page.locator("#past time").get_attribute("datetime")
        assert stamp is not None
        # Fields have whole seconds, so the next one is picked: the log may begin in this one.
        later = timedelta(seconds=1)
        await shown.fill((datetime.fromisoformat(local) + later).isoformat())
        picked = rfc3339(datetime.fromisoformat(stamp) + later)
        await page.get_by_role("button", name="Show", exact=True).click()
        await page.wait_for_url(lambda url: picked.replace(":", "%3A") in url)
        await owner.sees("The past: ")
        assert local != stamp.removesuffix("Z")

        # when the user goes back to now, then the newer target and the actions are there
        await owner.open(f"{TRAIN}?at={then}")
        await page.get_by_role("link", name="Back to now", exact=True).click()
        await owner.is_at(TRAIN)
        await owner.sees(THREE)
        await expect(page.get_by_role("link", name="Scale", exact=True)).to_have_count(1)

        # and on a small screen nothing is cut off
        await page.set_viewport_size(SMALL)
        await owner.open(f"{TRAIN}?at={then}")
        width = await page.evaluate("document.documentElement.scrollWidth")
        assert width <= SMALL["width"]
        assert await owner.audit() == []
        assert owner.faults == []
