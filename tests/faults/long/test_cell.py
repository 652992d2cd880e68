"""A cell on a disk of fixed size: it is killed at random and filled up, and nothing is lost."""

import asyncio
from pathlib import Path

import pytest

from faults.cell.parts import small
from faults.cell.run import KILLS_MIN, run

SEED = 22


@pytest.mark.timeout(1_200)
def test_a_cell_on_a_disk_of_fixed_size_loses_nothing_and_knows_its_past(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    is_short = request.config.getoption("--short")

    # given a cell whose archiver trims the log, and whose parts are killed all the time
    # when its disk is full, because the archiver is away, and the archiver comes back
    sizes = small(12_000 if is_short else 60_000)
    report = asyncio.run(run(SEED, sizes, tmp_path))

    # then archive and log hold every message once, and any moment is shown as it was
    assert report.faults == [], "\n".join(report.lines())
    # How far the log is trimmed depends on when the last snapshot sets were made.
    assert report.figures["positions trimmed"] > sizes.messages // 8
    assert report.figures["moments of the past compared"] > 0
    assert sum(report.kills.values()) >= KILLS_MIN
