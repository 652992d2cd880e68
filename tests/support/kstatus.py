"""What Flux, Argo CD and `helm --wait` make of an object of a kind that they do not know.

The rules are those of
https://github.com/kubernetes-sigs/cli-utils/blob/master/pkg/kstatus/README.md for such kinds.
"""

from collections.abc import Mapping
from typing import Any, Final

_UNREADY: Final = ("False", "Unknown")


def status_of(document: Mapping[str, Any]) -> str:
    """Return Terminating, InProgress, Failed or Current."""
    metadata, status = document["metadata"], document.get("status", {})
    if "deletionTimestamp" in metadata:
        return "Terminating"
    observed = status.get("observedGeneration")
    if observed is not None and observed != metadata.get("generation"):
        return "InProgress"
    found = {each["type"]: each["status"] for each in status.get("conditions", ())}
    if found.get("Reconciling") == "True":
        return "InProgress"
    if found.get("Stalled") == "True":
        return "Failed"
    return "InProgress" if found.get("Ready") in _UNREADY else "Current"
