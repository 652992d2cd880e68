"""Runs the lifecycle service: `python -m lifecycle`."""

from lifecycle.decide import SERVICE
from nodepool.host.process import main

main(SERVICE)
