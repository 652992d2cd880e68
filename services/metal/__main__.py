"""Runs the service of real machines: `python -m metal`."""

import os

from metal.decide import SERVICE
from metal.host.driver import Driver
from metal.host.settings import read_metal
from nodepool.host.hosting import Hosted
from nodepool.host.process import main

HOSTED = Hosted(SERVICE, edge=lambda runtime: Driver(runtime, read_metal(os.environ)))

if __name__ == "__main__":
    main(HOSTED)
