"""Runs the quota service: `python -m quota`."""

from nodepool.host.process import main
from quota.decide import SERVICE

main(SERVICE)
