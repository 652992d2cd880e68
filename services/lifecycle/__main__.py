"""Runs the lifecycle service: `python -m lifecycle`."""

from datetime import timedelta

from lifecycle.decide import SERVICE, service
from nodepool.host.process import main

main(SERVICE, lambda settings: service(timedelta(minutes=settings.answer_minutes)))
