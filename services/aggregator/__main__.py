"""Runs the aggregator service: `python -m aggregator`."""

from aggregator.decide import SERVICE
from nodepool.host.process import main

main(SERVICE)
