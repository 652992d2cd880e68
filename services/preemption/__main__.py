"""Runs the preemption service: `python -m preemption`."""

from nodepool.host.runtime import main
from preemption.decide import SERVICE

main(SERVICE)
