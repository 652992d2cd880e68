"""Processes whose clock is wrong."""

from collections.abc import Mapping
from pathlib import Path

import pytest


def wrong_clock(skew: str) -> Mapping[str, str]:
    """The environment of a process whose clock is wrong by so much, such as `+1h`."""
    library = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)
    if library is None:
        pytest.skip("there is no libfaketime, a package of Debian, to set the clock of a process")
    return {
        "LD_PRELOAD": str(library),
        "FAKETIME": skew,
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
    }
