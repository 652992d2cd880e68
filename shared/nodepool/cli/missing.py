"""Messages about names, clusters and organisations that do not exist."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from nodepool.cli.errors import DONE, REFUSED, CliError
from nodepool.cli.names import NODEPOOL, Kind
from nodepool.cli.output import name_of, print_error, print_note
from nodepool.cli.sources import read
from nodepool.contract.suggest import did_you_mean

if TYPE_CHECKING:
    from nodepool.client import Client

_DELETE: Final = "DeleteNodePool"


def note_trimmed(client: "Client") -> None:
    """Print where the log begins, if what was asked for may have lain before."""
    if first := client.session.trimmed_at:
        text = f"trim gap: the log begins at position {first}; its archive has what was before"
        print_note(text)


async def report_missing(
    client: "Client", kind: Kind, names: Sequence[str], *, deletions: bool = False
) -> int:
    """Print an error for each name that no object has, and return the exit code.

    deletions: whether to say who has deleted a NodePool of this name.
    """
    if not names:
        return DONE
    place = await unknown_place(client, kind)
    if place is not None:
        print_error(place)
        return REFUSED
    documents = [item.document for item in await read(client, kind) if item.document is not None]
    known = sorted({name_of(kind, document) for document in documents})
    where = "" if kind.scope == "cell" else f" in {client.org}"
    where += f"/{client.cluster}" if kind.scope == "cluster" else ""
    for name in names:
        deletion = await _deletion(client, name) if deletions and kind is NODEPOOL else ""
        hint = deletion or did_you_mean(name, known)
        print_error(f'{kind.singular} "{name}" not found{where}{hint}')
    return REFUSED


async def _deletion(client: "Client", name: str) -> str:
    """Return who has deleted a NodePool; empty if nobody has, or the log no longer has it."""
    from nodepool.cli.audit_table import change_text
    from nodepool.client.errors import ClientError

    try:
        change = await client.audit.last_of_pool(name)
    except ClientError:  # That there is no such NodePool is known already.
        return ""
    if change is None or change.command != _DELETE:
        return ""
    return f"; the last change was {change_text(change)}"


async def check_place(client: "Client", kind: Kind) -> None:
    """Raise `CliError` for an organisation or a cluster that does not exist.

    A command that finds no objects calls this, because a wrong place may be the cause.
    """
    place = await unknown_place(client, kind)
    if place is not None:
        raise CliError(place)


async def unknown_place(client: "Client", kind: Kind) -> str | None:
    """Return what is wrong with the organisation or cluster of a type; None if nothing is."""
    if kind.scope == "cell":
        return None
    clusters = await client.clusters.list_registered()
    organisations = {org for org, _ in clusters}
    if client.org not in organisations:
        hint = _nearest(client, client.org, organisations)
        return f"organisation {client.org!r} has no clusters{hint}"
    own = {cluster for org, cluster in clusters if org == client.org}
    if kind.scope == "cluster" and client.cluster not in own:
        hint = _nearest(client, client.cluster, own)
        return f"cluster {client.cluster!r} of {client.org!r} is not registered{hint}"
    return None


def registering(client: "Client", zone: str = "ZONE") -> str:
    """Return how a cluster is registered, which only the operator can do, or the agent in it."""
    if client.session.through == "gateway":
        return "ask the operator of the platform to register one"
    return f"register one with 'nodepool register cluster NAME --zone {zone}'"


def _nearest(client: "Client", name: str, known: set[str]) -> str:
    if not known:
        return f"; {registering(client)}"
    shown = ", ".join(sorted(known)[:5])
    there = f"; there are: {shown}{', ...' if len(known) > 5 else ''}"
    return did_you_mean(name, sorted(known)) or there
