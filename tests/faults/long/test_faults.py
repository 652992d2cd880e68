"""A short run of `make faults`: servers and services are stopped and killed at random."""

import asyncio

from faults.run import run

SECONDS = 15
SEED = 7
COMMANDS_MIN = 20
"""More than a run begins with, which are 17; a busy machine sends few after these."""


def test_a_cluster_whose_parts_are_stopped_and_killed_keeps_every_promise() -> None:
    report = asyncio.run(run(SEED, SECONDS))

    assert report.violations == []
    assert report.faults.keys() & {"service killed", "service stopped"}
    assert report.commands > COMMANDS_MIN
