"""Reading from the log who has changed what."""

from datetime import datetime
from typing import TYPE_CHECKING, Final

from nodepool.client.contents import attributes_of
from nodepool.client.names import check_name
from nodepool.client.session import Session
from nodepool.contract.keys import token
from nodepool.contract.log import Entry
from nodepool.nats.log.streams import STREAM

if TYPE_CHECKING:
    from nodepool.client.audit import CommandRecord, Trail, Wanted

_VALIDATED: Final = ("validator", "NodePoolValidated")
_DELETING: Final = ("validator", "NodePoolDeleting")


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
        org = "*" if everywhere else token(self._session.org)
        return await self._read(wanted, f"{org}.*.*", most)

    async def last_of_pool(self, pool: str) -> "CommandRecord | None":
        """Return the command that changed a NodePool last; None if the log no longer has it.

        The validator names this command in what it says of a NodePool, so that three messages are
        read, and no object has to carry who has changed it.
        """
        from nodepool.client.audit import command_record

        name = token(check_name("name", pool))
        validated = _number(await self._session.last_event(_VALIDATED, name), "data", "version")
        deleting = _number(await self._session.last_event(_DELETING, name), "causeposition")
        entry = await self._session.message_at(max(validated, deleting))
        return None if entry is None else command_record(entry)

    async def last_of_node(self, node: str, pool: str, since: datetime) -> "CommandRecord | None":
        """Return the newest accepted command since a time that names a Node of a NodePool."""
        from nodepool.client.audit import Wanted

        place = ".".join(map(token, (self._session.org, self._session.cluster, pool)))
        trail = await self._read(Wanted(since=since, kind="node", name=node), place)
        accepted = [each for each in trail.all() if each.outcome and not each.outcome.is_refusal]
        return accepted[-1] if accepted else None

    async def _read(self, wanted: "Wanted", place: str, most: int | None = None) -> "Trail":
        # Imported here, because the models of all commands load slowly.
        from nodepool.client.audit import OUTCOMES, RECORDS_MAX, Trail

        trail = Trail(wanted, most or RECORDS_MAX)
        filters = [
            f"np.cmd.{place}.*",
            *(f"np.evt.*.{place}.{name}" for name in OUTCOMES),
        ]
        start = 1 if wanted.since is None else await self._session.position_at(wanted.since)
        async with self._session.reader(STREAM, filters, start=start) as reader:
            while reader.pending:
                trail.read(await self._session.read(reader, endless=False))
        return trail


def _number(entry: Entry | None, *path: str) -> int:
    """Return the number at a path of a message; 0 if there is none."""
    value: object = attributes_of(entry) if entry is not None else {}
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, int) else 0
