"""The client as a whole: one connection, and one part per kind of object."""

from copy import copy
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Self

from nodepool.client.audit_log import AuditLog
from nodepool.client.capacity import Capacity
from nodepool.client.clusters import Clusters
from nodepool.client.commands import Commands
from nodepool.client.event_stream import Events
from nodepool.client.fleet import Fleet
from nodepool.client.machines import Machines
from nodepool.client.nodepools import NodePools
from nodepool.client.nodes import Nodes
from nodepool.client.objects import Objects
from nodepool.client.quotas import Quotas
from nodepool.client.session import TIMEOUT_S, URL, Session
from nodepool.contract.buckets import Bucket
from nodepool.nats.wire.access import NO_ACCESS, Access
from nodepool.nats.wire.installed import access_to

if TYPE_CHECKING:
    from nodepool.client.admin import Admin
    from nodepool.client.backend import Through
    from nodepool.client.past.session import Moment


class Client:
    """A client of the control plane, to be used as `async with Client(...) as client`.

    url: the NATS server, or several servers of one NATS cluster, separated by commas.
    org, cluster: the organisation and cluster that the client reads and changes.
    timeout_s: how long an outcome or a reply of the server may take, in seconds.
    source: the name of the program, for the `source` of its commands.
    access: files with the certificates to trust, and with the client's certificate, credentials
        or password; by default the key of the operator, if `nodepool up` serves the address.
    through: `bus` to work with JetStream itself, as an operator may, or `gateway` to work as a user
        of an organisation may; None to decide by the comment in the file of the credentials.

    Raises `Refused` for an organisation or cluster whose name is invalid. Every method of a part
    may raise `Unreachable`. A method that sends one command may also raise `Refused`, or
    `NoOutcome` if no outcome arrives in time.

    A program that only reads does not load the message models, which load slowly.
    """

    def __init__(
        self,
        url: str = URL,
        *,
        org: str = "demo",
        cluster: str = "demo",
        timeout_s: float = TIMEOUT_S,
        source: str = "nodepool-client",
        access: Access = NO_ACCESS,
        through: "Through | None" = None,
    ) -> None:
        shown = access_to(url, access)
        session = Session(
            url,
            org=org,
            cluster=cluster,
            timeout_s=timeout_s,
            source=source,
            access=shown,
            through=through,
        )
        self.org, self.cluster = org, cluster
        self._use(session)

    def _use(self, session: Session) -> None:
        self.session = session
        self.commands = Commands(session)
        self.nodepools = NodePools(session, self.commands)
        self.nodes = Nodes(session, self.commands)
        self.quotas = Quotas(session, self.commands)
        self.capacity = Capacity(session, self.commands)
        self.clusters = Clusters(session, self.commands)
        self.events = Events(session)
        self.audit = AuditLog(session)
        self.fleet = Fleet(session, self.commands)
        self.machines = Machines(self.commands)

    def at(self, moment: "Moment", archive: str = "") -> "Client":
        """Return a client that sees everything as it was at a moment, and can change nothing.

        moment: a time, or a position of the log.
        archive: the folder or the URL of the archive; without it, only the log on the bus is read,
            or the gateway is asked, if the client works through it.
        """
        past = copy(self)
        if self.session.through == "gateway" and not archive:
            from nodepool.client.past.through_gateway import AskedSession

            past._use(AskedSession(self.session, moment))
            return past
        # Imported here, because it loads Parquet and the state of a service.
        from nodepool.client.past.session import PastSession

        past._use(PastSession(self.session, moment, archive))
        return past

    @cached_property
    def admin(self) -> "Admin":
        """The part for operators, which is imported at its first use because it loads slowly."""
        from nodepool.client.admin import Admin

        self.session.require_bus("see dead letters, backups or versions")
        return Admin(self.session)

    def objects(self, bucket: Bucket) -> Objects:
        """Return the objects of any bucket, for programs that are given the bucket by a user."""
        return Objects(self.session, bucket)

    async def __aenter__(self) -> Self:
        await self.session.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.session.close()
