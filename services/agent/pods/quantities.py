"""Computes how much of a resource a Pod requests, by the rules of Kubernetes."""

import re
from decimal import Decimal
from typing import Final

from agent.reading import Document, UnreadableDocument, part, parts

UNKNOWN: Final = Decimal("Infinity")
"""The quantity of a request that cannot be parsed."""

_QUANTITY: Final = re.compile(
    r"\+?([0-9]{1,18}(?:\.[0-9]{0,18})?|\.[0-9]{1,18})"
    r"(?:[eE]([+-]?[0-9]{1,2})|([numkMGTPE]|[KMGTPE]i))?"
)
_SUFFIXES: Final = {
    **{suffix: Decimal(10) ** (3 * power) for power, suffix in enumerate("num", -3)},
    **{suffix: Decimal(10) ** (3 * power) for power, suffix in enumerate("kMGTPE", 1)},
    **{f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", 1)},
}


def asked_for(spec: Document, resource: str) -> Decimal:
    """Return how much of a resource a Pod with this spec needs at any time.

    What a Pod requests as a whole replaces what its containers request; its overhead is added. See
    https://kubernetes.io/docs/tasks/configure-pod-container/assign-pod-level-resources/ and
    https://kubernetes.io/docs/concepts/scheduling-eviction/pod-overhead/.
    """
    whole = _read(part(part(spec, "resources"), "requests"), resource)
    needed = _asked_by_containers(spec, resource) if whole is None else whole
    return needed + (_read(part(spec, "overhead"), resource) or Decimal(0))


def _asked_by_containers(spec: Document, resource: str) -> Decimal:
    """Return how much of a resource the containers of a Pod need at any time.

    See https://kubernetes.io/docs/concepts/workloads/pods/init-containers/#resource-sharing-within-containers.
    """
    none = Decimal(0)
    running = sum((_of(each, resource) for each in parts(spec, "containers")), none)
    beside, most = none, none
    for each in parts(spec, "initContainers"):
        needed = _of(each, resource)
        if each.get("restartPolicy") == "Always":
            beside += needed
            most = max(most, beside)
        else:
            most = max(most, beside + needed)
    return max(running + beside, most)


def _of(container: Document, resource: str) -> Decimal:
    resources = part(container, "resources")
    found = _read(part(resources, "requests"), resource)
    if found is None:
        found = _read(part(resources, "limits"), resource)
    return Decimal(0) if found is None else found


def _read(quantities: Document, resource: str) -> Decimal | None:
    """Return the quantity of a resource; None if the resource is not named."""
    found = quantities.get(resource)
    if found is None:
        return None
    if isinstance(found, int):
        return Decimal(max(0, int(found)))
    if not isinstance(found, str):
        raise UnreadableDocument(resource, "a quantity", found)
    return _quantity(found)


def _quantity(text: str) -> Decimal:
    """Return the value of a quantity.

    See https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/.
    """
    match = _QUANTITY.fullmatch(text)
    if match is None:
        return UNKNOWN
    number, exponent, suffix = match.groups()
    return Decimal(number) * (Decimal(10) ** int(exponent or 0)) * _SUFFIXES.get(suffix, 1)
