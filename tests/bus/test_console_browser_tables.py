"""Tables of the console in a real browser: filtered while one types, and read on a phone."""

from pathlib import Path

import pytest
from playwright.async_api import expect

from bus.accounts import CLUSTER, ORG
from bus.browsers import SMALL, in_browser, tab
from bus.consoles import console_at_work
from bus.test_console import TRAIN, apply
from bus.test_console_browser_edits import SPOT
from bus.test_console_tables import CELLS, MANY, TABLE, grown
from bus.test_console_users import let_in
from console.view import nodes
from support.constants import A100

WIDE = "[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth).length"
OVERLAPS = """
[...document.querySelectorAll('tbody tr')].flatMap(row => {
  const boxes = [...row.querySelectorAll('th *, td *')].filter(e => !e.children.length)
    .map(e => [e.textContent, e.getBoundingClientRect()]).filter(([, box]) => box.width > 1);
  return boxes.flatMap(([one, a], at) => boxes.slice(at + 1).filter(([, b]) =>
    Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 &&
    Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 6).map(([other]) => [one, other]));
})
"""
WIDTHS = "[...document.querySelectorAll('thead th')].map(e => e.getBoundingClientRect().width)"
TOO_WIDE = """
[...document.querySelectorAll('tr > *')].filter(each => each.scrollWidth > each.clientWidth)
  .map(each => each.textContent)
"""
LONG = "nightly-evaluation-of-everything-we-have"


@in_browser
async def test_no_column_of_the_list_moves_whatever_comes_into_it(tmp_path: Path) -> None:
    async with console_at_work(tmp_path) as world, tab(world) as owner:
        # given a list with a NodePool at target
        await apply(world.operator, "train", A100, 1)
        await owner.open("/nodepools")
        await owner.sees("1 of 1")
        before = await owner.page.evaluate(WIDTHS)

        # when one with a longer name and a longer state comes
        await apply(world.operator, LONG, A100, 9_999)
        await owner.sees("Over quota")

        # then each column is as wide as before
        assert await owner.page.evaluate(WIDTHS) == before
        # and no text is wider than its cell, in a smaller window either
        for width in (1280, 1000, 901):
            await owner.page.set_viewport_size({"width": width, "height": 900})
            assert await owner.page.evaluate(TOO_WIDE) == [], width


@in_browser
async def test_an_open_table_of_nodes_is_filtered_while_one_types_and_stays_live(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "CELLS_MAX", CELLS)
    async with console_at_work(tmp_path) as world, tab(world) as owner:
        # given more Nodes than have a cell each, and a link to those of a state
        await grown(world, MANY)
        page, rows = owner.page, owner.page.locator("tr[data-row]")
        await owner.open(TRAIN)
        assert await owner.audit_in_each_theme() == []
        await page.get_by_role("link", name=f"Idle {MANY:,}").click()
        await owner.sees(f"Rows 1 to 100 of {MANY:,}")
        await owner.open(TABLE)
        await page.get_by_role("link", name="Next", exact=True).click()
        await owner.is_at(f"{TABLE}&page=2")
        name = (await rows.first.get_attribute("id") or "").removeprefix("node-")

        # when the name of a Node is typed, then its row alone is left, and the address says so
        await page.keyboard.press("/")
        await page.keyboard.type(name)
        await owner.is_at(f"{TABLE}&q={name}")
        await owner.sees("Idle")
        await expect(rows).to_have_count(1)
        # and it stays live
        await world.operator.nodes.cordon("train", name)
        await owner.sees("Cordoned")

        # and on a small screen nothing is cut off
        await page.set_viewport_size(SMALL)
        assert await page.evaluate("document.documentElement.scrollWidth") <= SMALL["width"]
        assert await owner.audit_in_each_theme() == []
        assert owner.faults == []
        assert CLUSTER in await page.locator(".crumb").inner_text()


@in_browser
async def test_tables_can_be_read_on_a_phone_without_scrolling_sideways(tmp_path: Path) -> None:
    async with (
        console_at_work(tmp_path) as world,
        tab(world, viewport=SMALL) as owner,
        tab(world, "operator", org="", viewport=SMALL) as operator,
    ):
        # given quotas that are used, an ended preemption, and events
        await world.operator.nodepools.apply(SPOT)
        await world.operator.nodepools.wait("spot", "AtTarget")
        node = (await world.operator.nodes.list())[0].key
        await world.operator.nodes.preempt("spot", node)
        await world.operator.nodes.acknowledge_preemption("spot", node)
        await owner.open("/preemptions")
        await owner.sees("1 ended")
        end = await world.operator.events.newest_position()
        await apply(world.operator, "large", A100, 900)
        await owner.open("/organisation")
        await owner.sees("waits for 900")

        # when each table is shown on a phone
        pages = [
            (owner, "/organisation", ("Limit", "Left", "Waiting", "Held by")),
            (owner, "/preemptions", ("Drained after", "Late by", "Pods lost")),
            (owner, f"/events/{CLUSTER}/{end}", ()),
            (owner, "/events", ()),
            (owner, f"/nodes/{CLUSTER}/{node}", ()),
            (owner, f"{TRAIN.replace('train', 'spot')}?by=table", ()),
            (operator, "/fleet", ("Free", "Held back", "In triage", "Machines")),
            (operator, "/system", ()),
        ]
        for user, path, labels in pages:
            await user.open(path)
            await user.page.locator("main table").first.wait_for()

            # then nothing is beside the screen, nothing covers another text, and numbers are named
            assert await user.page.evaluate(WIDE) == 0, path
            width = await user.page.evaluate("document.documentElement.scrollWidth")
            assert width <= SMALL["width"], path
            assert await user.page.evaluate(OVERLAPS) == [], path
            for label in labels:
                shown = user.page.locator(f"td[data-l='{label}']").first
                await shown.scroll_into_view_if_needed()
                box = await shown.bounding_box()
                assert box is not None, (path, label)
                assert 0 <= box["x"] <= box["x"] + box["width"] <= SMALL["width"], (path, label)
            assert await user.audit_in_each_theme() == [], path
            assert user.faults == []
            # and neither on wider screens
            for wider in (620, 730, 800, 910):
                await user.page.set_viewport_size({"width": wider, "height": 800})
                assert await user.page.evaluate(WIDE) == 0, (path, wider)
            await user.page.set_viewport_size(SMALL)


@in_browser
async def test_the_users_can_be_read_on_any_screen(tmp_path: Path) -> None:
    async with console_at_work(tmp_path) as world, tab(world) as owner:
        for number in range(12):
            let_in(world, ORG, f"a-person-with-a-very-long-name.{number:02}@example.com", "viewer")
        await owner.open("/organisation")
        await owner.sees("a-person-with-a-very-long-name.11@example.com")

        await owner.page.set_viewport_size(SMALL)

        assert await owner.page.evaluate("document.documentElement.scrollWidth") <= SMALL["width"]
        assert await owner.audit_in_each_theme() == []
        assert owner.faults == []
