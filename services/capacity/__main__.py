"""Runs the capacity service: `python -m capacity`."""

from capacity.decide import SERVICE
from nodepool.host.process import main

main(SERVICE)
