"""Who belongs to an organisation, as its users see it in the console."""

import json
from pathlib import Path

import pytest

from bus.accounts import CLUSTER, ORG, OTHER_ORG
from bus.browsers import SMALL, in_browser, tab
from bus.consoles import World, console_at_work
from bus.guarded_gateway import ask, user
from bus.test_console import read_until
from bus.test_console_openid import signing_in
from nodepool.contract.actors import Member, members_in, members_text
from nodepool.contract.roles import Role

ANNA, OLAF = "anna.schmidt", "olaf"


def let_in(world: World, org: str, name: str, role: Role, cluster: str = "") -> None:
    """Add a user to the file that the gateway reads, as `nodepool auth` does."""
    file = world.folder / "members.json"
    known = members_in(file.read_text())
    new = Member(org, f"U{name.upper()}", name, role, cluster)
    file.write_text(members_text([*known.values(), new]))


async def test_users_see_who_belongs_to_their_organisation_and_nobody_else(tmp_path: Path) -> None:
    async with (
        console_at_work(tmp_path) as world,
        user(world.server, "agent") as agent,
        user(world.server, "other-viewer") as other,
    ):
        # given two organisations, each with a user of its own
        let_in(world, ORG, ANNA, "editor")
        let_in(world, OTHER_ORG, OLAF, "viewer")

        # when somebody of each looks, then the page has the users of the own organisation
        viewer = await world.browser("viewer")
        page = await read_until(viewer, "/organisation", f"{ANNA}</th><td>editor")
        assert "agent</th><td>agent <span" in page
        assert f"of cluster {CLUSTER}" in page
        assert 'viewer <span class="tag">you</span>' in page
        assert OLAF not in page
        assert "An operator of the platform adds users" in page
        stranger = await world.browser("owner", OTHER_ORG)
        page = await read_until(stranger, "/organisation", f"{OLAF}</th><td>viewer")
        assert ANNA not in page

        # and the gateway tells no more, and an agent nothing
        answer = await ask(other, f"np.api.{OTHER_ORG}.Users")
        assert ANNA not in json.dumps(answer)
        assert (await ask(agent, f"np.api.{ORG}.Users"))["reason"] == "Forbidden"

        # when a user is removed, then the page follows
        file = world.folder / "members.json"
        left = [each for each in members_in(file.read_text()).values() if each.name != ANNA]
        file.write_text(members_text(left))
        page = await read_until(viewer, "/organisation", "Users <small>4</small>")
        assert ANNA not in page


@pytest.mark.timeout(120)
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


async def test_with_openid_the_page_says_that_only_the_provider_knows_the_people(
    tmp_path: Path,
) -> None:
    async with signing_in(tmp_path) as (world, provider):
        page = (await (await world.browser("viewer")).get("/organisation")).text

        assert f"People sign in at {provider.issuer[7:]}, and work as one of these users." in page
        assert 'viewer <span class="tag">you</span>' in page
