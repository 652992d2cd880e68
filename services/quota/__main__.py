"""Runs the quota service: `python -m quota`."""

from nodepool.host.hosting import Hosted
from nodepool.host.process import main
from quota.decide import SERVICE

HOSTED = Hosted(SERVICE)

if __name__ == "__main__":
    main(HOSTED)
