"""What was read live is compared with what the log holds at the end."""

from dataclasses import dataclass

import pytest

from faults.copies import lost
from nodepool.contract.log import Entry
from support.replay import run_scenario

LOG = tuple(run_scenario().world.log.entries)
RECORD = LOG[-1]._replace(position=len(LOG) + 1, subject="np.commit.quota", content=b"{}")
WAKE = RECORD._replace(subject="np.evt.clock.quota._._.Wake")
OTHER = RECORD._replace(subject="np.evt.quota.a.b.c.QuotaSet")


@dataclass(frozen=True)
class Copy:
    """What a server holds, and how it differs from what was read."""

    log: tuple[Entry, ...]
    difference: str


@pytest.mark.parametrize(
    "copy",
    [
        Copy(LOG, ""),
        Copy((*LOG, RECORD), ""),
        Copy((*LOG, WAKE), ""),
        Copy((*LOG, OTHER), "it holds"),
        Copy(LOG[:-1], f"it ends before position {len(LOG)}, {LOG[-1].subject}"),
        Copy(LOG[1:], "it holds 2 "),
        Copy((*LOG[:4], LOG[4]._replace(content=b"{}"), *LOG[5:]), "it holds 5 "),
        Copy((*LOG[:4], LOG[4]._replace(time=LOG[0].time.replace(year=2000)), *LOG[5:]), "it "),
    ],
    ids=["same", "more-commits", "more-wakes", "more", "end", "first", "content", "time"],
)
def test_a_copy_that_lacks_or_changes_what_was_read_is_found(copy: Copy) -> None:
    difference = lost(LOG, copy.log)

    assert difference.startswith(copy.difference)
    assert bool(difference) is bool(copy.difference)
