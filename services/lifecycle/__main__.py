"""Runs the lifecycle service: `python -m lifecycle`."""

from nodepool.runtime import main
from lifecycle.decide import SERVICE

main(SERVICE)
