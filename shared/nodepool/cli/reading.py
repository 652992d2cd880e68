"""Running a command that only reads, and what it says about the server and the place it reads."""

from typing import TYPE_CHECKING

from nodepool.cli.names import Kind
from nodepool.cli.output import print_note
from nodepool.cli.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from nodepool.client import ReadingClient


def run_reading(
    settings: Settings, work: "Callable[[ReadingClient], Awaitable[int]]", *, patient: bool = False
) -> int:
    """Runs `work` with a connected client and returns its exit code.

    patient: whether it may wait for long, and says when the server is gone and when it is back.
    """
    import asyncio

    from nodepool.client.errors import without_password
    from nodepool.client.reading import ReadingClient

    address = without_password(settings.url)

    async def connected() -> int:
        client = ReadingClient(
            settings.url,
            org=settings.org,
            cluster=settings.cluster,
            timeout_s=settings.timeout_s,
            source="nodepool-cli",
        )
        async with client:
            if patient:
                client.observe(
                    lambda: print_note(f"the server at {address} is gone; waiting for it"),
                    lambda: print_note(f"the server at {address} is back"),
                )
            return await work(client)

    return asyncio.run(connected())


async def unknown_place(client: "ReadingClient", kind: Kind) -> str | None:
    """What is wrong with the organisation or cluster that a type is read of; None if nothing."""
    if kind.scope == "cell":
        return None
    clusters = await client.clusters()
    organisations = {org for org, _ in clusters}
    if client.org not in organisations:
        hint = _nearest(client.org, organisations)
        return f"organisation {client.org!r} has no clusters{hint}"
    own = {cluster for org, cluster in clusters if org == client.org}
    if kind.scope == "cluster" and client.cluster not in own:
        hint = _nearest(client.cluster, own)
        return f"cluster {client.cluster!r} of {client.org!r} is not registered{hint}"
    return None


def _nearest(name: str, known: set[str]) -> str:
    if not known:
        return "; register one with 'nodepool register cluster NAME --zone ZONE'"
    from difflib import get_close_matches

    close = get_close_matches(name, sorted(known), n=1)
    if close:
        return f"; did you mean {close[0]!r}?"
    shown = ", ".join(sorted(known)[:5])
    return f"; there are: {shown}{', ...' if len(known) > 5 else ''}"
