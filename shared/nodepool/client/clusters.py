"""Clusters: registering a cluster, and reading which clusters exist."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nodepool.client.commands import Commands, checked_command
from nodepool.client.objects import Objects
from nodepool.client.session import Session

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
        return await self._session.backend.find_zone()

    async def list_registered(self) -> Sequence[tuple[str, str]]:
        """Return organisation and name of each cluster that was ever registered, in their order.

        Through the gateway, only the clusters of the user's organisation are returned.
        """
        return await self._session.backend.list_clusters()
