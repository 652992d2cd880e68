"""Runs the fleet service: `python -m fleet`."""

from fleet.decide import SERVICE
from nodepool.host.process import main

main(SERVICE)
