"""Runs the fleet service: `python -m fleet`."""

from fleet.decide import SERVICE
from nodepool.runtime import main

main(SERVICE)
