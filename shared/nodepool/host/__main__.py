"""Runs several services in one process: `python -m nodepool.host validator quota`."""

import gc
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from nodepool.contract.services import EVERY

if TYPE_CHECKING:
    from nodepool.host.hosting import Hosted


def _find_services(names: Sequence[str]) -> "Iterator[Hosted]":
    """Yield the services of these names; end the process with one line for a wrong name."""
    wrong = [name for name in names if name not in EVERY or names.count(name) > 1]
    if wrong or not names:
        fault = f"{wrong[0]} is named twice or is no service" if wrong else "name services"
        sys.exit(f"nodepool.host: {fault}; the services are {', '.join(EVERY)}")
    for name in names:
        hosted: Hosted = import_module(f"{name}.__main__").HOSTED
        yield hosted


def _run(names: Sequence[str]) -> None:
    # What is imported stays, so the collector would find no garbage; `main` starts it again.
    gc.disable()
    from nodepool.host.process import main

    main(*_find_services(names))


if __name__ == "__main__":
    _run(sys.argv[1:])
