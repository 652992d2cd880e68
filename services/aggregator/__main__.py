"""Runs the aggregator service: `python -m aggregator`."""

from aggregator.decide import SERVICE
from nodepool.runtime import main

main(SERVICE)
