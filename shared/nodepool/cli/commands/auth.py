"""`nodepool auth`: makes identities, gives and takes keys, and says who may do what."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nodepool.cli.errors import DONE, REFUSED
from nodepool.cli.identities import (
    changing,
    identities,
    known_names,
    taking_access,
    title_of,
    with_folder,
)
from nodepool.cli.output import print_lines, print_text
from nodepool.cli.settings import Group, Settings

if TYPE_CHECKING:
    from nodepool.auth.accounts import Member, Proof
    from nodepool.auth.folder import AuthFolder

ROLES = ("viewer", "editor", "owner")
HEADINGS = ("ORGANISATION", "USER", "ROLE", "CLUSTER", "KEY", "CREDENTIALS")


@click.group(cls=Group)
def auth() -> None:
    """Make identities, give and take keys, and say who may do what.

    The server, the gateway and every user have what they need from one folder. A change is in force
    as soon as the server has read its accounts again, which a change makes the server of the same
    data directory do.
    """


ORGANISATION = click.argument("organisation", metavar="ORG", shell_complete=known_names)
WHO = click.argument("who", nargs=-1, metavar="[ORG] NAME", shell_complete=known_names)


@auth.command()
@changing
def init(folder: "AuthFolder") -> None:
    """Make the keys that the platform lacks; what is there is kept."""
    is_new = folder.init()
    print_text(f"identities in {folder.path} {'written' if is_new else 'unchanged'}")


@auth.command("add-organisation")
@ORGANISATION
@changing
def add_organisation(folder: "AuthFolder", organisation: str) -> None:
    """Add an organisation: an account of its own, which has no users yet."""
    folder.change(lambda users: users.with_organisation(organisation))
    print_text(f"organisation/{organisation} created")


@auth.command("add-user")
@ORGANISATION
@click.argument("name")
@click.option(
    "--role",
    type=click.Choice(ROLES),
    required=True,
    help="viewer reads; editor also changes NodePools; owner also deletes them.",
)
@click.option(
    "--password",
    "by_password",
    is_flag=True,
    help="Make a random password, for a client that has no nkeys.  [default: a key]",
)
@changing
@click.pass_obj
def add_user(
    settings: Settings,
    folder: "AuthFolder",
    organisation: str,
    name: str,
    role: str,
    by_password: bool,
) -> None:
    """Add a person or a program to an organisation, and write their credentials."""
    _add(settings, folder, organisation, name, role, by_password=by_password)


@auth.command("add-agent")
@ORGANISATION
@click.argument("place", metavar="CLUSTER")
@click.option("--name", metavar="NAME", help="The name of the user.  [default: agent-CLUSTER]")
@changing
@click.pass_obj
def add_agent(
    settings: Settings, folder: "AuthFolder", organisation: str, place: str, name: str | None
) -> None:
    """Add the agent of a Kubernetes cluster to an organisation, and write its credentials."""
    name = name or f"agent-{place.replace('.', '_')}"
    _add(settings, folder, organisation, name, "agent", place)


@auth.command()
@WHO
@click.option("--all", "every", is_flag=True, help="All users: of ORG if named, or of everyone.")
@taking_access
def rotate(folder: "AuthFolder", who: tuple[str, ...], every: bool) -> None:
    """Give a user a new key or password in the same file; the old one is refused from then on.

    A service reads its file again when it connects again. Copies of the file have to be replaced.
    Exit code 4: no server was found that has read it.
    """
    if every:
        users = folder.users()
        if who:
            users.organisation(who[0])
        chosen = [(org, name) for org, name, *_ in identities(users) if not who or org == who[0]]
    else:
        chosen = [_pair(who)]
    for (org, name), path in zip(chosen, folder.rotate(*chosen), strict=True):
        print_text(f"user/{title_of(org, name)} rotated: {path}")


@auth.command()
@WHO
@taking_access
def revoke(folder: "AuthFolder", who: tuple[str, ...]) -> None:
    """Remove a user; its connections end at once, and its credentials are refused.

    Exit code 4: no server was found that has read it.
    """
    org, name = _pair(who)
    folder.revoke(name, org)
    print_text(f"user/{title_of(org, name)} revoked")


@auth.command("list")
@click.argument("organisation", metavar="[ORG]", default="", shell_complete=known_names)
@click.option("--no-headers", is_flag=True, help="Print no column titles.")
@with_folder
def list_(folder: "AuthFolder", organisation: str, no_headers: bool) -> int:
    """List users, with their public keys and where their credentials are."""
    from nodepool.cli.tables import new_table

    users = folder.users()
    if organisation:
        users.organisation(organisation)
    rows = []
    for org, name, role, cluster, user in identities(users):
        path, key = folder.credentials_file(user, org), user.proof.key or "<password>"
        place = str(path) if path.exists() else "<none>"
        if organisation in ("", org):
            rows.append((org or "<platform>", name, role, cluster or "<none>", key, place))
    table = new_table(HEADINGS)
    print_lines((table.without_header() if no_headers else table).lines(rows))
    return DONE


@auth.command()
@click.option("--namespace", default="nodepool", show_default=True, help="Where they belong.")
@with_folder
def secrets(folder: "AuthFolder", namespace: str) -> int:
    """Print the Secrets of Kubernetes with the accounts, and with the key of each program.

    \b
    They are secret, so hand them on at once:
      nodepool auth secrets | kubectl apply --server-side -f -
    """
    from nodepool.local.secrets import secrets_text

    print_text(secrets_text(folder, namespace))
    return DONE


@auth.command("can-i")
@click.argument("verb")
@click.argument("thing", metavar="OBJECT")
@click.option(
    "--as",
    "as_user",
    metavar="USER",
    shell_complete=known_names,
    help="ORG/NAME, or a user of the platform.  [default: whose credentials are in use]",
)
@with_folder
@click.pass_obj
def can_i(
    settings: Settings, folder: "AuthFolder", verb: str, thing: str, as_user: str | None
) -> int:
    """Say whether a user may do something: yes (exit code 0) or no (exit code 1).

    \b
    Write a verb and a type, a command, or a subject:
      nodepool auth can-i scale nodepool --as acme/alice
      nodepool auth can-i send SetQuota --as acme/alice
      nodepool auth can-i subscribe 'np.evt.*.acme.*.*.*' --as acme/alice
    """
    from nodepool.cli.may import asker_in_use, named_asker, refusal

    asker = named_asker(folder, as_user) if as_user else asker_in_use(folder, settings.access)
    reason = refusal(asker, verb.lower(), thing)
    print_text("yes" if reason is None else f"no: {reason}")
    return DONE if reason is None else REFUSED


def _add(
    settings: Settings,
    folder: "AuthFolder",
    org: str,
    name: str,
    role: str,
    cluster: str = "",
    *,
    by_password: bool = False,
) -> None:
    from nodepool.auth.users import new_member
    from nodepool.cli.ways_in import ways_in

    def make(proof: "Proof") -> "Member":
        return new_member(name, proof, role, cluster)

    member = folder.add_member(org, make, by_password=by_password)
    print_text(f"user/{title_of(org, name)} created: {member.title}")
    path, authority = folder.credentials_file(member.user, org), _authority(settings)
    print_lines(ways_in(settings.url, authority, path, org, member))


def _authority(settings: Settings) -> str:
    """Return the file with the certificates to trust at the address; empty for none.

    While `nodepool up` listens for others, the file of its authority is found by the address.
    """
    from nodepool.nats.wire.access import NO_ACCESS
    from nodepool.nats.wire.installed import access_to

    found = settings.access.ca_file or access_to(settings.url, NO_ACCESS).ca_file
    return str(Path(found).resolve()) if found else ""


def _pair(who: Sequence[str]) -> tuple[str, str]:
    """Return organisation and name in `[ORG] NAME` or `ORG/NAME`."""
    words = who[0].split("/") if len(who) == 1 else who
    if not 1 <= len(words) <= 2:
        raise click.UsageError("NAME: write NAME for a user of the platform, or ORG NAME")
    return ("", words[0]) if len(words) == 1 else (words[0], words[1])
