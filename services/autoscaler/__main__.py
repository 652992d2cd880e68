"""Runs the autoscaler service: `python -m autoscaler`."""

from autoscaler.decide import SERVICE
from nodepool.host.hosting import Hosted
from nodepool.host.process import main

HOSTED = Hosted(SERVICE)

if __name__ == "__main__":
    main(HOSTED)
