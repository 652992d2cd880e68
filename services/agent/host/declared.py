"""Asks what the cluster declares: the kind NodePool, and the policy for new Pods."""

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime
from enum import Enum, auto
from typing import Final

from agent.actions import Place
from agent.pools.objects import PoolObject
from agent.reading import SKEW_MAX
from nodepool.contract.model import API_VERSION
from nodepool.contract.pods import reserved_taint
from nodepool.host.logs import Logger
from nodepool.kube.api import Api, Resource
from nodepool.kube.failures import ApiFailure, ApiUnreachable

NODE_POOLS: Final = Resource(f"apis/{API_VERSION}", "nodepools", "NodePool")
NODES: Final = Resource("api/v1", "nodes", "Node")
PODS: Final = Resource("api/v1", "pods", "Pod")
DEFINITIONS: Final = Resource(
    "apis/apiextensions.k8s.io/v1", "customresourcedefinitions", "CustomResourceDefinition"
)
NAME: Final = "nodepools.compute.coreweave.com"


class KindChange(Enum):
    """The state of the kind NodePool since the creation of an object."""

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

        Nobody deletes an object that goes with its kind. If the kind was made again, the object was
        created before the new kind, and deleted no later than the new kind was made. The clocks of
        two API servers may differ by `SKEW_MAX`. Raises ApiFailure or ApiUnreachable if the API
        server does not say.
        """
        try:
            definition = await self._api.get(DEFINITIONS, NAME)
        except ApiFailure as failure:
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
    """Return whether `deleted` is later than `made` by more than two clocks may differ."""
    try:
        return datetime.fromisoformat(deleted) > datetime.fromisoformat(made) + SKEW_MAX
    except ValueError:
        return False  # An object without finalizers is deleted without a deletionTimestamp.


_ADMISSION: Final = "apis/admissionregistration.k8s.io/v1"
POLICIES: Final = Resource(_ADMISSION, "mutatingadmissionpolicies", "MutatingAdmissionPolicy")
BINDINGS: Final = Resource(
    _ADMISSION, "mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding"
)
CONFIG_MAPS: Final = Resource("api/v1", "configmaps", "ConfigMap")
POLICY: Final = "nodepool-reserved-toleration"
NAMESPACE, CONFIG_MAP = "kube-system", "nodepool-agent"
"""The ConfigMap that holds the parameters of the policy."""
HASH: Final = "RESERVED_HASH"
LOOK_S: Final = 30.0
"""The seconds between two looks: the API server applies a new policy in less time than that."""


class TolerationPolicy:
    """Watches the policy that gives new Pods the toleration of their organisation's Nodes.

    fault: why new Pods get no toleration; empty if they get it, None while that is not known.
    """

    def __init__(self, api: Api, place: Place, changed: Callable[[], None], log: Logger) -> None:
        """Create the watch of the policy; call `changed` whenever `fault` changes."""
        self.fault: str | None = None
        self._before: str | None = None
        self._api, self._place, self._changed, self._log = api, place, changed, log

    async def run(self) -> None:
        """Look at the policy every `LOOK_S` seconds until the task is cancelled."""
        while True:
            self.note(await self.look())
            await asyncio.sleep(LOOK_S)

    def note(self, found: str | None) -> None:
        """Take what a look has found; a policy counts once two looks in a row have found it.

        The API server heeds a new policy some time after it has stored the policy.
        """
        is_certain = bool(found) or (found is not None and found == self._before)
        self._before = found
        if not is_certain or found == self.fault:
            return
        self.fault = found
        if found:
            self._log.warning("taint of production Nodes withheld", cause=found)
        self._changed()

    async def look(self) -> str | None:
        """Return why new Pods get no toleration; None if the API server does not say."""
        expected = reserved_taint(self._place.org).value
        try:
            await self._api.get(POLICIES, POLICY)
            binding = await self._api.get(BINDINGS, POLICY)
            parameters = await self._api.get(CONFIG_MAPS, CONFIG_MAP, NAMESPACE)
        except ApiFailure as failure:
            is_certain = failure.reason == "NotFound" or failure.lacks_right
            return failure.message if is_certain else None
        except (ApiUnreachable, OSError):
            return None
        spec = binding.get("spec")
        if not isinstance(spec, Mapping) or spec.get("policyName") != POLICY:
            return f"the binding {POLICY} is of another policy"
        data = parameters.get("data")
        given = data.get(HASH, "") if isinstance(data, Mapping) else ""
        if given == expected:
            return ""
        found = f"is {given}" if given else "is missing"
        return (
            f"{HASH} of the ConfigMap {NAMESPACE}/{CONFIG_MAP} {found}, and Pods of"
            f" {self._place.org} need {expected}"
        )
