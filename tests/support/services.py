"""The services that tests drive, by name."""

from importlib import import_module

from nodepool.service import AnyService

NAMES = (
    "validator",
    "quota",
    "capacity",
    "allocator",
    "lifecycle",
    "preemption",
    "fleet",
    "aggregator",
)


def services(*names: str) -> tuple[AnyService, ...]:
    """The services of these names, all of them where none is given."""
    return tuple(import_module(f"{name}.decide").SERVICE for name in names or NAMES)
