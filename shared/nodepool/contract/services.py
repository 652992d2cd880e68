"""The one list of services; everything that starts, tests or documents them takes it from here."""

from collections.abc import Mapping
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
"""Every service that each cell has, by its package name, in the order of pages and commands."""
OPTIONAL: Final[tuple[str, ...]] = ("metal",)
"""Services that a cell has only if it needs them: `metal` is for real machines."""
EVERY: Final = (*SERVICES, *OPTIONAL)
"""Every service that there may be."""
SHARED: Final[Mapping[str, tuple[str, ...]]] = {
    "services-1": ("validator", "quota", "capacity", "lifecycle", "autoscaler"),
    "services-2": ("allocator", "preemption", "aggregator"),
    "fleet": ("fleet",),
}
"""Which services share a container, by its name; a service that is replaceable has its own."""
PROCESSES: Final[Mapping[int, tuple[tuple[str, ...], ...]]] = {
    1: (SERVICES,),
    2: ((*SHARED["services-1"], "fleet"), SHARED["services-2"]),
    len(SERVICES): tuple((name,) for name in SERVICES),
}
"""Which services share a process, by the number of processes."""
FEED: Final = "feed"
"""The user that reads the log for all services of a process."""
PROVIDERS: Final[tuple[str, ...]] = ("fleet", "metal")
"""The services that have machines; the catalog says which of them has the machines of a zone."""
REPLACEABLE: Final = frozenset({"fleet", *OPTIONAL})
"""Services that a cell may be without: those of simulated machines and of real ones."""
DRIVERS: Final[Mapping[str, str]] = {"metal": "redfish"}
"""The speaker of the observations that the process of a service makes outside of the bus."""
EDGES: Final[tuple[str, ...]] = ("agent", "gateway", "archiver", "console")
"""Programs beside the services: the agent of each cluster of Kubernetes, the front door, the
archiver, and the console."""
SILENT: Final = frozenset({"gateway", "archiver", "console"})
"""Edges that say no events of their own."""
