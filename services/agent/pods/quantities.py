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
    found = part(resources, "requests").get(resource)
    if found is None:
        found = part(resources, "limits").get(resource)
    if found is None:
        return Decimal(0)
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
