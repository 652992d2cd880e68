"""Runs the validator service: `python -m validator`."""

from nodepool.host.hosting import Hosted
from nodepool.host.process import main
from validator.decide import SERVICE

HOSTED = Hosted(SERVICE)

if __name__ == "__main__":
    main(HOSTED)
