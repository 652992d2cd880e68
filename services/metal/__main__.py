"""Runs the metal service: `python -m metal`."""

from metal.decide import SERVICE
from nodepool.host.hosting import Hosted
from nodepool.host.process import main

HOSTED = Hosted(SERVICE)

if __name__ == "__main__":
    main(HOSTED)
