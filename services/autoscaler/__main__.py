"""Runs the autoscaler service: `python -m autoscaler`."""

from autoscaler.decide import SERVICE
from nodepool.host.process import main

main(SERVICE)
