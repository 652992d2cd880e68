"""Who may see and do what: every address of the console, for each role and organisation."""

import re
from collections.abc import Mapping
from pathlib import Path

from bus.accounts import CLUSTER, OTHER_ORG
from bus.consoles import Browser
from bus.test_console import apply, read_until
from bus.test_console_openid import signing_in
from console.host.routes import FORMS, PAGES, STILL
from console.host.signing_in import WAYS_IN
from nodepool.contract.documents import field
from support.constants import H100

NOBODY, VIEWER, EDITOR, OWNER, OPERATOR, OTHER = (
    *("nobody", "viewer", "editor", "owner", "operator"),
    "owner of another organisation",
)
EVERYBODY = (NOBODY, VIEWER, EDITOR, OWNER, OPERATOR, OTHER)
MEMBERS = {VIEWER: 200, EDITOR: 200, OWNER: 200, OPERATOR: 403, NOBODY: 303}
SHOWN = {**MEMBERS, OTHER: 200}
"""A page that everybody who belongs to an organisation has, each with what is its own."""
OWN = {**MEMBERS, OTHER: 404}
"""A page about an object of one organisation."""
CHANGES = {**OWN, VIEWER: 403}
OWNERS = {**CHANGES, EDITOR: 403}
OPERATORS = {**dict.fromkeys((VIEWER, EDITOR, OWNER, OTHER), 403), OPERATOR: 200, NOBODY: 303}
RIGHTS: Mapping[str, Mapping[str, int]] = {
    "/nodepools": SHOWN,
    "/nodepools/{cluster}/{name}": OWN,
    "/nodepools/{cluster}/{name}/yaml": OWN,
    "/nodes/{cluster}/{name}": OWN,
    "/events": SHOWN,
    "/events/{cluster}/{position}": OWN,
    "/preemptions": SHOWN,
    "/capacity": SHOWN,
    "/organisation": SHOWN,
    "/system": OPERATORS,
    "/fleet": OPERATORS,
    "/create": {**SHOWN, VIEWER: 403},
    "/nodepools/{cluster}/{name}/edit": CHANGES,
    "/nodepools/{cluster}/{name}/scale": CHANGES,
    "/nodepools/{cluster}/{name}/delete": OWNERS,
    "/nodes/{cluster}/{name}/cordon": CHANGES,
    "/nodes/{cluster}/{name}/uncordon": CHANGES,
    "/nodes/{cluster}/{name}/drain": CHANGES,
    "/nodes/{cluster}/{name}/reboot": CHANGES,
    "/nodes/{cluster}/{name}/acknowledge": CHANGES,
    "/nodes/{cluster}/{name}/preempt": OWNERS,
    "/system/dead/{position}": {**OPERATORS, OPERATOR: 404},
    "/login": dict.fromkeys(EVERYBODY, 200),
    "/login/start": dict.fromkeys(EVERYBODY, 303),
    "/login/callback": dict.fromkeys(EVERYBODY, 403),
    "/logout": dict.fromkeys(EVERYBODY, 404),
}
"""The status of each address for each user; without a dead letter there is none to see."""


OF_ALL = ("/capacity", "/create", "/fleet")
"""The pages that name instance types which belong to nobody."""


def test_every_address_is_in_the_matrix() -> None:
    paths = {*PAGES, *FORMS, *WAYS_IN} - {"/nodes/{cluster}/{name}/{verb}"}

    assert paths <= RIGHTS.keys()
    assert all(set(rights) == set(EVERYBODY) for rights in RIGHTS.values())


async def test_every_address_answers_each_role_and_organisation_as_it_may(tmp_path: Path) -> None:
    async with signing_in(tmp_path) as (world, _):
        await apply(world.operator, "train", H100, 1)
        await world.operator.nodepools.wait("train", "AtTarget")
        users = {role: await world.browser(role) for role in (VIEWER, EDITOR, OWNER)}
        users[OPERATOR] = await world.browser("operator", "")
        users[OTHER] = await world.browser("owner", OTHER_ORG)
        users[NOBODY] = Browser(world.console.url)
        train = f"/nodepools/{CLUSTER}/train"
        page = await read_until(users[OWNER], train, f"/nodes/{CLUSTER}/", "/events/")
        node = re.search(rf"/nodes/{CLUSTER}/([^\"/]+)", page)
        position = re.search(rf"/events/{CLUSTER}/([0-9]+)", page)
        assert node is not None
        assert position is not None
        found = dict[tuple[str, str], int]()
        for path, rights in RIGHTS.items():
            name = node[1] if path.startswith("/nodes/") else "train"
            address = path.format(cluster=CLUSTER, name=name, position=position[1])
            for user, expected in rights.items():
                # when each user follows each link, and opens what is kept live
                answer = await users[user].get(address)
                if answer.status != expected:
                    found[user, path] = answer.status
                # then nobody may keep or frame the answer, whoever gets it
                headers = {name.lower(): text for name, text in answer.headers.items()}
                assert headers["cache-control"] == "no-store", (user, path)
                assert headers["x-frame-options"] == "DENY", (user, path)
                policy = headers["content-security-policy"]
                assert "frame-ancestors 'none'" in policy, (user, path)
                assert "unsafe" not in policy, (user, path)
                # and what is another's is in no answer, whatever it says
                if user in (OTHER, OPERATOR, NOBODY) and expected != 303:
                    assert H100 not in answer.text or path in OF_ALL, (user, path)
            if path in PAGES and path not in STILL:
                assert (await users[NOBODY].get(f"/live?view={address}")).status == 403, path
        assert found == {}

        # when those who may not send the forms, then nothing changes, and each is told so
        fields = {"target": "5", "before": "1", "name": "train", "do": "save", "force": "yes"}
        for path in FORMS:
            name = node[1] if path.startswith("/nodes/") else "train"
            address = path.format(cluster=CLUSTER, name=name, position="5", verb="preempt")
            for user, browser in users.items():
                rights = RIGHTS[path.format(**SAME, verb="preempt")]
                if rights[user] in (403, 404):
                    answer = await browser.post(address, fields)
                    assert answer.status == rights[user], (user, path)
        assert (await users[NOBODY].post(f"{train}/scale", fields)).status == 401
        await world.operator.nodepools.catch_up()
        document = await world.operator.nodepools.get("train")
        assert document is not None
        assert field(document, "spec", "targetNodes") == 1


SAME = {name: f"{{{name}}}" for name in ("cluster", "name", "position")}
