"""The kind NodePool as the cluster defines it: is it being deleted, and all its objects with it?"""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from agent.cluster import SKEW_MAX, PoolObject
from agent.host.api import Api, Failure, Resource

DEFINITIONS: Final = Resource(
    "apis/apiextensions.k8s.io/v1", "customresourcedefinitions", "CustomResourceDefinition"
)
NAME: Final = "nodepools.compute.coreweave.com"


class PoolKind:
    """Asks the API server, since a definition changes about never and is large."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def is_leaving(self, found: PoolObject) -> bool:
        """Whether an object goes because its kind does, and not because somebody deletes it.

        It does where the definition is being deleted, is gone, or was made anew since: the object
        is older, and was deleted before. The moments may be of API servers with different clocks.
        Raises Failure or Unreachable where that is not known.
        """
        try:
            definition = await self._api.send("get", DEFINITIONS, DEFINITIONS.path(NAME))
        except Failure as failure:
            if failure.reason == "NotFound":
                return True
            raise
        metadata = definition.get("metadata")
        if not isinstance(metadata, Mapping):
            return False
        if "deletionTimestamp" in metadata:
            return True
        made = str(metadata.get("creationTimestamp") or "")
        # Moments of the API server are in UTC and in whole seconds, and sort as texts.
        return found.created < made and not _is_after(found.deleted, made)


def _is_after(deleted: str, made: str) -> bool:
    """Whether a moment is certainly after another one, whichever clocks they are by."""
    try:
        return datetime.fromisoformat(deleted) > datetime.fromisoformat(made) + SKEW_MAX
    except ValueError:
        return False  # One that had no finalizer was deleted at once, and has no such moment.
