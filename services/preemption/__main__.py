"""Runs the preemption service: `python -m preemption`."""

from nodepool.runtime import main
from preemption.decide import SERVICE

main(SERVICE)
