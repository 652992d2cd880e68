"""The past as the gateway shows it to a user of an organisation, who can read no archive."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from nodepool.client.asking import PROMPT_S, Asker
from nodepool.client.gateway import Gateway
from nodepool.client.gateway_objects import number_in
from nodepool.client.objects import Listed, Object
from nodepool.client.past.errors import NoMoment, refuse
from nodepool.client.past.unchanging import Unchanging
from nodepool.client.session import Session
from nodepool.contract.buckets import Bucket
from nodepool.contract.documents import text

if TYPE_CHECKING:
    from nodepool.client.events import ObjectEvent
    from nodepool.client.past.session import Moment
    from nodepool.nats.wire.connection import FaultListener

ANSWER_S: Final = 40.0
"""How long an answer about the past may take, in seconds: the gateway may have to rebuild it."""
OF_THE_PRESENT: Final = ("current", "notOlderThan")
"""The fields of a query that have no meaning for the past."""


class AskedSession(Session):
    """A session with the gateway that sees the organisation as it was at a moment.

    live: a session that says where the gateway is, and with what it is asked.
    position: the position of the moment, once the session is open.
    is_shared: whether `live` is open already, and stays so.
    """

    def __init__(self, live: Session, at: "Moment", *, is_shared: bool = False) -> None:
        super().__init__(
            live.url,
            org=live.org,
            cluster=live.cluster,
            timeout_s=max(live.timeout_s, ANSWER_S),
            source=live.source,
            access=live.access,
            through=live.through,
        )
        self.position, self._at = 0, at
        self._live = live if is_shared else None
        self.asker = PastAsker(self, at)
        self.__dict__["backend"] = PastGateway(self, self.asker)

    async def open(self, on_fault: "FaultListener | None" = None) -> None:
        """Connect, and ask for the moment; raise ClientError if the gateway cannot show it."""
        if self._at == 0:
            raise NoMoment("there is no position 0: positions begin at 1")
        if self._live is not None:
            self._connection = self._live.connection
        else:
            await super().open(on_fault)
        try:
            reply = await self.asker.ask("Moment", {})
        except BaseException:
            await self.close()
            raise
        self.position = number_in(reply, "position")
        self.moment = datetime.fromisoformat(text(reply, "time"))

    async def close(self) -> None:
        """Close the connection, unless it belongs to another session."""
        if self._live is None:
            await super().close()


class PastAsker(Asker):
    """Asks the gateway about one moment."""

    answer_s = ANSWER_S + PROMPT_S

    def __init__(self, session: Session, at: "Moment") -> None:
        super().__init__(session)
        self._at = at if isinstance(at, int) else at.astimezone(UTC).isoformat()

    def complete(self, fields: Mapping[str, object]) -> Mapping[str, object]:
        """Return the fields of a query about the moment."""
        asked = {name: value for name, value in fields.items() if name not in OF_THE_PRESENT}
        return {**asked, "at": self._at}


class PastGateway(Unchanging, Gateway):
    """Asks the gateway about the past; the methods are those of `Backend`."""

    def __init__(self, session: Session, asker: PastAsker) -> None:
        super().__init__(session, asker)
        self.watch = self._list

    async def _list(
        self, bucket: Bucket, prefix: str, *, everywhere: bool
    ) -> AsyncGenerator[Object | Listed, None]:
        """Yield objects and `Listed`; there are no changes."""
        stream = self._objects.watch(bucket, prefix, everywhere=everywhere)
        async with aclosing(stream) as changes:
            async for change in changes:
                yield change
                if isinstance(change, Listed):
                    return

    def events(
        self, pool: str, node: str, *, since: datetime | None, after: int, follow: bool
    ) -> "AsyncGenerator[ObjectEvent, None]":
        """Yield events of the cluster up to the moment."""
        if follow:
            raise refuse("wait for events")
        return super().events(pool, node, since=since, after=after, follow=False)
