"""Runs the fleet service: `python -m fleet`."""

from fleet.decide import SERVICE, service
from nodepool.host.hosting import Hosted
from nodepool.host.process import main

HOSTED = Hosted(SERVICE, lambda settings: service(settings.silent_seconds))

if __name__ == "__main__":
    main(HOSTED)
