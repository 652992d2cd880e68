"""Runs the quota service: `python -m quota`."""

from nodepool.host.runtime import main
from quota.decide import SERVICE

main(SERVICE)
