"""Runs the lifecycle service: `python -m lifecycle`."""

from lifecycle.decide import SERVICE, service
from nodepool.host.process import main

main(SERVICE, lambda settings: service(60 * settings.answer_minutes))
