"""Runs several services in one process: `python -m nodepool.host validator quota`."""

import sys
from collections.abc import Iterator, Sequence
from importlib import import_module

from nodepool.contract.services import SERVICES
from nodepool.host.hosting import Hosted
from nodepool.host.process import main


def _find_services(names: Sequence[str]) -> Iterator[Hosted]:
    """Yield the services of these names; end the process with one line for a wrong name."""
    wrong = [name for name in names if name not in SERVICES or names.count(name) > 1]
    if wrong or not names:
        fault = f"{wrong[0]} is named twice or is no service" if wrong else "name services"
        sys.exit(f"nodepool.host: {fault}; the services are {', '.join(SERVICES)}")
    for name in names:
        hosted: Hosted = import_module(f"{name}.__main__").HOSTED
        yield hosted


if __name__ == "__main__":
    main(*_find_services(sys.argv[1:]))
