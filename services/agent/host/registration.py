"""Registers a cluster on the bus with the uid that distinguishes it from all other clusters."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from agent.actions import Place
from nodepool.client import Client
from nodepool.client.errors import ClientError, Refused
from nodepool.contract.commands import UID_MAX
from nodepool.host.logs import Logger
from nodepool.kube.api import Api, Resource
from nodepool.kube.failures import ApiFailure, ApiUnreachable

NAMESPACES: Final = Resource("api/v1", "namespaces", "Namespace")
KUBE_SYSTEM: Final = "kube-system"
"""A namespace that every cluster has for its whole life: it cannot be deleted."""
REFUSED_S: Final = 10.0
"""The pause before registering a cluster again after a refusal."""
RETRY_S: Final = 2.0
"""The pause before a retry if there was no reply."""


class Registration:
    """Registers one cluster; two clusters of the same name would undo each other's work.

    uid: the uid of the cluster; empty if it is not known.
    """

    def __init__(self, api: Api, place: Place, log: Logger) -> None:
        self._api, self._place, self._log = api, place, log
        self.uid = ""

    async def run(self, client: Client, note: Callable[[str], None]) -> None:
        """Wait until the cluster is registered; call `note` with the reason for each delay.

        client: an open client of the cluster.
        """
        note("registering the cluster")
        while fault := await self._fault(client):
            note(f"the cluster is not registered: {fault}")
            self._log.warning("not registered", cause=str(fault))
            await asyncio.sleep(REFUSED_S if isinstance(fault, Refused) else RETRY_S)

    async def _fault(self, client: Client) -> ClientError | ApiFailure | ApiUnreachable | None:
        """Return why it could not be registered; None where it could."""
        place = self._place
        try:
            self.uid = uid = await self._uid()
            await client.clusters.register(place.cluster, place.zone, kubernetes=True, uid=uid)
        except (ClientError, ApiFailure, ApiUnreachable) as error:
            return error
        return None

    async def _uid(self) -> str:
        """Return the uid of the namespace `kube-system`; empty if the account may not read it."""
        try:
            namespace = await self._api.get(NAMESPACES, KUBE_SYSTEM)
        except ApiFailure as failure:
            if failure.code != 403:
                raise
            self._log.warning("cluster not identified", cause=failure.message)
            return ""
        metadata = namespace.get("metadata")
        return str(metadata.get("uid") or "")[:UID_MAX] if isinstance(metadata, Mapping) else ""
