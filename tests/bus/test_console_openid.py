"""People sign in to the console at an OpenID provider that somebody else has written."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html import unescape
from pathlib import Path

import pytest

from bus.accounts import CLUSTER
from bus.consoles import World, console_at_work
from bus.openid import Person, Provider, provider_for
from bus.test_console import apply, read_until
from console.host import provider as at_provider
from nodepool.client.audit import Wanted
from support.constants import H100
from testbed.ports import free_port

pytest.importorskip("canaille", reason="needs the packages of nodepool[provider]")


@asynccontextmanager
async def signing_in(folder: Path) -> AsyncIterator[tuple[World, Provider]]:
    """A console and its provider."""
    port = free_port()
    async with (
        provider_for(folder, f"http://127.0.0.1:{port}") as provider,
        console_at_work(folder, port=port, openid=provider.settings()) as world,
    ):
        yield world, provider


async def test_a_person_signs_in_works_and_signs_out(tmp_path: Path) -> None:
    async with signing_in(tmp_path) as (world, provider):
        await apply(world.operator, "train", H100, 1)
        await world.operator.nodepools.wait("train", "AtTarget")
        edith = Person(world.console.url, "edith")
        train = f"/nodepools/{CLUSTER}/train"

        # given a browser that comes with an address and an id of a session that others know
        led = await edith.browser.get(train)
        login = await edith.browser.get(led.headers["location"])
        assert f"Sign in with {provider.issuer[7:]}" in login.text
        name = f"nodepool-console-{world.console.url.rpartition(':')[2]}"
        edith.browser.cookies[name] = "known-before"

        # when its person signs in, then she is at that address, in a new session
        back = await edith.come_back(train)
        entered = await edith.browser.get(back)
        assert (entered.status, entered.headers["location"]) == (303, train)
        assert edith.browser.cookies.keys() == {name}
        assert edith.browser.cookies[name] != "known-before"
        page = await read_until(edith.browser, train, "edith", "At target")
        assert f"{train}/scale" in page

        # and the code counts once, in whatever browser
        other = Person(world.console.url, "edith")
        await other.come_back()
        replayed = await other.browser.get(back)
        assert replayed.status == 403

        # when she scales, then the audit has the user, and names her in the program
        await edith.browser.get(f"{train}/scale?target=2")
        fields = {"target": "2", "before": "1", "do": "save"}
        assert (await edith.browser.post(f"{train}/scale", fields)).status == 303
        record = (await world.operator.audit.read(Wanted(name="train"))).all()[-1]
        assert record.user == "acme/editor"
        assert record.source.startswith("nodepool-console/edith/")

        # when she signs out, then here, and a page leads on to the provider, which leads back
        out = await edith.browser.post("/logout", {})
        assert (await edith.browser.get(train)).status == 303
        found = re.search(r'<meta http-equiv="refresh" content="0; url=([^"]+)">', out.text)
        assert found is not None, out.text
        seen = await edith.visit_provider(unescape(found[1]))
        assert seen[-1] == f"{world.console.url}/login"
        # and so the provider asks her for the password again
        assert "known" not in await edith.come_back()


async def test_groups_lead_to_the_role_and_the_organisation(tmp_path: Path) -> None:
    async with signing_in(tmp_path) as (world, _):
        for name, home, shown in (
            ("olga", "/nodepools", "acme/owner (olga)"),
            ("edith", "/nodepools", "acme/editor (edith)"),
            ("victor", "/nodepools", "acme/viewer (victor)"),
            ("ursula", "/nodepools", "umbra/owner (ursula)"),
            ("otto", "/system", "operator (otto)"),
        ):
            person = Person(world.console.url, name)
            answer = await person.sign_in()
            assert answer.headers["location"] == home, name
            assert shown in (await person.browser.get(home)).text
        for name, text in (("nora", "no value that gives access"), ("nemo", "is missing")):
            person = Person(world.console.url, name)
            refused = await person.sign_in()
            assert (refused.status, "The claim groups" in refused.text) == (403, True)
            assert text in refused.text
            assert (await person.browser.get("/nodepools")).status == 303


async def test_the_provider_changes_its_key_and_is_gone_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(at_provider, "AGAIN_S", 0.0)
    monkeypatch.setattr(at_provider, "KNOWN_S", 0.0)
    async with signing_in(tmp_path) as (world, provider):
        olga = Person(world.console.url, "olga")
        assert (await olga.sign_in()).status == 303

        # when the provider is gone, then a page says so, sessions and links go on
        await provider.stop()
        victor = Person(world.console.url, "victor")
        gone = await victor.browser.get("/login/start")
        assert (gone.status, "does not answer" in gone.text) == (503, True)
        assert world.console.obstacle() is None
        assert (await olga.browser.get("/nodepools")).status == 200
        assert (await (await world.browser("editor")).get("/nodepools")).status == 200
        out = await olga.browser.post("/logout", {})
        assert (out.status, "may still know you" in out.text) == (200, True)

        # when it is back with a new key, then people sign in with it
        await provider.start()
        assert (await victor.sign_in()).status == 303


async def test_with_openid_the_page_says_that_only_the_provider_knows_the_people(
    tmp_path: Path,
) -> None:
    async with signing_in(tmp_path) as (world, provider):
        page = (await (await world.browser("viewer")).get("/organisation")).text

        assert f"People sign in at {provider.issuer[7:]}, and work as one of these users." in page
        assert 'viewer <span class="tag">you</span>' in page
