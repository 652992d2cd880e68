"""The floor of the log, as an operator asks for it: who holds it, and what would go."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nodepool.archive.floor import (
    Extent,
    Holder,
    Keep,
    Outcome,
    find_floor,
    list_holders,
    measure,
)
from nodepool.archive.storage.store import Store
from nodepool.client.errors import ClientError, translate_archive_errors, translate_errors
from nodepool.client.session import Session
from nodepool.nats.log.streams import STREAM, stream_info
from nodepool.nats.objects.floor_facts import SetReader, find_facts

if TYPE_CHECKING:
    from nodepool.archive.storage.checking import Report


@dataclass(frozen=True, slots=True)
class Floor:
    """Where the log may be trimmed.

    log: the log as it is.
    holders: who needs the log, who needs most first.
    would_go: what lies before the floor.
    is_purgeable: whether the log can be trimmed at all.
    """

    log: Extent
    holders: Sequence[Holder]
    would_go: Outcome
    is_purgeable: bool

    @property
    def holder(self) -> Holder:
        """Who holds the log at its floor."""
        return self.holders[0]


async def find_floor_of(
    session: Session, archive: str, keep: Keep, progress: "Callable[[Report], None]"
) -> Floor:
    """Return the floor of the log, after the whole archive was read back.

    archive: where the archive is, as the archiver has it.
    Raises ClientError if the archive is not that of the log, or cannot be read.
    """
    with translate_archive_errors():
        from nodepool.archive.storage.checking import verify

        store = Store(archive)
        try:
            report = await verify(store, progress)
            sets = await SetReader(store).newest()
        finally:
            await store.close()
    with translate_errors(session.url):
        info = await stream_info(session.connection, STREAM)
        if info is None or info.log != report.log:
            found = f"the bus has the log {info.log}" if info is not None else "the bus has none"
            raise ClientError(f"archive {store}: it holds the log {report.log}, and {found}")
        facts = await find_facts(session.connection, info, sets, report.sound, keep)
    holders = sorted(list_holders(facts, keep), key=lambda each: each.first)
    would_go = measure(facts.log, find_floor(holders).first)
    return Floor(facts.log, holders, would_go, info.is_purgeable)
