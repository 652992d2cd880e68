"""Runs the allocator service: `python -m allocator`."""

from allocator.decide import SERVICE
from nodepool.host.hosting import Hosted
from nodepool.host.process import main

HOSTED = Hosted(SERVICE)

if __name__ == "__main__":
    main(HOSTED)
