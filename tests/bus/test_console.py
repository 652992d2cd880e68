"""The console as a browser without scripts meets it: a real server, gateway and every service."""

import asyncio
import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from bus.accounts import CLUSTER, ORG, OTHER_ORG
from bus.consoles import Browser, console_at_work
from bus.harness import PATIENCE_S, until
from console.host import mirror
from nodepool.client import Client
from nodepool.contract.console_metrics import OF_THE_CONSOLE
from nodepool.contract.documents import field
from support.constants import A100, H100
from testbed.pages import page

MANIFEST = """\
apiVersion: compute.coreweave.com/v1alpha1
kind: NodePool
metadata: {{name: {name}, annotations: {{note: "{note}"}}}}
spec: {{instanceType: {type}, targetNodes: {target}}}
"""
SCRIPT = "<script>alert(1)</script>"
TRAIN = f"/nodepools/{CLUSTER}/train"


async def apply(client: Client, name: str, kind: str, target: int, note: str = "") -> None:
    """Create a NodePool."""
    await client.nodepools.apply(MANIFEST.format(name=name, type=kind, target=target, note=note))


async def read_until(browser: Browser, path: str, *texts: str) -> str:
    """The page at a path, once it has all of these texts."""
    seen = ""

    async def has_all() -> bool:
        nonlocal seen
        seen = (await browser.get(path)).text
        return all(text in seen for text in texts)

    try:
        await until(has_all)
    except TimeoutError:
        pytest.fail(f"{path} has not {texts}: {seen[-3000:]}")
    return seen


async def test_the_pages_show_what_the_organisation_has_and_why_it_lacks_nodes(
    tmp_path: Path,
) -> None:
    async with console_at_work(tmp_path) as world:
        # given an organisation without a NodePool
        browser = await world.browser("owner")

        # when its owner comes first, then the page says what to do
        first = await browser.get("/nodepools")
        assert "No NodePools yet" in first.text
        assert "nodepool create nodepool first" in first.text

        # when one NodePool is at its target, and another wants more than the quota allows
        await apply(world.operator, "train", H100, 2)
        await apply(world.operator, "large", A100, 9, SCRIPT)
        await world.operator.nodepools.wait("train", "AtTarget")

        # then the list says who must act, why, and what helps
        shown = ("Over quota", "At target", "exceeds quota 6", "Helps: Raise the quota")
        counted = ("1 of 2 NodePools is short of Nodes", "(1) NodePools")
        await read_until(browser, "/nodepools", *shown, *counted)

        # and the filter is in the address
        assert "large" not in (await browser.get("/nodepools?state=well")).text.split("<table")[1]
        assert "Nothing matches" in (await browser.get("/nodepools?q=nothing")).text

        # and the page of each has the sentence of `explain`, its evidence, and a way out
        large = await read_until(
            browser, f"/nodepools/{CLUSTER}/large", "Quota is Over", "Evidence"
        )
        assert "nodepool explain nodepool large --cluster prod" in large
        assert f'href="/nodepools/{CLUSTER}/large/scale?target=6"' in large
        position = re.search(rf'href="(/events/{CLUSTER}/[0-9]+)"', large)
        assert position is not None
        assert (await browser.get(position[1])).status == 200

        # and the page of a Node tells its history
        train = await read_until(browser, TRAIN, "nothing blocks it", "CWNodeRegistered")
        node = re.search(rf'href="(/nodes/{CLUSTER}/[^"/]+)"', train)
        assert node is not None
        await read_until(browser, node[1], "CWNodeRegistered")
        assert 'value="yes" checked' in (await browser.get(f"{node[1]}/drain?force=yes")).text
        assert " checked" not in (await browser.get(f"{node[1]}/drain")).text.split("</form>")[-2]

        # and what users write is shown as text
        yaml = (await browser.get(f"/nodepools/{CLUSTER}/large/yaml")).text
        assert SCRIPT not in yaml
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in yaml

        # and events, quotas, preemptions and capacity have a page each
        await read_until(browser, "/events", "CWOverQuota")
        assert "Nothing matches" in (await browser.get("/events?q=nothing")).text
        await read_until(browser, "/organisation", "waits for 9")
        assert "No Node is being preempted" in (await browser.get("/preemptions")).text
        found = await browser.get(f"/capacity?type={A100}&count=2")
        assert "Your cluster prod is here" in found.text
        assert "Give a number" in (await browser.get(f"/capacity?type={A100}&count=x")).text

        # and the metrics say who looks
        metrics = await asyncio.to_thread(page, f"http://127.0.0.1:{world.console.port}/metrics")
        assert [m.name for m in OF_THE_CONSOLE if f"# HELP {m.name} {m.help}" not in metrics] == []
        assert 'nodepool_console_sessions{nodepool_service="console"} 1.0' in metrics

        # and nothing is there that is not there
        for path in (
            f"/nodepools/{CLUSTER}/none",
            f"/nodes/{CLUSTER}/none",
            "/none",
            "/events/a/1",
        ):
            assert (await browser.get(path)).status == 404, path


async def test_a_form_does_what_it_says_in_the_name_of_its_user(tmp_path: Path) -> None:
    async with console_at_work(tmp_path) as world:
        browser = await world.browser("editor")

        # when the form for a NodePool has faults, then each is said beside its field
        fields = {"name": "Night_ly", "cluster": CLUSTER, "type": H100, "target": "x"}
        rest = {"labels": SCRIPT, "taints": "a=b:Never", "do": "create"}
        await browser.get("/create")
        refused = await browser.post("/create", {**fields, **rest})
        assert refused.status == 422
        assert 'id="name-fault"' in refused.text
        assert 'id="target-fault"' in refused.text
        assert 'id="labels-fault"' in refused.text
        assert 'id="taints-fault"' in refused.text
        assert 'value="Night_ly"' in refused.text
        assert SCRIPT not in refused.text

        # and a target above the quota would be accepted, and wait until the quota has room for it
        right = {**fields, "name": "nightly", "target": "2", "class": "spot"}
        high = await browser.post("/create", {**right, "target": "9", "do": "check"})
        assert '<span class="st wait"><span class="sh" aria-hidden="true"></span>' in high.text
        assert "Would wait for quota" in high.text
        assert "A target of 8 would fit." in high.text

        # when it is checked, then nothing is created; when it is sent, it is
        checked = await browser.post("/create", {**right, "do": "check"})
        assert "Would be accepted" in checked.text
        assert await world.operator.nodepools.get("nightly") is None
        created = await browser.post("/create", {**right, "do": "create"})
        assert (created.status, created.headers["location"]) == (
            303,
            f"/nodepools/{CLUSTER}/nightly",
        )
        await world.operator.nodepools.wait("nightly", "AtTarget")

        # and what only the server finds is said beside the field, too: the name is taken now
        taken = await browser.post("/create", {**right, "do": "check"})
        assert (taken.status, 'id="name-fault"' in taken.text) == (422, True)
        assert "Would be refused" in taken.text

        # when it is scaled, then its target is another one
        pool = f"/nodepools/{CLUSTER}/nightly"
        await read_until(browser, f"{pool}/scale?target=1", "+   targetNodes: 1")
        high = await browser.post(f"{pool}/scale", {"target": "9", "do": "check"})
        assert "Would wait for quota" in high.text
        assert "Would be accepted" not in high.text
        done = await browser.post(f"{pool}/scale", {"target": "1", "before": "2", "do": "scale"})
        assert done.status == 303
        await world.operator.nodepools.catch_up()
        document = await world.operator.nodepools.get("nightly")
        assert document is not None
        assert field(document, "spec", "targetNodes") == 1

        # and a user with an older page is told that another user has changed the target
        await read_until(browser, pool, "</b> <small>of 1</small>")
        late = await browser.post(f"{pool}/scale", {"target": "5", "before": "2", "do": "scale"})
        assert "another user changed the target from" in late.text

        # when a Node is cordoned, then it is
        async def is_one_left() -> bool:
            return len(await world.operator.nodes.list()) == 1

        await until(is_one_left)
        node = f"/nodes/{CLUSTER}/{(await world.operator.nodes.list())[0].key}"
        cordoned = await browser.post(f"{node}/cordon", {"do": "cordon"})
        assert cordoned.status == 303, cordoned.text
        await read_until(browser, node, "AdminCordon", f"{ORG}/editor")

        # and an editor may not delete; an owner may, who types the name
        assert "may not delete NodePools" in (await browser.get(f"{pool}/delete")).text
        owner = await world.browser("owner")
        await owner.get(f"{pool}/delete")
        assert (await owner.post(f"{pool}/delete", {"name": "night", "do": "delete"})).status == 422
        gone = await owner.post(f"{pool}/delete", {"name": "nightly", "do": "delete"})
        assert (gone.status, gone.headers["location"]) == (303, "/nodepools")
        said = f"{CLUSTER}/nightly is being deleted: 1 Node to be drained and given back."
        assert said in (await owner.get("/nodepools")).text
        assert said not in (await owner.get("/nodepools")).text
        await world.operator.nodepools.wait_until_gone("nightly")
        await read_until(owner, "/nodepools", "No NodePools yet")


async def test_nobody_comes_in_or_does_anything_by_another_way(tmp_path: Path) -> None:
    async with console_at_work(tmp_path) as world:
        await apply(world.operator, "train", H100, 1)
        stranger = Browser(world.console.url)

        # given nobody has signed in, then every page leads to the login, and back by its address
        answer = await stranger.get("/nodepools?q=a")
        assert (answer.status, answer.headers["location"]) == (
            303,
            "/login?next=%2Fnodepools%3Fq%3Da",
        )
        assert (await stranger.get("/live?view=/nodepools")).status == 403
        assert (await stranger.get("/login?token=guessed")).status == 403

        # when a link is used, then a new session begins, the link is spent, and leads nowhere else
        link = world.link("owner")
        name = f"nodepool-console-{urlsplit(world.console.url).port}"
        stranger.cookies[name] = "known-before"
        entered = await stranger.get(f"{link}&next=//evil.example/")
        assert (entered.status, entered.headers["location"]) == (303, "/nodepools")
        assert "known-before" not in stranger.cookie
        assert "httponly" in entered.headers["set-cookie"].lower()
        assert (await Browser(world.console.url).get(link)).status == 403
        assert (tmp_path / "links" / f"{ORG}.owner").stat().st_mode & 0o077 == 0

        # and every answer says what it may load, and that nobody may frame or keep it
        page = await read_headers(stranger, "/nodepools")
        assert "script-src 'nonce-" in page["content-security-policy"]
        assert "unsafe" not in page["content-security-policy"]
        assert page["x-frame-options"] == "DENY"
        assert page["cache-control"] == "no-store"

        # and a form of another site, of no known site, or of another session changes nothing
        await read_until(stranger, TRAIN, "At target")
        scaled = {"target": "7", "before": "1", "do": "scale"}
        path = f"{TRAIN}/scale"
        for site in ({"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}):
            assert (await stranger.post(path, scaled, **site)).status == 403
        evil = {"Sec-Fetch-Site": "", "Origin": "http://evil.example"}
        assert (await stranger.post(path, scaled, **evil)).status == 403
        stranger.form_token = "another"
        stale = await stranger.post(path, scaled)
        assert "made in an earlier session" in stale.text
        assert 'value="7"' in stale.text

        # and neither another host, nor a large form, nor another method is answered
        assert (await stranger.get("/nodepools", Host="evil.example")).status == 421
        assert (await stranger.post(path, {"target": "7" * 270_000})).status == 413
        assert (await stranger.get(f"/nodepools?q={'a' * 5_000}")).status == 414

        # and neither a header of a proxy nor the address of a file changes an answer or keeps it
        for name in ("X_Forwarded_Host", "X_Forwarded_Prefix", "X_Original_URL", "Forwarded"):
            given = await Browser(world.console.url).get("/nodepools", **{name: "evil.example"})
            assert given.headers["location"] == "/login?next=%2Fnodepools", name
            assert "evil.example" not in f"{given.text}{given.headers}", name
        for name in ("/nodepools/style.css", f"{TRAIN}/icon.svg", f"{TRAIN}%2Fstyle.css"):
            assert (await read_headers(stranger, name))["cache-control"] == "no-store", name

        # and another organisation sees nothing of it
        other = await world.browser("owner", OTHER_ORG)
        assert "No NodePools yet" in (await other.get("/nodepools")).text
        for hidden in (TRAIN, f"{TRAIN}/yaml", f"{TRAIN}/scale", f"/events/{CLUSTER}/5"):
            assert (await other.get(hidden)).status == 404, hidden

        # and a viewer is offered nothing that changes anything, and may send none of it
        viewer = await world.browser("viewer")
        shown = await read_until(viewer, TRAIN, "At target")
        assert "/scale" not in shown
        assert "/delete" not in shown
        for action in ("/create", f"{TRAIN}/scale", f"{TRAIN}/delete"):
            denied = await viewer.post(action, scaled)
            assert denied.status == 403, action
            assert "Ask an editor or an owner" in denied.text or "Ask an owner" in denied.text
        document = await world.operator.nodepools.get("train")
        assert document is not None
        assert field(document, "spec", "targetNodes") == 1

        # when the session ends in the middle of a form, then nothing that was typed is lost
        editor = await world.browser("editor")
        await editor.get("/create")
        await editor.post("/logout", {})
        expired = await editor.post("/create", {"name": "kept", "labels": SCRIPT})
        assert expired.status == 401
        assert 'name="name" value="kept"' in expired.text
        assert SCRIPT not in expired.text

        # when the key of a user is gone, then so are the link and the session
        (tmp_path / "keys" / ORG / "viewer.nk").unlink()

        async def is_out() -> bool:
            return (await viewer.get("/nodepools")).status == 303

        await until(is_out)
        assert not (tmp_path / "links" / f"{ORG}.viewer").exists()


async def read_headers(browser: Browser, path: str) -> dict[str, str]:
    """The headers of a page, with their names in lower case."""
    return {name.lower(): text for name, text in (await browser.get(path)).headers.items()}


async def test_an_open_page_follows_what_happens_and_says_when_it_cannot(tmp_path: Path) -> None:
    async with console_at_work(tmp_path) as world:
        await apply(world.operator, "train", H100, 1)
        browser = await world.browser("owner")
        await read_until(browser, "/nodepools", "At target")
        async with frames(browser, "/nodepools") as stream:
            # given a page is open, then its first frame is the whole page
            assert "At target" in await frame_with(stream, "train")

            # when the target changes, then the next frame shows that
            await world.operator.nodepools.scale("train", 3)
            await frame_with(stream, '</b> <span class="d">of</span> 3')

            # when the bus dies, then the page says since when it is not live, and offers no action
            await asyncio.to_thread(world.server.kill)
            await frame_with(stream, "Not live since")
            lost = await read_until(browser, "/nodepools", "Not live since", "actions are off")
            assert re.search(r"</b> [A-Z]", lost.partition('id="band"')[2])
            assert "Create NodePool" not in lost

            # and when it is back, then the page is current again
            world.server.start()
            await frame_without(stream, "Not live since")
            await read_until(browser, "/nodepools", "Create NodePool")


async def test_a_page_says_that_there_is_no_answer_yet_until_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror, "READY_S", 0.2)
    async with console_at_work(tmp_path) as world:
        await apply(world.operator, "train", H100, 1)
        browser = await world.browser("owner")
        typed = {"target": "7", "before": "1", "do": "scale"}

        # when the bus does not answer from the beginning, then no page says that nothing is there
        await asyncio.to_thread(world.server.kill)
        for path in ("/nodepools", TRAIN, "/organisation", "/events"):
            answer = await browser.get(path)
            assert (answer.status, "No answer yet" in answer.text) == (503, True), path
            assert "No NodePools yet" not in answer.text

        # and what is typed meanwhile is kept
        kept = await browser.post(f"{TRAIN}/scale", typed)
        assert (kept.status, 'name="target" value="7"' in kept.text) == (503, True)

        # and an open page fills once there is an answer
        async with frames(browser, "/nodepools") as stream:
            await frame_with(stream, "No answer yet")
            world.server.start()
            await frame_with(stream, "train")
        assert (await browser.get(TRAIN)).status == 200


class Frames:
    """The frames of an open page."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader

    async def next(self) -> str:
        """The next frame."""
        lines = list[str]()
        while True:
            line = (await self._reader.readline()).decode().rstrip("\r\n")
            assert line or lines or not self._reader.at_eof(), "the stream has ended"
            if line.startswith("data: "):
                lines.append(line.removeprefix("data: "))
            elif not line and lines:
                return "\n".join(lines)

    async def left(self) -> None:
        """Return once the stream has ended."""
        while await self._reader.readline():
            pass


class frames:  # noqa: N801  # It reads as a function.
    """The stream of a page of a console, as a browser opens it."""

    def __init__(self, browser: Browser, path: str) -> None:
        self._port = int(browser.base.rpartition(":")[2])
        self._browser, self._path = browser, path

    async def __aenter__(self) -> Frames:
        reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 20)
        head = f"GET /live?view={self._path} HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\n"
        self._writer.write(f"{head}Cookie: {self._browser.cookie}\r\n\r\n".encode())
        return Frames(reader)

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()


async def frame_with(stream: Frames, text: str) -> str:
    """The first frame that has a text."""
    async with asyncio.timeout(PATIENCE_S):
        while text not in (frame := await stream.next()):
            pass
    return frame


async def frame_without(stream: Frames, text: str) -> str:
    """The first frame that has not a text."""
    async with asyncio.timeout(PATIENCE_S):
        while text in (frame := await stream.next()):
            pass
    return frame
