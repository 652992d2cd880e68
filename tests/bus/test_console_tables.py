"""Long tables of the console: paged, filtered, and all of it in the address."""

import re
from pathlib import Path

import pytest

from bus.accounts import OTHER_ORG
from bus.consoles import World, console_at_work
from bus.harness import until
from bus.test_console import TRAIN, apply, read_until
from console.host import happenings
from console.view import nodes
from nodepool.auth.accounts import OPERATOR
from nodepool.client import Client
from nodepool.contract.commands import AddMachines
from support.constants import H100, ZONE

CELLS = 150
"""The number of Nodes that a page shows as cells in the stories about long tables."""
MANY = CELLS + 70
"""More Nodes than a page shows as cells or has rows for."""
ROW = re.compile(r'<tr role="row" data-row id="node-([^"]+)"')
EVENT = re.compile(r'id="event-([0-9]+)"')
TABLE = f"{TRAIN}?by=table"


async def grown(world: World, count: int) -> None:
    """Have a NodePool with this many Nodes."""
    await world.operator.quotas.set(ZONE, H100, count)
    add = AddMachines(zone=ZONE, instance_type=H100, count=count, boot_seconds=0)
    await world.operator.commands.send(add)
    await apply(world.operator, "train", H100, count)
    await world.operator.nodepools.wait("train", "AtTarget", timeout_s=90)


async def test_a_nodepool_with_more_nodes_than_cells_shows_each_of_them_in_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "CELLS_MAX", CELLS)
    async with console_at_work(tmp_path) as world:
        # given more Nodes than have a cell each
        await grown(world, MANY)
        viewer = await world.browser("viewer")
        # and none of them changes its state, and with it its row, while they are read
        await read_until(viewer, f"{TABLE}&q=idle", f"of {MANY:,}")

        # when their table is read without a script, from page to page
        page = await read_until(viewer, TABLE, f"of {MANY:,}")
        found = ROW.findall(page)
        assert len(found) == 100
        while following := re.search(r'href="([^"]+)">Next<', page):
            page = (await viewer.get(following[1].replace("&amp;", "&"))).text
            found += ROW.findall(page)

        # then each Node has one row
        assert len(found) == len(set(found)) == MANY
        # and a filter and a page are in the address, and other pages keep the filter
        (only,) = ROW.findall((await viewer.get(f"{TABLE}&q={found[-1]}")).text)
        assert only == found[-1]
        page = (await viewer.get(f"{TABLE}&q=idle&page=2")).text
        assert f"Rows 101 to 200 of {MANY:,}" in page
        assert f'href="{TRAIN}?by=table&amp;q=idle&amp;page=3">Next<' in page
        # and a page after the last one is the last one
        last = (await viewer.get(f"{TABLE}&page=9999")).text
        assert ROW.findall(last) == found[-(MANY % 100) :]
        assert "None of the" in (await viewer.get(f"{TABLE}&q=nothing")).text
        # and a count of Nodes leads to them
        counted = re.search(rf'href="({TRAIN}\?by=table[^"]+)"', (await viewer.get(TRAIN)).text)
        assert counted is not None
        assert len(ROW.findall((await viewer.get(counted[1].replace("&amp;", "&"))).text)) == 100

        # given all of their events, which the console reads in the order of the log
        await apply(world.operator, "last", H100, 0)
        await read_until(viewer, "/events?name=last", "CWNodePoolCreated")

        # when older events are asked for, then pages have them, and keep the filter
        asked = "/events?q=registered&kind=Node"
        page = await read_until(viewer, asked, "Rows 1 to 100 of")
        first = EVENT.findall(page)
        following = re.search(r'href="([^"]+kind=Node&amp;page=2&amp;until=\d+)">Next<', page)
        assert following is not None
        second = EVENT.findall((await viewer.get(following[1].replace("&amp;", "&"))).text)
        assert len(first) == len(second) == 100
        assert min(map(int, first)) > max(map(int, second))


async def test_events_of_an_organisation_are_there_however_busy_its_neighbour_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(happenings, "BACK", 20)
    async with console_at_work(tmp_path) as world:
        # given an event, and then many messages of another organisation
        await apply(world.operator, "train", H100, 1)
        await world.operator.nodepools.wait("train", "AtTarget")
        access = world.server.access(OPERATOR)
        async with Client(world.server.url, org=OTHER_ORG, access=access) as neighbour:
            for limit in range(30):
                await neighbour.quotas.set(ZONE, H100, limit)

        # when a user opens the page of events for the first time, then the event is there
        viewer = await world.browser("viewer")
        shown = await read_until(viewer, "/events", "CWNodeRegistered")

        # and so is each event before it, once
        found = EVENT.findall(shown)
        assert len(set(found)) == len(found)
        assert "CWNodePoolCreated" in shown

        # and new events follow
        await world.operator.nodepools.scale("train", 2)

        async def are_there_more() -> bool:
            newer = EVENT.findall((await viewer.get("/events")).text)
            return len(newer) > len(found) and newer[-len(found) :] == found

        await until(are_there_more)
