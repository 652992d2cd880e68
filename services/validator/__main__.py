"""Runs the validator service: `python -m validator`."""

from nodepool.runtime import main
from validator.decide import SERVICE

main(SERVICE)
