"""Who has changed what, as the log says."""

from datetime import datetime
from typing import TYPE_CHECKING

from nodepool.client.names import check_name
from nodepool.client.session import Session

if TYPE_CHECKING:
    from nodepool.client.audit import CommandRecord, Trail, Wanted
    from nodepool.client.usage import Usage


class AuditLog:
    """The commands of an organisation, as `client.audit`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def read(
        self, wanted: "Wanted", *, everywhere: bool = False, most: int | None = None
    ) -> "Trail":
        """Return the newest commands of the organisation, each with its outcome.

        everywhere: whether to return the commands of all organisations and about the fleet.
        most: the most commands to return.
        """
        # Imported here and below, because the models of all commands load slowly.
        from nodepool.client.audit import RECORDS_MAX, Place, Trail

        if everywhere:
            self._session.require_bus("the commands of all organisations")
        trail = Trail(wanted, most or RECORDS_MAX)
        place = Place("" if everywhere else self._session.org)
        await self._session.backend.read_audit(trail, place)
        return trail

    async def usage(self) -> "list[Usage]":
        """Return what each organisation has stored within the last hour, most first."""
        from nodepool.client.usage import read_usage

        self._session.require_bus("what all organisations store")
        return await read_usage(self._session)

    async def last_of_pool(self, pool: str) -> "CommandRecord | None":
        """Return the command that changed a NodePool last; None if the log no longer has it.

        The validator names this command in what it says of a NodePool, so that three messages are
        read, and no object has to carry who has changed it.
        """
        return await self._session.backend.find_last_change(check_name("name", pool))

    async def last_of_node(self, node: str, pool: str, since: datetime) -> "CommandRecord | None":
        """Return the newest accepted command since a time that names a Node of a NodePool."""
        from nodepool.client.audit import Place, Trail, Wanted

        trail = Trail(Wanted(since=since, kind="node", name=node))
        place = Place(self._session.org, self._session.cluster, pool)
        await self._session.backend.read_audit(trail, place)
        accepted = [each for each in trail.all() if each.outcome and not each.outcome.is_refusal]
        return accepted[-1] if accepted else None
