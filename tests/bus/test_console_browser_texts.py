"""Every text that a user can set, shown by a real browser: as text, wherever it is shown."""

from pathlib import Path
from urllib.parse import quote

from playwright.async_api import Page

from bus.accounts import CLUSTER, ORG
from bus.browsers import Tab, in_browser, tab
from bus.consoles import World, console_at_work
from nodepool.auth.accounts import OPERATOR
from nodepool.client import Client
from nodepool.client.audit import Wanted
from nodepool.contract.commands import BreakMachine, CordonNode
from support.constants import H100, ZONE

EVIL = "<img src=evil onerror=alert(1)>'\"{{7*7}}</title></script><script>alert(2)</script>"
MANIFEST = {
    "apiVersion": "compute.coreweave.com/v1alpha1",
    "kind": "NodePool",
    "metadata": {"name": "train", "annotations": {"note": EVIL}},
    "spec": {"instanceType": H100, "computeClass": "spot", "targetNodes": 3},
}
TRAIN = f"/nodepools/{CLUSTER}/train"


async def write_everywhere(world: World) -> tuple[str, str, int]:
    """Set each text that has no rule of its own; return two Nodes and a position with them."""
    operator = world.operator
    await operator.nodepools.apply(MANIFEST)
    await operator.nodepools.wait("train", "AtTarget")
    cordoned, broken, preempted = sorted(each.key for each in await operator.nodes.list())
    cordon = CordonNode(org=ORG, cluster=CLUSTER, pool="train", node=cordoned, reason=EVIL)
    await operator.commands.send(cordon)
    breaks = BreakMachine(zone=ZONE, machine=broken, fault="gpu-lost", cause=EVIL)
    await operator.commands.send(breaks)
    url, access = world.server.url, world.server.access(OPERATOR)
    async with Client(url, org=ORG, cluster=CLUSTER, source=EVIL, access=access) as program:
        await program.nodes.preempt("train", preempted)
    records = (await operator.audit.read(Wanted())).all()
    position = next(each.position for each in records if each.source.startswith(EVIL))
    return cordoned, broken, position


async def check(user: Tab) -> None:
    """Fail if anything of the text has become an element, or has run."""
    page = user.page
    assert await page.locator("[src=evil], [onerror]").count() == 0, page.url
    assert await page.locator("script:not([nonce])").count() == 0, page.url
    assert "49&lt;/title" not in await page.content(), page.url


@in_browser
async def test_what_users_write_is_text_on_every_page_and_in_every_form(tmp_path: Path) -> None:
    async with console_at_work(tmp_path) as world:
        cordoned, broken, position = await write_everywhere(world)
        async with tab(world) as owner, tab(world, "operator", org="") as operator:
            dialogs = list[str]()
            for user in (owner, operator):
                user.page.on("dialog", lambda dialog: dialogs.append(dialog.message))
            typed = quote(EVIL)

            # when every page is opened, then what was written is text
            for path, text in (
                (f"/nodes/{CLUSTER}/{cordoned}", EVIL),
                (f"{TRAIN}/yaml", EVIL),
                (f"/events/{CLUSTER}/{position}", EVIL),
                ("/events", EVIL),
                ("/nodepools", "train"),
                (TRAIN, cordoned),
                (f"{TRAIN}?by=table", EVIL),
                (f"/nodes/{CLUSTER}/{broken}", broken),
                ("/preemptions", "train"),
                ("/organisation", "train"),
            ):
                await owner.open(path)
                await owner.sees(text)
                await check(owner)
            for path in ("/system", "/fleet"):
                await operator.open(path)
                await operator.sees(path.replace("/system", "Services").replace("/fleet", ZONE))
                await check(operator)

            # and so is what an address says
            for path in (
                f"/nodepools?q={typed}&state={typed}&by={typed}&sort={typed}",
                f"/events?q={typed}&kind={typed}&cluster={typed}&name={typed}",
                f"/capacity?type={typed}&count={typed}",
                f"/create?name={typed}&labels={typed}&taints={typed}&type={typed}",
                f"{TRAIN}/scale?target={typed}",
                f"{TRAIN}?by=table&q={typed}",
                f"/nodepools/{CLUSTER}/{typed}",
                f"/nodes/{typed}/{typed}",
                f"/events/{CLUSTER}/{typed}",
                f"/nodepools?at={typed}",
                f"/login?next={typed}",
            ):
                await owner.open(path)
                await check(owner)

            # and what is typed into a form that is refused
            for path, fields, button in (
                ("/create", ("Name", "Node labels", "Node taints", "Target, in Nodes"), "Create"),
                (f"{TRAIN}/edit", ("Node labels", "Node taints", "Target, in Nodes"), "Save"),
                (f"{TRAIN}/edit?as=yaml", ("Manifest",), "Save"),
                (f"{TRAIN}/scale", ("Target, in Nodes",), "Scale"),
                (f"{TRAIN}/delete", ("Type train to delete it",), "Delete"),
            ):
                await owner.open(path)
                await send(owner.page, fields, button)
                await owner.page.locator(".err").first.wait_for()
                await check(owner)

            assert dialogs == []
            noise = ("status of 404", "status of 422")
            assert [e for e in owner.faults if not any(each in e for each in noise)] == []
            assert operator.faults == []


async def send(page: Page, fields: tuple[str, ...], button: str) -> None:
    """Type the text into fields and send their form."""
    for field in fields:
        await page.get_by_label(field, exact=True).fill(EVIL)
    await page.locator(f"button.b.p:has-text('{button}'), button.b.x").first.click()
