"""The services whose messages and metrics the contract describes."""

from importlib import import_module

from nodepool.contract.services import EVERY
from nodepool.service import AnyService


def load_services(*names: str) -> tuple[AnyService, ...]:
    """Return the services with these names; all services if no name is given."""
    found: list[AnyService] = [import_module(f"{name}.decide").SERVICE for name in names or EVERY]
    return tuple(found)
