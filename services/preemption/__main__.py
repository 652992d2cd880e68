"""Runs the preemption service: `python -m preemption`."""

from nodepool.host.hosting import Hosted
from nodepool.host.process import main
from preemption.decide import SERVICE

HOSTED = Hosted(SERVICE)

if __name__ == "__main__":
    main(HOSTED)
