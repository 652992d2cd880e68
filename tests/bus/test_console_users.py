"""Who belongs to an organisation, as its users see it in the console."""

import json
from pathlib import Path

from bus.accounts import CLUSTER, ORG, OTHER_ORG
from bus.consoles import World, console_at_work
from bus.guarded_gateway import ask, user
from bus.test_console import read_until
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
        assert "<code>nodepool users</code>" in page
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
