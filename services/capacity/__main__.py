"""Runs the capacity service: `python -m capacity`."""

from capacity.decide import SERVICE
from nodepool.host.hosting import Hosted
from nodepool.host.process import main

HOSTED = Hosted(SERVICE)

if __name__ == "__main__":
    main(HOSTED)
