"""Runs the preemption service: `python -m preemption`."""

from nodepool.host.process import main
from preemption.decide import SERVICE

main(SERVICE)
