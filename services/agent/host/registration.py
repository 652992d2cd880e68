"""Registers a cluster on the bus with the uid that distinguishes it from all other clusters."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from agent.host.settings import AgentSettings
from agent.host.telemetry import NAME
from nodepool.client import Client
from nodepool.client.errors import ClientError, Refused
from nodepool.contract.commands import UID_MAX
from nodepool.host.logs import Logger
from nodepool.kube.api import Api, Resource
from nodepool.kube.failures import ApiFailure, ApiUnreachable

NAMESPACES: Final = Resource("api/v1", "namespaces", "Namespace")
KUBE_SYSTEM: Final = "kube-system"
"""A namespace that every cluster has for its whole life: it cannot be deleted."""
OUTCOME_S: Final = 30.0
"""How long to wait for the outcome before registering the cluster again."""
REFUSED_S: Final = 10.0
"""The pause before registering a cluster again after a refusal."""
RETRY_S: Final = 2.0
"""The pause before a retry if there was no reply."""


class Registration:
    """Registers one cluster; two clusters of the same name would undo each other's work.

    uid: the uid of the cluster; empty if it is not known.
    """

    def __init__(self, api: Api, settings: AgentSettings, log: Logger) -> None:
        self._api, self._settings, self._log = api, settings, log
        self.uid = ""

    async def run(self, note: Callable[[str], None]) -> None:
        """Wait until the cluster is registered; call `note` with the reason for each delay."""
        note("registering the cluster")
        while fault := await self._fault():
            note(f"the cluster is not registered: {fault}")
            self._log.warning("not registered", cause=str(fault))
            await asyncio.sleep(REFUSED_S if isinstance(fault, Refused) else RETRY_S)

    async def _fault(self) -> ClientError | ApiFailure | ApiUnreachable | None:
        """Return why it could not be registered; None where it could."""
        service, place = self._settings.service, self._settings.place
        client = Client(
            service.url,
            org=place.org,
            cluster=place.cluster,
            timeout_s=OUTCOME_S,
            source=NAME,
            access=service.access,
        )
        try:
            self.uid = uid = await self._uid()
            async with client:
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
