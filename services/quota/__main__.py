"""Runs the quota service: `python -m quota`."""

from nodepool.runtime import main
from quota.decide import SERVICE

main(SERVICE)
