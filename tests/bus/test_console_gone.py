"""What the console says of NodePools and Nodes that have left, and what it offers to whom."""

from pathlib import Path

from bus.accounts import CLUSTER, ORG, OTHER_ORG
from bus.consoles import console_at_work
from bus.harness import until
from bus.test_console import apply, read_until
from support.constants import H100


async def test_links_to_what_has_left_say_when_and_where_its_events_are(tmp_path: Path) -> None:
    async with console_at_work(tmp_path) as world:
        # given a NodePool that gives one of two Nodes back
        await apply(world.operator, "train", H100, 2)
        await world.operator.nodepools.wait("train", "AtTarget")
        before = {node.key for node in await world.operator.nodes.list()}
        owner, train = await world.browser("owner"), f"/nodepools/{CLUSTER}/train"
        await world.operator.nodepools.scale("train", 1)
        left = set[str]()

        async def is_one_gone() -> bool:
            left.update(before - {node.key for node in await world.operator.nodes.list()})
            return len(left) == 1

        await until(is_one_gone)

        # when a link leads to the Node, then its page says when it left, and which NodePool
        node = f"/nodes/{CLUSTER}/{left.pop()}"
        page = await read_until(owner, node, "This Node left the NodePool")
        assert f'<a href="{train}">train</a>' in page

        # when the NodePool is deleted, then its page says when, and what happened before
        await world.operator.nodepools.delete("train")
        page = await read_until(owner, train, "This NodePool was deleted")
        assert "CWNodePoolCreated" in page
        assert "after a command of <b>operator</b>" in page

        # and what never was has a sentence, and a link to where its events would be
        for kind, path in (("NodePool", "nodepools"), ("Node", "nodes")):
            never = await owner.get(f"/{path}/{CLUSTER}/none")
            events = f"/events?cluster={CLUSTER}&amp;kind={kind}&amp;name=none"
            assert (never.status, events in never.text) == (404, True)
        for path in (train, node):
            stranger = await world.browser("owner", OTHER_ORG)
            foreign = await stranger.get(path)
            assert (foreign.status, ORG in foreign.text) == (404, False)


async def test_a_viewer_is_offered_no_keys_to_change_what_others_may(tmp_path: Path) -> None:
    async with console_at_work(tmp_path) as world:
        await apply(world.operator, "train", H100, 1)
        train = f"/nodepools/{CLUSTER}/train"
        for role, is_offered in (("viewer", False), ("editor", True), ("owner", True)):
            browser = await world.browser(role)
            page = await read_until(browser, "/nodepools", "train")
            assert (f'data-scale="{train}/scale"' in page) is is_offered, role
            assert (f'data-edit="{train}/edit"' in page) is is_offered, role
            assert ("edit the selected NodePool" in page) is is_offered, role
            assert ("data-scale" in (await browser.get(train)).text) is is_offered, role
