"""Runs the capacity service: `python -m capacity`."""

from nodepool.runtime import main
from capacity.decide import SERVICE

main(SERVICE)
