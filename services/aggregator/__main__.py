"""Runs the aggregator service: `python -m aggregator`."""

from nodepool.runtime import main
from aggregator.decide import SERVICE

main(SERVICE)
