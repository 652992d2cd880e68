"""Runs the fleet service: `python -m fleet`."""

from fleet.decide import SERVICE
from nodepool.host.runtime import main

main(SERVICE)
