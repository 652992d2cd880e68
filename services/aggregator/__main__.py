"""Runs the aggregator service: `python -m aggregator`."""

from aggregator.decide import SERVICE
from aggregator.gauges import gauges
from nodepool.host.runtime import main

main(SERVICE, gauges)
