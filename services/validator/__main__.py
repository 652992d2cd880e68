"""Runs the validator service: `python -m validator`."""

from nodepool.host.process import main
from validator.decide import SERVICE

main(SERVICE)
