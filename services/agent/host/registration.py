"""Registering a cluster on the bus as the one that it is."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from agent.host.api import Api, Failure, Resource, Unreachable
from agent.place import Place
from nodepool.client.errors import NoOutcome, Refused
from nodepool.client.sender import Sender
from nodepool.contract.commands import RegisterCluster
from nodepool.contract.events import CommandAccepted
from nodepool.host.logs import Logger

NAMESPACES: Final = Resource("api/v1", "namespaces", "Namespace")
NAME: Final = "kube-system"
"""A namespace that every cluster has from its beginning to its end: it cannot be deleted."""
REFUSED_S: Final = 10.0
"""The pause before a cluster is registered again that was refused."""
RETRY_S: Final = 2.0
"""The pause before another try where there was no reply."""


class Registration:
    """Registers one cluster; two of them under one name would undo each other's work."""

    def __init__(self, api: Api, place: Place, log: Logger) -> None:
        self._api, self._place, self._log = api, place, log

    async def run(self, sender: Sender[CommandAccepted], note: Callable[[str], None]) -> None:
        """Returns once the cluster is registered; `note` is told why it is not, as one line."""
        note("registering the cluster")
        while fault := await self._fault(sender):
            note(f"the cluster is not registered: {fault}")
            self._log.warning("not registered", cause=str(fault))
            await asyncio.sleep(REFUSED_S if isinstance(fault, Refused) else RETRY_S)

    async def _fault(
        self, sender: Sender[CommandAccepted]
    ) -> Refused | NoOutcome | Failure | Unreachable | None:
        try:
            uid = await self._uid()
        except (Failure, Unreachable) as error:
            return error
        place = self._place
        command = RegisterCluster(
            org=place.org,
            cluster=place.cluster,
            zone=place.zone,
            kubernetes=True,
            kubernetes_uid=uid,
        )
        outcome = await sender.send(command)
        return None if isinstance(outcome, CommandAccepted) else outcome

    async def _uid(self) -> str:
        """Which Kubernetes it is; empty where this account may not read that."""
        try:
            namespace = await self._api.send("get", NAMESPACES, NAMESPACES.path(NAME))
        except Failure as failure:
            if failure.code != 403:
                raise
            self._log.warning("cluster not identified", cause=failure.message)
            return ""
        metadata = namespace.get("metadata")
        return str(metadata.get("uid") or "") if isinstance(metadata, Mapping) else ""
