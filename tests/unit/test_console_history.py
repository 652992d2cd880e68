"""The events on a page: from the log at first, then as they happen."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import pytest

pytest.importorskip("starlette", reason="needs the packages of nodepool[console]")

from console.host.happenings import BACK, ENOUGH, FURTHER, find_begin
from console.host.history import History
from console.host.mirror import Mirror
from console.host.newest import HAPPENINGS_MAX
from console.host.noting import Reads
from console.view.model import Happening, Place
from nodepool.client.asking import Reply
from nodepool.client.errors import Refused

NOON = datetime(2026, 11, 23, 12, tzinfo=UTC)
TRAIN = Place("prod", "train")


@pytest.fixture(autouse=True)
def read_as_often_as_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the log read again whenever a page is made, if there is a reason."""
    monkeypatch.setattr("console.host.history.KEPT_S", 0.0)
    monkeypatch.setattr("console.host.history.WAIT_S", 0.0)


def happening(position: int, pool: str = "train") -> Happening:
    """An event of a NodePool."""
    return Happening("prod", position, NOON, "Normal", "Scaled", "NodePool", pool, f"{position}")


class Log:
    """Answers queries for events once it may; `asked` are the positions after which it is asked."""

    def __init__(self, *events: Happening) -> None:
        self.events, self.asked = list(events), list[object]()
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.fault: Refused | None = None

    async def ask(self, query: str, fields: Mapping[str, object]) -> Reply:
        """Return the events after a position, all in one page."""
        after = int(str(fields["after"]))
        self.asked.append(after)
        await self.may_answer.wait()
        if self.fault is not None:
            raise self.fault
        shown = [
            {
                "position": each.position,
                "time": NOON.isoformat(),
                "severity": "Normal",
                "reason": each.reason,
                "kind": each.kind,
                "name": each.name,
                "message": "old",
            }
            for each in self.events
            if each.position > after
        ]
        end = max([after, *(each.position for each in self.events)])
        return {"items": shown, "after": end, "atEnd": True}


def positions(events: Sequence[Happening]) -> Sequence[int]:
    """Where events are."""
    return [each.position for each in events]


async def test_events_that_the_mirror_has_seen_since_are_not_read_again() -> None:
    # given a page that has read the events of a NodePool
    mirror, log = Mirror("acme"), Log(happening(3), happening(8))
    mirror.add(happening(5, "other"))
    history = History(mirror, log.ask)
    assert positions(await history.events_of("NodePool", TRAIN)) == [3, 8]

    # when more happens, however long ago that was, then the page has it without the log
    for position in (9, 10):
        mirror.add(happening(position))
        mirror.add(happening(position + 10, "other"))
        await history.events_of("NodePool", TRAIN)

    assert positions(await history.events_of("NodePool", TRAIN)) == [3, 8, 9, 10]
    assert log.asked == [0]


async def test_events_that_the_mirror_has_lost_are_read_from_the_log() -> None:
    # given a page that has read the events of a NodePool
    mirror, log = Mirror("acme"), Log(happening(3), happening(8))
    history = History(mirror, log.ask)
    assert positions(await history.events_of("NodePool", TRAIN)) == [3, 8]

    # when the mirror begins later than that, then the page reads on, and has each event once
    log.events += [happening(9), happening(20)]
    mirror.add(happening(20))
    revision = mirror.revision
    assert positions(await history.events_of("NodePool", TRAIN)) == [3, 8, 20]
    assert await mirror.wait_for_change(revision, 30)

    assert positions(await history.events_of("NodePool", TRAIN)) == [3, 8, 9, 20]
    assert log.asked == [0, 8]


async def test_a_page_that_stays_as_it_is_while_much_happens_elsewhere_reads_no_log_again() -> None:
    # given an open page that has read the events of a NodePool
    mirror, log, reads = Mirror("acme"), Log(happening(3)), Reads()
    mirror.add(happening(2, "other"))
    history = History(mirror, log.ask)
    with reads.open():
        assert positions(await history.events_of("NodePool", TRAIN)) == [3]

    # when more happens elsewhere than the mirror keeps, then nothing of it concerns the page
    for position in range(4, 2 * HAPPENINGS_MAX):
        mirror.add(happening(position, "other"))
        assert reads.hold()

    assert positions(await history.events_of("NodePool", TRAIN)) == [3]
    assert log.asked == [0]


async def test_a_page_does_not_wait_for_thousands_of_events_and_shows_them_later() -> None:
    # given a log that takes its time
    mirror, log = Mirror("acme"), Log(happening(3))
    mirror.add(happening(20))
    log.may_answer.clear()
    history = History(mirror, log.ask, wait_s=0)

    # when a page is made, then it has what the mirror has, and the log is asked once
    for _ in range(3):
        assert positions(await history.events_of("NodePool", TRAIN)) == [20]
    revision, reads = mirror.revision, Reads()
    with reads.open():
        await history.events_of("NodePool", TRAIN)
    assert reads.hold()
    assert log.asked == [0]

    # and when the log has answered, then open pages are made again, with all
    log.may_answer.set()
    assert await mirror.wait_for_change(revision, 30)
    assert not reads.hold()
    assert positions(await history.events_of("NodePool", TRAIN)) == [3, 20]


async def test_while_the_log_cannot_be_read_a_page_has_the_events_that_are_known() -> None:
    mirror, log = Mirror("acme"), Log(happening(3))
    log.fault = Refused("", "Unavailable", "the log does not answer")
    history = History(mirror, log.ask)

    assert positions(await history.events_of("NodePool", TRAIN)) == []

    # when the log answers again, and then no more, then what is known is shown
    log.fault = None
    assert positions(await history.events_of("NodePool", TRAIN)) == [3]
    log.fault = Refused("", "Unavailable", "the log does not answer")
    for _ in range(3):
        assert positions(await history.events_of("NodePool", TRAIN)) == [3]
        await asyncio.sleep(0)
    assert len(log.asked) > 2


@pytest.mark.parametrize(
    ("end", "own", "begin"),
    [
        (BACK, range(1, 5), 0),
        (9 * BACK, range(8 * BACK + 1, 9 * BACK), 8 * BACK),
        (9 * BACK, [*range(6 * BACK, 6 * BACK + ENOUGH), 9 * BACK], 5.75 * BACK),
        (99 * BACK, range(90 * BACK, 98 * BACK), 97.25 * BACK),
        (99 * BACK, range(9), 35 * BACK),
    ],
    ids=["a young log", "all are its own", "a neighbour was busy", "far more", "none for long"],
)
async def test_events_are_read_from_so_far_back_that_a_busy_neighbour_leaves_enough(
    end: int, own: Sequence[int], begin: float
) -> None:
    looked = list[int]()

    async def has_enough(after: int) -> bool:
        looked.append(after)
        return sum(position > after for position in own) >= ENOUGH

    found = await find_begin(has_enough, end)

    assert found == begin
    assert len(looked) <= 10
    beyond = sum(position > found for position in own)
    assert beyond >= min(ENOUGH, len(own)) or found == end - FURTHER * BACK
    assert beyond <= BACK + ENOUGH
