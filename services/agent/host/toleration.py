"""Asks the API server whether new Pods get the toleration of their organisation's Nodes."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from agent.place import Place
from nodepool.contract.pods import reserved_taint
from nodepool.host.logs import Logger
from nodepool.kube.api import Api, Resource
from nodepool.kube.failures import Failure, Unreachable

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
        except Failure as failure:
            is_certain = failure.reason == "NotFound" or failure.lacks_right
            return failure.message if is_certain else None
        except (Unreachable, OSError):
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
