"""Runs the fleet service: `python -m fleet`."""

from fleet.decide import SERVICE, service
from nodepool.host.process import main

main(SERVICE, lambda settings: service(settings.silent_seconds))
