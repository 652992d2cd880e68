"""The console in a real browser, as people use it: by pointer, by keyboard, on a small screen."""

import asyncio
import re
from pathlib import Path

import pytest
from playwright.async_api import Error, Page, expect

from bus.accounts import CLUSTER
from bus.browsers import LARGE, SMALL, in_browser, tab
from bus.consoles import console_at_work
from bus.harness import ROUNDS
from bus.test_console import SCRIPT, apply
from console.host.files import BUNDLE
from support.constants import A100, H100

LOAD_BYTES_MAX = 150 * 1024
SIZES = """["navigation", "resource"].flatMap(kind => performance.getEntriesByType(kind))
.map(each => [new URL(each.name).pathname.split("/").pop(), each.transferSize])"""
BLOCKING = """performance.getEntriesByType("resource")
.filter(each => each.renderBlockingStatus === "blocking").map(each => each.name)"""
LINE_PX = 30
"""Less than two lines of a command are high."""
PAUSED = re.compile(r"^\s*Paused(, [0-9]+ new)?\s*$")
KEEP_COPIED = """const begin = setTimeout;
window.setTimeout = (act, ms, ...given) => ms === 2000 ? 0 : begin(act, ms, ...given)"""
"""Has a button that says "Copied" say so for longer than the two seconds of a page."""
SOON_S = 2.0
"""Within which time a change is on the screen, in seconds: a browser and all services share the
machine with it."""


@in_browser
async def test_an_owner_creates_scales_and_deletes_a_nodepool_and_sees_each_change_at_once(
    tmp_path: Path,
) -> None:
    async with console_at_work(tmp_path) as world, tab(world) as owner:
        page = owner.page

        # given no NodePool, when the owner follows the page, then there is a form
        await owner.sees("No NodePools yet")
        await page.get_by_role("link", name="Create NodePool").click()

        # when the form is sent with a wrong name, then the field says so and keeps it
        await page.get_by_label("Name", exact=True).fill("Night_ly")
        await page.get_by_label("Instance type").select_option(H100)
        await page.get_by_role("button", name="Create NodePool", exact=True).click()
        await owner.sees("Use lower case letters")
        assert await page.get_by_label("Name", exact=True).input_value() == "Night_ly"
        assert await page.get_by_label("Name", exact=True).get_attribute("aria-invalid") == "true"

        # when it is right, then the page of the NodePool follows it to its target without a reload
        await page.get_by_label("Name", exact=True).fill("nightly")
        await page.get_by_role("button", name="Create NodePool", exact=True).click()
        await owner.is_at(f"/nodepools/{CLUSTER}/nightly")
        await owner.sees("At target")
        await owner.sees("nothing blocks it")

        # when it is scaled, then the plan comes first, and then the list shows what follows
        await page.get_by_role("link", name="Scale", exact=True).click()
        await page.get_by_label("Target, in Nodes").fill("3")
        await page.get_by_role("button", name="Check with the server", exact=True).click()
        await owner.sees("Would be accepted")
        await owner.sees("+ targetNodes: 3")
        await page.get_by_role("button", name="Scale to 3", exact=True).click()
        await owner.is_at(f"/nodepools/{CLUSTER}/nightly")
        await owner.open("/nodepools")
        await owner.sees("3 of 3")

        # when somebody else scales it, then the open list shows that, and the focus stays
        await page.get_by_role("link", name="nightly").focus()
        await world.operator.nodepools.scale("nightly", 20)
        await owner.sees("of 20")
        await owner.sees("Over quota")
        await owner.focuses("nightly")
        await expect(page).to_have_title("(1) NodePools · nodepool")

        # when it is paused, then nothing changes until it goes on
        await page.get_by_role("button", name="Pause", exact=True).click()
        await world.operator.nodepools.scale("nightly", 2)
        await expect(page.locator("#live-word")).to_contain_text("new")
        assert "of 20" in await owner.row("nightly")
        await page.get_by_role("button", name="Resume", exact=True).click()
        await owner.sees("2 of 2")

        # when it is deleted, then its name has to be typed
        await owner.open(f"/nodepools/{CLUSTER}/nightly/delete")
        await page.get_by_label("Type nightly to delete it").fill("night")
        await page.get_by_role("button", name="Delete nightly", exact=True).click()
        await owner.sees("Type nightly, the name of the NodePool, exactly.")
        await page.get_by_label("Type nightly to delete it").fill("nightly")
        await page.get_by_role("button", name="Delete nightly", exact=True).click()
        # and then the list says so, also to who listens, and follows until it is gone
        await owner.is_at("/nodepools")
        await expect(page.locator("#said")).to_contain_text(f"{CLUSTER}/nightly is being deleted")
        await expect(page.locator("#status")).to_contain_text("is being deleted")
        await owner.sees("No NodePools yet")

        # and the browser complains about nothing but the form with faults
        assert [each for each in owner.faults if "status of 422" not in each] == []


@in_browser
async def test_everything_can_be_done_by_keyboard(tmp_path: Path) -> None:
    async with console_at_work(tmp_path) as world:
        for name, kind, target in (("alpha", H100, 1), ("beta", A100, 2), ("gamma", A100, 9)):
            await apply(world.operator, name, kind, target)
        async with tab(world, permissions=["clipboard-write"]) as owner:
            page = owner.page
            await page.add_init_script(KEEP_COPIED)

            # given the row that needs a person is the first one, as it stays while it is in use
            await expect(page.locator("tr[data-row]")).to_contain_text(["gamma", "alpha", "beta"])
            for text in ("Over quota", "1 of 1", "2 of 2"):
                await owner.sees(text)

            # when `j` and `k` are pressed, then the focus goes from row to row
            await page.keyboard.press("j")
            await owner.focuses("gamma")
            await page.keyboard.press("j")
            await owner.focuses("alpha")
            await page.keyboard.press("k")
            await owner.focuses("gamma")

            # when `/` is pressed, then the filter has the focus, and is in the address
            await page.keyboard.press("/")
            await page.keyboard.type("beta")
            await expect(page.locator("tr[data-row]")).to_have_count(1)
            await owner.is_at("/nodepools?q=beta")
            await page.keyboard.press("Escape")
            await expect(page.locator("tr[data-row]")).to_have_count(3)
            await page.keyboard.press("Escape")

            # when `?` is pressed, then the keys are listed, and Escape closes the list
            await page.keyboard.press("?")
            await expect(page.locator("#keys")).to_be_visible()
            await page.keyboard.press("Escape")
            await expect(page.locator("#keys")).to_be_hidden()

            # when `s` is pressed on a row, then it is to be scaled; Enter opens it
            await page.keyboard.press("j")
            await owner.focuses("gamma")
            await page.keyboard.press("s")
            await owner.is_at(f"/nodepools/{CLUSTER}/gamma/scale")
            await page.go_back()
            await owner.sees("gamma")
            await page.keyboard.press("j")
            await owner.focuses("gamma")
            await page.keyboard.press("Enter")
            await owner.is_at(f"/nodepools/{CLUSTER}/gamma")

            # when the form to scale is filled in by keyboard, then that is done
            await page.keyboard.press("s")
            await owner.is_at(f"/nodepools/{CLUSTER}/gamma/scale")
            await tab_to(page, "#target")
            await page.keyboard.press("Control+A")
            await page.keyboard.type("1")
            await page.keyboard.press("Enter")
            await owner.is_at(f"/nodepools/{CLUSTER}/gamma")
            await owner.sees("wants 1 Node")

            # and the keys for times, updates, a command and the form to edit do what they say
            age = page.locator("main time").first
            relative = await age.inner_text()
            await page.keyboard.press("t")
            await expect(age).not_to_have_text(relative)
            await page.keyboard.press("t")
            await page.keyboard.press("p")
            # The NodePool still gets its Node, of which as much is new as has happened by then.
            await expect(page.locator("#live-word")).to_have_text(PAUSED)
            await page.keyboard.press("p")
            await page.keyboard.press("y")
            await expect(page.locator("[data-copy]").first).to_have_text("Copied")

            # and the button goes on to say so when the page changes
            await world.operator.nodepools.scale("gamma", 2)
            await owner.sees("wants 2 Nodes")
            await expect(page.locator("[data-copy]").first).to_have_text("Copied")
            await page.keyboard.press("e")
            await owner.is_at(f"/nodepools/{CLUSTER}/gamma/edit")
            await owner.open("/nodepools")

            # when `g` and a letter are pressed, then that section opens
            # In one go: the letter counts for a second and a half.
            for letter, path in (("e", "/events"), ("o", "/organisation"), ("n", "/nodepools")):
                await page.keyboard.type(f"g{letter}")
                await owner.is_at(path)
            assert owner.faults == []

        # and an operator has the sections of operators
        async with tab(world, "operator", org="") as operator:
            for letter, path in (("m", "/fleet"), ("s", "/system")):
                await operator.page.keyboard.type(f"g{letter}")
                await operator.is_at(path)
            assert operator.faults == []


async def tab_to(page: Page, selector: str) -> None:
    """Press Tab until an element has the focus."""
    for _ in range(40):
        await page.keyboard.press("Tab")
        if await page.locator(selector).evaluate("each => each === document.activeElement"):
            return
    pytest.fail(f"Tab does not lead to {selector}")


@in_browser
async def test_every_page_fits_a_small_screen_and_people_with_a_disability_in_each_theme(
    tmp_path: Path,
) -> None:
    async with console_at_work(tmp_path) as world:
        await apply(world.operator, "train", H100, 2)
        await apply(world.operator, "large", A100, 9, SCRIPT)
        await world.operator.nodepools.wait("train", "AtTarget")
        node = (await world.operator.nodes.list())[0].key
        await world.operator.nodes.cordon("train", node)
        paths = (
            *("/nodepools", "/events", "/preemptions", "/organisation", "/create", "/none"),
            f"/nodepools/{CLUSTER}/train",
            f"/nodepools/{CLUSTER}/large",
            f"/nodepools/{CLUSTER}/large/yaml",
            f"/nodepools/{CLUSTER}/large/scale?target=6",
            f"/nodepools/{CLUSTER}/large/delete",
            f"/nodes/{CLUSTER}/{node}",
            f"/nodes/{CLUSTER}/{node}/drain",
            f"/capacity?type={A100}&count=2",
        )
        async with tab(world) as owner:
            found = list[str]()
            for path in paths:
                await owner.open(path)
                found += [f"{path} {each}" for each in await owner.audit_in_each_theme()]
                await owner.page.set_viewport_size(SMALL)
                wide = await owner.page.evaluate("document.documentElement.scrollWidth")
                found += [f"{path} is {wide} wide"] if wide > SMALL["width"] else []
                await owner.page.set_viewport_size(LARGE)
            assert found == []
            assert [each for each in owner.faults if "status of 404" not in each] == []


@in_browser
async def test_what_users_write_is_text_and_pages_work_without_scripts(tmp_path: Path) -> None:
    async with console_at_work(tmp_path) as world:
        await apply(world.operator, "large", A100, 9, SCRIPT)

        # given a browser that runs no scripts
        async with tab(world, java_script_enabled=False) as owner:
            page = owner.page
            await owner.open(f"/nodepools?q=large&text={SCRIPT}")
            await owner.sees("large")

            # when a form is filled and sent, then it is carried out
            await owner.open(f"/nodepools/{CLUSTER}/large/scale")
            await page.get_by_label("Target, in Nodes").fill("3")
            await page.get_by_role("button", name="Scale", exact=True).click()
            await owner.is_at(f"/nodepools/{CLUSTER}/large")

            # and nothing that would need a script is offered
            assert await page.get_by_role("button", name="Copy", exact=True).count() == 0
            assert await page.get_by_role("button", name="Pause", exact=True).count() == 0

        # when a browser that runs scripts shows what a user wrote, then it is text
        async with tab(world) as owner:
            for path in (
                f"/nodepools/{CLUSTER}/large/yaml",
                f"/nodepools?q={SCRIPT}",
                f"/events?q={SCRIPT}",
                f"/create?name={SCRIPT}&labels={SCRIPT}",
            ):
                await owner.open(path)
                assert await owner.page.locator("script:not([nonce])").count() == 0, path
                html = await owner.page.content()
                assert SCRIPT not in re.sub(r"<(script|title)\b.*?</\1>", "", html), path
            assert owner.faults == []


@in_browser
async def test_a_page_is_live_however_late_its_script_comes(tmp_path: Path) -> None:
    async with console_at_work(tmp_path) as world:
        await apply(world.operator, "train", H100, 1)
        async with tab(world, late=BUNDLE) as owner:
            await owner.sees("1 of 1")

            await world.operator.nodepools.scale("train", 2)

            await owner.sees("2 of 2")
            assert owner.faults == []


@in_browser
async def test_a_command_reads_on_a_small_screen_as_it_is_copied(tmp_path: Path) -> None:
    async with console_at_work(tmp_path) as world:
        await apply(world.operator, "train", H100, 1)
        async with tab(world, viewport=SMALL) as owner:
            await owner.open(f"/nodepools/{CLUSTER}/train")
            await owner.sees("1 of 1")

            # then each command is shown whole, and none of its options is broken at its dashes
            button = owner.page.locator(".cmd button", has_text="Copy").first
            copied = await button.get_attribute("data-copy")
            assert copied == f"nodepool explain nodepool train --cluster {CLUSTER}"
            shown = owner.page.locator(".cmd code").first
            await expect(shown).to_have_text(copied, use_inner_text=True)
            option = await owner.page.locator(".cmd code .nw").first.bounding_box()
            assert option is not None
            assert option["height"] < LINE_PX


@in_browser
async def test_a_change_is_on_the_screen_soon(tmp_path: Path) -> None:
    async with console_at_work(tmp_path) as world:
        await apply(world.operator, "train", H100, 1)
        async with tab(world) as owner:
            await owner.sees("At target")

            # when commands are accepted one after the other
            clock, took = asyncio.get_running_loop().time, list[float]()
            for target in range(2, 2 + ROUNDS):
                began = clock()
                await world.operator.nodepools.scale("train", target)
                await owner.sees(f"of {target}")
                took.append(clock() - began)

            # then the effect of each is on the screen, and soon where the machine has time
            assert min(took) < SOON_S, took
            assert owner.faults == []


@in_browser
async def test_the_first_page_of_a_browser_with_all_its_files_is_small(tmp_path: Path) -> None:
    async with console_at_work(tmp_path) as world:
        await apply(world.operator, "train", H100, 1)
        async with tab(world) as owner:
            await owner.sees("1 of 1")
            sizes = await owner.page.evaluate(SIZES)
            assert {"nodepools", BUNDLE} <= {name for name, _ in sizes}
            assert sum(size for _, size in sizes) <= LOAD_BYTES_MAX


@in_browser
async def test_a_browser_shows_a_page_before_it_has_another_file(tmp_path: Path) -> None:
    async with console_at_work(tmp_path) as world:
        await apply(world.operator, "train", H100, 1)
        async with tab(world) as owner:
            # given a browser that gets no file of the console but the page itself
            await owner.sees("1 of 1")
            await owner.page.route("**/static/**", lambda route: route.abort())
            await owner.open("/nodepools")

            # then it shows the page, in its style, and has waited for no other file
            await owner.sees("1 of 1")
            panel = owner.page.locator(".card").first
            await expect(panel).not_to_have_css("border-radius", "0px")
            assert await owner.page.evaluate(BLOCKING) == []


@in_browser
async def test_a_page_says_that_the_bus_is_dead_and_goes_on_by_itself(tmp_path: Path) -> None:
    async with console_at_work(tmp_path) as world:
        await apply(world.operator, "train", H100, 2)
        async with tab(world) as owner, tab(world, "viewer") as viewer:
            await owner.sees("2 of 2")
            await viewer.open("/events")
            await viewer.sees("CWNodeRegistered")
            for user in (owner, viewer):
                await user.page.evaluate("window.isSame = true")

            # when the bus is gone, then the pages say so
            await asyncio.to_thread(world.server.kill)
            for user in (owner, viewer):
                await user.sees("Not live since")
                await expect(user.page.locator("#live-word")).to_contain_text("Not live")

            # when it is back, then they go on by themselves
            world.server.start()
            for user in (owner, viewer):
                await expect(user.page.locator("#band")).to_have_count(0)
            await world.operator.nodepools.scale("train", 3)
            await owner.sees("of 3")
            await viewer.sees("CWNodePoolScaledUp")

            # and they are the same pages, with each row once
            for user in (owner, viewer):
                assert await user.page.evaluate("window.isSame")
                rows = user.page.locator("tr[data-row]")
                ids = await rows.evaluate_all("rows => rows.map(row => row.id)")
                assert len(ids) == len(set(ids)) > 0
                assert user.faults == []


@in_browser
async def test_a_browser_that_died_is_started_again_for_the_next_tab(tmp_path: Path) -> None:
    async with console_at_work(tmp_path) as world:
        # given a browser that ends at once, with all its tabs
        async with tab(world) as owner:
            await owner.sees("No NodePools yet")
            browser = owner.page.context.browser
            assert browser is not None
            died = asyncio.Event()
            browser.on("disconnected", lambda _: died.set())
            devtools = await browser.new_browser_cdp_session()
            with pytest.raises(Error):
                await devtools.send("Browser.crash")
            await died.wait()

        # when another one is opened, then it is as the first one was
        async with tab(world) as owner:
            await owner.sees("No NodePools yet")
            assert owner.faults == []
