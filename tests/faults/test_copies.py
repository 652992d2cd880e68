"""What was read live is compared with what the log holds at the end."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest

from faults.copies import lost
from nodepool.contract.log import Entry
from support.replay import scenario_log

Log = Sequence[Entry]


@dataclass(frozen=True)
class Copy:
    """Names a copy of a log by what makes the copy from the log, and by what the copy lacks.

    difference: how the copy differs; {0} is the last entry of the log.
    """

    of: Callable[[Log], Log]
    difference: str


def changed(log: Log, entry: Entry) -> Log:
    """Returns the log with this entry at position 5."""
    return (*log[:4], entry, *log[5:])


def longer(subject: str) -> Callable[[Log], Log]:
    """Returns what adds an entry on this subject to a log."""
    return lambda log: (
        *log,
        log[-1]._replace(position=len(log) + 1, subject=subject, content=b"{}"),
    )


@pytest.mark.parametrize(
    "copy",
    [
        Copy(lambda log: log, ""),
        Copy(longer("np.commit.quota"), ""),
        Copy(longer("np.evt.clock.quota._._.Wake"), ""),
        Copy(longer("np.evt.quota.a.b.c.QuotaSet"), "it holds"),
        Copy(lambda log: log[:-1], "it ends before position {0.position}, {0.subject}"),
        Copy(lambda log: log[1:], "it holds 2 "),
        Copy(lambda log: changed(log, log[4]._replace(content=b"{}")), "it holds 5 "),
        Copy(lambda log: changed(log, log[4]._replace(time=log[0].time.replace(year=2000))), "it "),
    ],
    ids=["same", "more-commits", "more-wakes", "more", "end", "first", "content", "time"],
)
def test_a_copy_that_lacks_or_changes_what_was_read_is_found(copy: Copy) -> None:
    log = scenario_log()

    difference = lost(log, copy.of(log))

    assert difference.startswith(copy.difference.format(log[-1]))
    assert bool(difference) is bool(copy.difference)
