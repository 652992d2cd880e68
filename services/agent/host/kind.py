"""Is the cluster deleting the kind NodePool itself, and all its objects with it?"""

from collections.abc import Mapping
from datetime import datetime
from enum import Enum, auto
from typing import Final

from agent.cluster import SKEW_MAX, PoolObject
from nodepool.kube.api import Api, Resource
from nodepool.kube.failures import Failure

DEFINITIONS: Final = Resource(
    "apis/apiextensions.k8s.io/v1", "customresourcedefinitions", "CustomResourceDefinition"
)
NAME: Final = "nodepools.compute.coreweave.com"


class KindChange(Enum):
    """What has happened to the kind NodePool since an object was created."""

    NONE = auto()
    """The kind was not deleted."""
    LEAVING = auto()
    """The kind and all its objects are being deleted or are gone."""
    MADE_AGAIN = auto()
    """The kind was deleted and exists again."""


class PoolKind:
    """Asks the API server when needed: the definition almost never changes, and it is large."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def since(self, found: PoolObject) -> KindChange:
        """Return what became of the kind since an object was created that is deleted now.

        An object that goes with its kind was deleted by nobody. An object is older than a kind that
        was made anew since, and was deleted before; the moments may be of API servers with
        different clocks. Raises Failure or Unreachable where that is not known.
        """
        try:
            definition = await self._api.get(DEFINITIONS, NAME)
        except Failure as failure:
            if failure.reason == "NotFound":
                return KindChange.LEAVING
            raise
        metadata = definition.get("metadata")
        if not isinstance(metadata, Mapping):
            return KindChange.NONE
        if "deletionTimestamp" in metadata:
            return KindChange.LEAVING
        made = str(metadata.get("creationTimestamp") or "")
        # Timestamps of the API server are in UTC and whole seconds, so they sort as texts.
        is_anew = found.created < made and not _is_after(found.deleted, made)
        return KindChange.MADE_AGAIN if is_anew else KindChange.NONE


def _is_after(deleted: str, made: str) -> bool:
    """Whether a moment is certainly after another one, whichever clocks they are by."""
    try:
        return datetime.fromisoformat(deleted) > datetime.fromisoformat(made) + SKEW_MAX
    except ValueError:
        return False  # An object without finalizers is deleted without a deletionTimestamp.
