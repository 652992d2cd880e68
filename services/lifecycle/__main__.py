"""Runs the lifecycle service: `python -m lifecycle`."""

from lifecycle.decide import SERVICE
from nodepool.host.runtime import main

main(SERVICE)
