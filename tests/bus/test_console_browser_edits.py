"""Editing and watching in a real browser: two users at once, zoomed, and on a slow network."""

from pathlib import Path

from playwright.async_api import ViewportSize, expect

from bus.accounts import CLUSTER
from bus.browsers import LARGE, SMALL, in_browser, tab
from bus.consoles import console_at_work
from bus.test_console import apply
from nodepool.contract.commands import RunPod
from nodepool.contract.documents import field
from nodepool.contract.pods import Pod
from support.constants import H100, ZONE

ZOOMED: ViewportSize = {"width": 640, "height": 450}
"""What a window of 1,280 by 900 shows at 200 %."""
TRAIN = f"/nodepools/{CLUSTER}/train"
LONG = "a-pod-with-a-long-name-as-charts-of-helm-make-them-7d9f8b6c5d-x2x4z"
SPOT = f"""
apiVersion: compute.coreweave.com/v1alpha1
kind: NodePool
metadata: {{name: spot}}
spec: {{instanceType: {H100}, computeClass: spot, targetNodes: 1}}
"""
SLOW = {
    "offline": False,
    "latency": 400,
    "downloadThroughput": 50_000,
    "uploadThroughput": 50_000,
}
"""A bad mobile network: 400 ms, and 50 kB a second."""


@in_browser
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


@in_browser
async def test_a_manifest_is_shown_while_its_form_is_filled_in_and_nothing_is_sent(
    tmp_path: Path,
) -> None:
    async with console_at_work(tmp_path) as world:
        await apply(world.operator, "train", H100, 2)
        async with tab(world) as owner:
            # when a new NodePool is described, then its manifest and commands follow
            await owner.open("/create")
            await owner.page.get_by_label("Name", exact=True).fill("nightly")
            await owner.page.get_by_label("Instance type").select_option(H100)
            manifest = owner.page.locator("#manifest")
            await expect(manifest).to_contain_text(f"name: nightly spec: instanceType: {H100}")
            await expect(manifest).to_contain_text("nodepool create nodepool nightly")
            await expect(owner.page.locator("#room")).to_have_text(
                "The quota of 8 has room for 6, as other NodePools use 2."
            )

            # and the autoscaler has its own fields, once it is to set the target
            least = owner.page.get_by_label("Minimum, in Nodes")
            await expect(least).to_be_hidden()
            await owner.page.get_by_label("As many as Pods need").check()
            await least.fill("1")
            await expect(manifest).to_contain_text("minNodes: 1")
            await expect(owner.page.get_by_label("Target, in Nodes")).to_be_hidden()

            # and so do the changes of one that is edited, also while its YAML is not whole
            await owner.open(f"{TRAIN}/edit")
            await owner.page.get_by_label("Target, in Nodes").fill("5")
            changes = owner.page.locator("#changes")
            await expect(changes).to_contain_text("+ targetNodes: 5")
            await owner.page.get_by_role("button", name="Edit the YAML").click()
            await owner.page.get_by_label("Manifest").fill("spec: [")
            await expect(changes).to_contain_text("cannot be read")

            assert [each.key for each in await world.operator.nodepools.list()] == ["train"]
            stored = await world.operator.nodepools.get("train")
            assert field(stored, "spec", "targetNodes") == 2
            assert owner.faults == []


@in_browser
async def test_long_names_can_be_read_on_a_small_screen(tmp_path: Path) -> None:
    async with console_at_work(tmp_path) as world:
        # given a Node that is preempted while a Pod with a long name runs there
        await world.operator.nodepools.apply(SPOT)
        await world.operator.nodepools.wait("spot", "AtTarget")
        node = (await world.operator.nodes.list())[0].key
        await world.operator.commands.send(RunPod(zone=ZONE, machine=node, pod=Pod(name=LONG)))
        await world.operator.nodes.preempt("spot", node)
        async with tab(world, viewport=SMALL) as owner:
            await owner.open("/preemptions")
            await owner.sees(LONG)
            await owner.sees("requested by a user")

            # then no part of the row is narrower than its longest word needs
            assert [
                await each.evaluate("each => each.getBoundingClientRect().width >= 200")
                for each in await owner.page.locator(".run :is(.stage, .runs)").all()
            ] == [True, True]

            # and the messages of events and conditions are within the window
            for path, text in (
                ("/events", "is cordoned and goes within"),
                (f"/nodepools/{CLUSTER}/spot", "NodePool configuration is valid"),
                (f"/nodes/{CLUSTER}/{node}", "is to be removed"),
            ):
                await owner.open(path)
                box = await owner.page.locator(".msg", has_text=text).first.bounding_box()
                assert box is not None
                assert box["x"] + box["width"] <= SMALL["width"], path


@in_browser
async def test_the_forms_and_the_system_fit_people_with_a_disability_zoomed_and_in_each_theme(
    tmp_path: Path,
) -> None:
    async with console_at_work(tmp_path) as world:
        await apply(world.operator, "train", H100, 2)
        await world.operator.nodepools.wait("train", "AtTarget")
        found = list[str]()
        pages = ("/nodepools", TRAIN, f"{TRAIN}/edit", f"{TRAIN}/edit?as=yaml", "/create")
        for user, org, paths in (
            ("owner", None, pages),
            ("operator", "", ("/system", "/fleet", "/events")),
        ):
            async with tab(world, user, org=org) as opened:
                for path in paths:
                    await opened.open(path)
                    if path in ("/system", "/fleet"):
                        await opened.sees({"/system": "Services", "/fleet": ZONE}[path])
                    found += [f"{path} {each}" for each in await opened.audit_in_each_theme()]
                    for size in (ZOOMED, SMALL):
                        await opened.page.set_viewport_size(size)
                        wide = await opened.page.evaluate("document.documentElement.scrollWidth")
                        found += [f"{path} is {wide} wide"] if wide > size["width"] else []
                    await opened.page.set_viewport_size(LARGE)
                assert [each for each in opened.faults if "status of 403" not in each] == []
        assert found == []


@in_browser
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


@in_browser
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
            await expect(owner.page.locator("[data-same]")).to_have_count(0)

            # and when it is paused and goes on, then nothing is missing
            await owner.page.get_by_role("button", name="Pause", exact=True).click()
            for number in range(2):
                await world.operator.nodepools.scale(f"pool-{number}", 2)
                await world.operator.nodepools.wait(f"pool-{number}", "AtTarget")
            await expect(owner.page.locator("#live-word")).to_contain_text("new")
            await owner.page.get_by_role("button", name="Resume", exact=True).click()
            await expect(owner.page.locator("tr[data-row]", has_text="2 of 2")).to_have_count(3)
            assert owner.faults == []
