"""Reading commands and their outcomes from the gateway, page by page."""

from datetime import UTC
from typing import Final

from nodepool.client.asking import Asker
from nodepool.client.audit import CommandRecord, Place, Trail, record_in
from nodepool.client.event_pages import note_trimmed
from nodepool.client.session import Session
from nodepool.contract.documents import field, items

PAGE: Final = 200
"""The most commands to ask for at a time."""


async def read_pages(session: Session, asker: Asker, trail: Trail, place: Place) -> None:
    """Read the commands about a place into a trail."""
    asked: dict[str, object] = {"cluster": place.cluster, "pool": place.pool, "limit": PAGE}
    if trail.wanted.since is not None:
        asked["since"] = trail.wanted.since.astimezone(UTC).isoformat()
    while True:
        page = await asker.ask("Audit", asked)
        note_trimmed(session, page, 0)
        for item in items(page, "items"):
            trail.add(record_in(item))
        if field(page, "atEnd") is True:
            return
        asked["after"] = field(page, "after")


async def read_last(asker: Asker, cluster: str, pool: str) -> CommandRecord | None:
    """Return the command that changed a NodePool last; None if the log no longer has it."""
    page = await asker.ask("Audit", {"cluster": cluster, "pool": pool, "last": True})
    found = [record_in(item) for item in items(page, "items")]
    return found[0] if found else None
