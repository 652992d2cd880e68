"""Runs the validator service: `python -m validator`."""

from nodepool.host.runtime import main
from validator.decide import SERVICE

main(SERVICE)
