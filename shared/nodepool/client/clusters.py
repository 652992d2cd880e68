"""Clusters: registering a cluster, and reading which clusters exist."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nodepool.client.commands import Commands, checked_command
from nodepool.client.objects import Objects
from nodepool.client.session import Session
from nodepool.contract.keys import UNNAMED

if TYPE_CHECKING:
    from nodepool.contract.events import CommandAccepted


class Clusters:
    """The clusters of the organisation, as `client.clusters`; `Objects` describes the reading."""

    def __init__(self, session: Session, commands: Commands) -> None:
        self._session = session
        self._send = commands.send
        objects = Objects(session, "clusters")
        self.get, self.list, self.watch = objects.get, objects.list, objects.watch

    async def register(
        self, name: str, zone: str, *, kubernetes: bool = False, uid: str = "", replaces: str = ""
    ) -> "CommandAccepted":
        """Register a cluster in a zone; the zone can never be changed.

        With `kubernetes` an agent connects the Kubernetes cluster with this `uid`: see
        `RegisterCluster`.
        """
        from nodepool.contract.commands import RegisterCluster

        fields = {"org": self._session.org, "cluster": name, "zone": zone, "kubernetes": kubernetes}
        identity = {"kubernetesUid": uid, "replaces": replaces}
        return await self._send(checked_command(RegisterCluster, {**fields, **identity}))

    async def zone(self) -> str | None:
        """Return the zone of the client's cluster; None if the cluster is not registered."""
        from nodepool.contract.decode import decode
        from nodepool.contract.events import ClusterRegistered
        from nodepool.contract.messages import Envelope

        entry = await self._session.last_event(
            (ClusterRegistered.speaker, ClusterRegistered.__name__), UNNAMED
        )
        if entry is None:
            return None
        envelope = decode(ClusterRegistered, entry.subject, entry.content, {}, entry.position)
        return envelope.data.zone if isinstance(envelope, Envelope) else None

    async def list_registered(self) -> Sequence[tuple[str, str]]:
        """Return organisation and name of each cluster that was ever registered, in their order."""
        filter = f"np.evt.validator.*.*.{UNNAMED}.ClusterRegistered"
        names = (subject.split(".") for subject in await self._session.message_counts(filter))
        return sorted((tokens[3], tokens[4]) for tokens in names)
