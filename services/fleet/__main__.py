"""Runs the fleet service: `python -m fleet`."""

from nodepool.runtime import main
from fleet.decide import SERVICE

main(SERVICE)
