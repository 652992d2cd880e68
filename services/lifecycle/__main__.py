"""Runs the lifecycle service: `python -m lifecycle`."""

from datetime import timedelta

from lifecycle.decide import SERVICE, service
from lifecycle.options import Options
from nodepool.host.hosting import Hosted
from nodepool.host.process import main

HOSTED = Hosted(
    SERVICE,
    lambda settings: service(
        Options(
            timedelta(minutes=settings.answer_minutes),
            timedelta(seconds=settings.unhealthy_seconds),
            registration_failed_event=settings.registration_failed_event == "on",
            reserved_taint=settings.reserved_taint == "on",
        )
    ),
)

if __name__ == "__main__":
    main(HOSTED)
