"""Runs the allocator service: `python -m allocator`."""

from allocator.decide import SERVICE
from nodepool.host.process import main

main(SERVICE)
