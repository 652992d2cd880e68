"""The console of a control plane on one machine: its settings, its first user, and its link."""

import asyncio
import getpass
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from nodepool.auth.folder import AuthFolder
from nodepool.auth.users import AuthError, Users, new_member
from nodepool.local.errors import ServerError, UpError
from nodepool.local.reloading import LOG, reload_server, running_server

CONSOLE: Final = "console"
"""The program, and the module that runs it."""
PORT: Final = 9480
"""The first port to try for the pages of the console by default; ports in use are skipped."""
LINK_S: Final = 30.0
"""How long the console may take to write its links, in seconds."""
LOOK_S: Final = 0.05
PEOPLE: Final = ("owner", "editor", "viewer")
"""The roles of people, with most rights first."""
_OTHER: Final = re.compile(r"[^A-Za-z0-9_-]+")


def links_folder(data_dir: Path) -> Path:
    """Return the folder of the one-time links."""
    return data_dir / "console" / "links"


def console_settings(data_dir: Path, auth: AuthFolder, port: int) -> Mapping[str, str]:
    """Return the settings that only the console has; the console has no key of its own."""
    return {
        "NODEPOOL_NKEY_FILE": "",
        "NODEPOOL_CONSOLE_KEYS": str(auth.path / "keys"),
        "NODEPOOL_CONSOLE_LINKS": str(links_folder(data_dir)),
        "NODEPOOL_CONSOLE_PORT": str(port),
    }


def ensure_person(data_dir: Path, auth: AuthFolder, org: str) -> str:
    """Return the user with most rights in an organisation.

    If there is no user, add an owner with the name of this machine's user. Raises UpError if that
    fails.
    """
    try:
        found = _find_person(auth.users(), org)
        if found:
            return found
        name = _OTHER.sub("-", getpass.getuser()).strip("-_")[:63] or "owner"
        if all(each.name != org for each in auth.users().organisations):
            auth.change(lambda users: users.with_organisation(org))
        auth.add_member(org, lambda proof: new_member(name, proof, "owner"))
        pid = running_server(data_dir)
        if pid is not None:
            reload_server(pid, data_dir / LOG)
    except (AuthError, ServerError, OSError) as error:
        raise UpError(f"cannot add a user of {org} for the console: {error}") from error
    return name


def _find_person(users: Users, org: str) -> str:
    """Return the user with most rights in an organisation; empty if it has no users."""
    members = [each for known in users.organisations if known.name == org for each in known.members]
    with_keys = [each for each in members if each.user.proof.key]
    people = [each for role in PEOPLE for each in with_keys if each.role == role]
    return people[0].user.name if people else ""


async def describe_console(data_dir: Path, org: str, person: str) -> str:
    """Return where the console is, and the link that signs a person in."""
    folder = links_folder(data_dir)
    file = folder / f"{org}.{person}"
    deadline = asyncio.get_running_loop().time() + LINK_S
    while asyncio.get_running_loop().time() < deadline:
        if file.exists():
            link = file.read_text(encoding="utf-8").strip()
            what = f"The console: this link signs in {org}/{person}, once."
            return f"{what}\n  {link}\nAfter that, a new link is in {file}"
        await asyncio.sleep(LOOK_S)
    log = data_dir / "logs" / "console.err"
    return f"The console has written no link within {LINK_S:g} s: see {log}"
