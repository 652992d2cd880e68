"""Runs the capacity service: `python -m capacity`."""

from capacity.decide import SERVICE
from nodepool.runtime import main

main(SERVICE)
