"""Runs the allocator service: `python -m allocator`."""

from allocator.decide import SERVICE
from nodepool.host.runtime import main

main(SERVICE)
