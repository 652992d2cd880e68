"""Runs the allocator service: `python -m allocator`."""

from nodepool.runtime import main
from allocator.decide import SERVICE

main(SERVICE)
