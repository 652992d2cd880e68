"""The one list of services; everything that starts, tests or documents them takes it from here."""

from typing import Final

SERVICES: Final[tuple[str, ...]] = (
    "validator",
    "quota",
    "capacity",
    "allocator",
    "lifecycle",
    "preemption",
    "autoscaler",
    "aggregator",
    "fleet",
)
"""Every service by its package name, in the order in which pages and commands list them."""
REPLACEABLE: Final = frozenset({"fleet"})
"""Services that simulate what is real elsewhere: something else may be in their place."""
EDGES: Final[tuple[str, ...]] = ("agent",)
"""Programs beside the services that say events of their own: one for each cluster of Kubernetes."""
