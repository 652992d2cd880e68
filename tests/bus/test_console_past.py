"""The console as of a moment in the past: marked as such, without actions, and of nobody else."""

import re
from pathlib import Path
from urllib.parse import quote

import pytest

from bus.accounts import CLUSTER, OTHER_ORG
from bus.archives import archived_to
from bus.consoles import Browser, World, console_at_work
from bus.test_console import TRAIN, apply, read_until
from bus.test_console_rights import EDITOR, NOBODY, OF_ALL, OPERATOR, OTHER, OWNER, RIGHTS, VIEWER
from console.host.routes import PAGES, PAST
from console.host.signing_in import WAYS_IN
from nodepool.contract.documents import field
from support.constants import A100, H100, ZONE

pytest.importorskip("pyarrow", reason="needs the package pyarrow")

ACTION = re.compile(
    r'href="[^"]*/(?:scale|edit|delete|cordon|drain|preempt|create)[?"]|data-scale='
)
SPOT = f"""
apiVersion: compute.coreweave.com/v1alpha1
kind: NodePool
metadata: {{name: night}}
spec: {{instanceType: {H100}, computeClass: spot, targetNodes: 1}}
"""
LINK = re.compile(r'<a [^>]*href="(/[^"]*)"')
ONE, THREE = (f"{count} \N{MULTIPLICATION SIGN} " for count in (1, 3))
"""How the target of a NodePool is written."""


async def scaled(world: World) -> int:
    """Scale a NodePool from 1 to 3; a position at which it still had 1."""
    await apply(world.operator, "train", H100, 1)
    await world.operator.nodepools.wait("train", "AtTarget")
    then = await world.operator.events.newest_position()
    await world.operator.nodepools.scale("train", 3)
    await world.operator.nodepools.wait("train", "AtTarget")
    await archived_to(world.folder / "archive", await world.operator.events.newest_position())
    return then


async def test_pages_show_a_moment_marked_as_past_and_without_actions(tmp_path: Path) -> None:
    async with console_at_work(tmp_path, archives=True) as world:
        # given a NodePool that was scaled after a moment
        then = await scaled(world)
        owner = await world.browser("owner")
        now = await read_until(owner, TRAIN, THREE)
        past = (await owner.get(f"{TRAIN}?at={then}")).text
        node = re.search(rf"/nodes/{CLUSTER}/([^\"/?]+)", past)
        assert node is not None

        # when each page is asked for at that moment
        paths = ("/nodepools", TRAIN, f"{TRAIN}/yaml", f"/nodes/{CLUSTER}/{node[1]}")
        others = ("/events", f"/events/{CLUSTER}/{then}", "/organisation", "/preemptions")
        for path in (*paths, *others, "/capacity"):
            answer = await owner.get(f"{path}?at={then}&by=rack")
            page = answer.text

            # then it says which moment that is, how to go on from there, and offers no action
            assert answer.status == 200, (path, page)
            assert f"log position {then}" in page
            assert f'href="{path}?by=rack">Back to now' in page
            assert "1 h back" in page
            assert not ACTION.findall(page), path
            assert "hx-sse:connect" not in page
            # and its links stay at the moment, but those to others
            assert f'href="/nodepools?at={then}"' in page
            links = LINK.findall(page)
            assert [each for each in links if "at=" not in each] == [f"{path}?by=rack"]

        # and the older target is shown, with its command
        page = (await owner.get(f"{TRAIN}?at={then}")).text
        assert ONE in page
        assert THREE not in page
        assert f"nodepool explain nodepool train --cluster {CLUSTER} --at {then}" in page
        assert "Scale" in now
        # and the same by the time of the newest event until then
        events = [event async for event in world.operator.events.read()]
        time = max(event.time for event in events if event.position <= then)
        by_time = (await owner.get(f"{TRAIN}?at={quote(time.isoformat())}")).text
        assert "The past: " in by_time
        assert ONE in by_time
        # and events after the moment are not there yet
        events_then = (await owner.get(f"/events?at={then}")).text
        assert "CWNodePoolCreated" in events_then
        assert "CWNodePoolScaledUp" not in events_then


async def test_the_list_of_the_past_says_why_nodepools_were_not_well(tmp_path: Path) -> None:
    async with console_at_work(tmp_path, archives=True) as world:
        # given a NodePool that wanted more than its quota, and is mended since
        await apply(world.operator, "large", H100, 9)
        owner = await world.browser("owner")
        await read_until(owner, "/nodepools", "Over quota")
        then = await world.operator.events.newest_position()
        await world.operator.nodepools.scale("large", 2)
        await world.operator.nodepools.wait("large", "AtTarget")
        await archived_to(world.folder / "archive", await world.operator.events.newest_position())

        page = (await owner.get(f"/nodepools?at={then}")).text

        assert "Over quota" in page
        assert "targetNodes 9 exceeds quota 8" in page
        assert "Helps: Raise the quota" in page


async def test_what_the_past_does_not_have_is_refused_with_the_reason(tmp_path: Path) -> None:
    async with console_at_work(tmp_path, archives=True) as world:
        then = await scaled(world)
        owner, other = await world.browser("owner"), await world.browser("owner", OTHER_ORG)

        # when a moment is asked for that there is not, then the page says so
        for at, reason in (
            ("99999999", "there is no position 99999999"),
            ("0", "there is no position 0"),
            ("yesterday", "is no moment"),
            ("2999-01-01", "is in the future"),
            ("2001-01-01", "nothing is known of 2001"),
            ("<script>", "is no moment"),
        ):
            answer = await owner.get(f"/nodepools?at={quote(at)}")
            assert (answer.status, reason in answer.text) == (404, True), answer.text
            assert "<script>'" not in answer.text
        # and no form is shown or carried out at a moment
        assert (await owner.get(f"{TRAIN}/scale?at={then}")).status == 403
        sent = await owner.post(f"{TRAIN}/scale?at={then}", {"target": "5", "before": "3"})
        assert sent.status == 403
        document = await world.operator.nodepools.get("train")
        assert field(document, "spec", "targetNodes") == 3
        # and nothing is kept live
        assert (await owner.get(f"/live?view={quote(f'{TRAIN}?at={then}')}")).status == 403

        # and whoever belongs to another organisation sees nothing of it
        for path in ("/nodepools", TRAIN, "/events", "/organisation"):
            answer = await other.get(f"{path}?at={then}")
            assert answer.status == (404 if path == TRAIN else 200)
            assert H100 not in answer.text
            assert "CWNode" not in answer.text


async def test_without_an_archive_the_page_says_that_there_is_no_past(tmp_path: Path) -> None:
    async with console_at_work(tmp_path) as world:
        owner = await world.browser("owner")

        answer = await owner.get("/nodepools?at=5")

        assert answer.status == 404
        assert "the gateway shows no past: it has no archive" in answer.text
        # and no page offers it
        assert "Show the past" not in (await owner.get("/nodepools")).text


async def test_preemptions_and_capacity_are_shown_as_they_were_at_a_moment(tmp_path: Path) -> None:
    async with console_at_work(tmp_path, archives=True) as world:
        # given a NodePool whose only Node is being preempted, and free machines of another type
        await world.operator.nodepools.apply(SPOT)
        await world.operator.nodepools.wait("night", "AtTarget")
        node = (await world.operator.nodes.list())[0].key
        await world.operator.nodes.preempt("night", node)
        owner = await world.browser("owner")
        await read_until(owner, "/preemptions", "1 Node is being preempted")
        wanted = f"type={A100}&count=6"
        await read_until(owner, f"/capacity?{wanted}", "Likely available")
        then = await world.operator.events.newest_position()

        # when the Node is given back, and the machines are taken
        await world.operator.nodes.acknowledge_preemption("night", node)
        await read_until(owner, "/preemptions", "No Node is being preempted", "1 ended")
        await world.operator.capacity.reclaim(ZONE, A100, 6)
        await read_until(owner, f"/capacity?{wanted}", "Not available")
        await archived_to(tmp_path / "archive", await world.operator.events.newest_position())

        # then the moment is as it was
        page = (await owner.get(f"/preemptions?at={then}")).text
        assert "1 Node is being preempted" in page
        assert "1 ended" not in page
        assert "Give back now" not in page
        page = (await owner.get(f"/capacity?{wanted}&at={then}")).text
        assert "Likely available" in page
        assert "Create NodePool" not in page
        # and the way back asks for the same
        assert f'href="/capacity?type={A100}&amp;count=6">Back to now' in page


async def test_every_address_answers_each_role_about_the_past_as_it_may(tmp_path: Path) -> None:
    async with console_at_work(tmp_path, archives=True) as world:
        then = await scaled(world)
        users = {role: await world.browser(role) for role in (VIEWER, EDITOR, OWNER)}
        users[OPERATOR] = await world.browser("operator", "")
        users[OTHER] = await world.browser("owner", OTHER_ORG)
        users[NOBODY] = Browser(world.console.url)
        page = await read_until(users[OWNER], f"{TRAIN}?at={then}", f"/nodes/{CLUSTER}/")
        node = re.search(rf"/nodes/{CLUSTER}/([^\"/?]+)", page)
        assert node is not None
        found = dict[tuple[str, str], int]()
        # The ways in belong to no moment.
        for path in sorted(RIGHTS.keys() - set(WAYS_IN)):
            name = node[1] if path.startswith("/nodes/") else "train"
            address = path.format(cluster=CLUSTER, name=name, position=then)
            for user, now in RIGHTS[path].items():
                # when each user follows each link to a moment
                answer = await users[user].get(f"{address}?at={then}")

                # then a page of the past has the rights of the present
                expected = now
                if path not in PAST and user != NOBODY and (user, now) != (OPERATOR, 403):
                    # and no other page, and no form, has a past
                    expected = 404 if path in PAGES else 403
                if answer.status != expected:
                    found[user, path] = answer.status
                if user in (OTHER, OPERATOR, NOBODY):
                    assert H100 not in answer.text or path in OF_ALL, (user, path)
        assert found == {}
