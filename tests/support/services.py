"""The services under test."""

from contracts.services import load_services
from nodepool.contract.services import SERVICES
from nodepool.service import AnyService

# Some seeds of the simulation find what they are to find with the aggregator acting last.
NAMES = tuple(sorted(SERVICES, key="aggregator".__eq__))


def services(*names: str) -> tuple[AnyService, ...]:
    """The services with these names; all of them where none is given."""
    return load_services(*(names or NAMES))
