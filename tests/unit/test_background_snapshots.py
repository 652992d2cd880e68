"""When a snapshot is saved, and what happens to one that fails."""

import asyncio
import gc
import json
from collections.abc import Coroutine, Iterator
from pathlib import Path

import pytest

from nodepool.host.logs import ServiceLog
from nodepool.host.settings import Settings
from nodepool.host.snapshots import LOOK_S, PAUSES, REPLAY_S, RETRY_S, STOPPING, Job, Snapshots
from nodepool.nats.wire.errors import InDoubt

EVERY = 100


@pytest.fixture
def log(tmp_path: Path) -> Iterator[ServiceLog]:
    opened = ServiceLog("quota", Settings(log_file=str(tmp_path / "quota.log")))
    yield opened
    opened.close()


class Bench:
    """Snapshots of a replica at a committed position; each job runs until `end` is called."""

    def __init__(self, log: ServiceLog, stored: int, *, ignored: bool = False) -> None:
        self.snapshots = Snapshots(EVERY, log.logger, ignored=ignored)
        self.snapshots.note_stored_position(stored)
        self.jobs: list[str] = []
        self.now = 0.0
        self._ends = asyncio.Event()
        self._result: int | InDoubt = 0

    async def finish(self, committed: int) -> None:
        """Stops."""
        await self.snapshots.finish(committed, self._job("save"))

    def work(self, committed: int, *, leads: bool = True, first: int = 1) -> list[str]:
        """The jobs that were started so far."""
        save, look = self._job("save"), self._job("look")
        saving = save if leads else None
        self.snapshots.work(committed, self.now, save=saving, look=look, first=first)
        return self.jobs

    def _job(self, name: str) -> Job:
        async def run() -> int:
            await self._ends.wait()
            self._ends.clear()
            if isinstance(self._result, InDoubt):
                raise self._result
            return self._result

        def start() -> Coroutine[None, None, int]:
            self.jobs.append(name)
            return run()

        return start

    async def end(self, result: int | InDoubt) -> None:
        """Lets the job end; the position of the snapshot that is stored then, or an error."""
        self._result = result
        self._ends.set()
        for _ in range(5):
            await asyncio.sleep(0)


def logged(log: ServiceLog, folder: Path) -> list[tuple[object, object]]:
    """The event of each line with its cause or position."""
    log.flush()
    lines = map(json.loads, (folder / "quota.log").read_text().splitlines())
    return [(line["event"], line.get("cause") or line.get("position")) for line in lines]


async def test_a_snapshot_is_saved_when_the_stored_one_lies_far_behind(log: ServiceLog) -> None:
    # given a replica whose stored snapshot goes to 1,000, and which has looked for it
    bench = Bench(log, stored=1_000)
    assert bench.work(1_099) == ["look"]
    await bench.end(1_000)

    # when it has committed as much as that lies behind at most
    # then it saves, once
    assert bench.work(1_099) == ["look"]
    assert bench.work(1_100) == ["look", "save"]
    assert bench.work(5_000) == ["look", "save"]

    # and again only as much later
    await bench.end(1_100)
    assert bench.work(1_199) == ["look", "save"]
    assert bench.work(1_200) == ["look", "save", "save"]


async def test_a_snapshot_is_saved_once_a_restart_would_have_to_work_for_long(
    log: ServiceLog,
) -> None:
    # given a replica whose stored snapshot lies a few positions behind
    bench = Bench(log, stored=1_000)
    assert bench.work(1_001) == ["look"]
    await bench.end(1_000)

    # when the work since then has taken long
    bench.snapshots.note_work(REPLAY_S / 2)
    assert bench.work(1_001) == ["look"]
    bench.snapshots.note_work(REPLAY_S / 2)

    # then it saves; the work done meanwhile counts for the next snapshot
    assert bench.work(1_001) == ["look", "save"]
    bench.snapshots.note_work(REPLAY_S / 2)
    await bench.end(1_001)
    assert bench.work(1_002) == ["look", "save"]
    bench.snapshots.note_work(REPLAY_S / 2)
    assert bench.work(1_002) == ["look", "save", "save"]


async def test_work_without_a_commit_leads_to_no_snapshot(log: ServiceLog) -> None:
    # given a replica that has committed nothing since its snapshot
    bench = Bench(log, stored=1_000)

    # when it works for long, then it saves nothing
    bench.snapshots.note_work(2 * REPLAY_S)
    assert bench.work(1_000) == ["look"]


async def test_a_follower_forgets_its_work_once_the_leader_has_saved(log: ServiceLog) -> None:
    # given a follower that has read much
    bench = Bench(log, stored=1_000)
    bench.snapshots.note_work(2 * REPLAY_S)
    assert bench.work(1_050, leads=False) == ["look"]

    # when it sees another snapshot, and leads
    await bench.end(1_040)

    # then it does not save at once
    assert bench.work(1_050) == ["look"]


async def test_what_another_process_has_handled_counts(log: ServiceLog) -> None:
    # given a replica that has just started, far from the snapshot that is stored
    bench = Bench(log, stored=0)

    # when it has handled nothing itself
    # then a snapshot is saved
    assert bench.work(100) == ["save"]


async def test_the_longer_saving_takes_the_longer_is_the_pause_after_it(log: ServiceLog) -> None:
    # given a replica that reads a long log, and a snapshot that kept it busy for three seconds
    bench = Bench(log, stored=0)
    assert bench.work(100) == ["save"]
    bench.now = 9
    bench.snapshots.effort.seconds += 3
    await bench.end(100)

    # when the next snapshot is due at once
    # then the replica reads for several times as long before it saves again
    assert bench.work(1_000) == ["save", "look"]
    await bench.end(100)
    bench.now = 9 + 3 * PAUSES - 1
    assert "save" not in bench.work(2_000)[1:]
    await bench.end(100)
    bench.now = 9 + 3 * PAUSES
    assert bench.work(2_000)[-1] == "save"


async def test_another_snapshot_is_saved_when_the_head_of_the_log_is_cut(log: ServiceLog) -> None:
    # given a replica with a snapshot that is not far behind
    bench = Bench(log, stored=50)
    assert bench.work(90, first=51) == ["look"]
    await bench.end(50)

    # when the log begins behind the snapshot, then another one is saved
    assert bench.work(90, first=52) == ["look", "save"]


async def test_a_service_that_stops_saves_a_snapshot_where_much_would_be_read_again(
    log: ServiceLog,
) -> None:
    for distance, jobs in ((EVERY // STOPPING - 1, []), (EVERY // STOPPING, ["save"])):
        # given a replica whose snapshot is not far enough behind for another one
        bench = Bench(log, stored=1_000)

        # when it stops
        stopping = asyncio.create_task(bench.finish(1_000 + distance))
        await bench.end(1_000 + distance)
        await stopping

        # then it saves another one where that spares much
        assert bench.jobs == jobs


async def test_a_follower_leaves_saving_to_the_leader(log: ServiceLog) -> None:
    # given a follower far from the snapshot that is stored
    bench = Bench(log, stored=0)

    # when time passes, then it looks for the one that the leader saves
    assert bench.work(500, leads=False) == ["look"]
    await bench.end(450)

    # and when it leads, it saves when that one is far behind
    assert bench.work(549) == ["look"]
    assert bench.work(550) == ["look", "save"]


async def test_a_snapshot_that_is_gone_is_reported_and_saved_again(
    log: ServiceLog, tmp_path: Path
) -> None:
    # given a snapshot that is stored
    bench = Bench(log, stored=1_000)
    bench.work(1_010)
    await bench.end(1_000)

    # when it is gone at the next look
    bench.now = LOOK_S - 1
    assert bench.work(1_010) == ["look"]
    bench.now = LOOK_S
    assert bench.work(1_010) == ["look", "look"]
    await bench.end(0)

    # then that is reported, and it is saved again
    assert bench.work(1_010) == ["look", "look", "save"]
    assert logged(log, tmp_path) == [("snapshot lost", 1_000)]


async def test_a_snapshot_that_failed_is_reported_and_saved_again_after_a_pause(
    log: ServiceLog, tmp_path: Path
) -> None:
    # given a snapshot that fails
    bench = Bench(log, stored=0)
    bench.work(100)
    await bench.end(InDoubt("no reply"))

    # when it is still due
    assert bench.work(100) == ["save", "look"]
    await bench.end(0)
    bench.now = RETRY_S - 1
    assert bench.work(100) == ["save", "look", "look"]
    await bench.end(0)

    # then that is reported, and it is saved again after a while
    bench.now = RETRY_S
    assert bench.work(100) == ["save", "look", "look", "save"]
    assert logged(log, tmp_path) == [("snapshot failed", "no reply")]


async def test_a_stored_snapshot_that_is_ignored_is_replaced_by_whichever_replica_leads(
    log: ServiceLog, tmp_path: Path
) -> None:
    # given a replica that ignores the snapshot which is stored, and has seen it as a follower
    bench = Bench(log, stored=0, ignored=True)
    assert bench.work(1_050, leads=False) == ["look"]
    await bench.end(1_000)

    # when it leads, and its first snapshot fails, and it sees the stored one again
    assert bench.work(1_050) == ["look", "save"]
    await bench.end(InDoubt("no reply"))
    bench.now = LOOK_S
    assert bench.work(1_050) == ["look", "save", "look"]
    await bench.end(1_000)

    # then it still saves
    bench.now = LOOK_S + RETRY_S
    assert bench.work(1_050) == ["look", "save", "look", "save"]
    ignored = [bench.snapshots.ignored]
    await bench.end(1_050)

    # and then goes by what is stored, as ever
    assert [*ignored, bench.snapshots.ignored] == [True, False]
    assert bench.work(1_149)[4:] == ["look"]
    await bench.end(1_050)
    assert bench.work(1_149)[4:] == ["look"]
    assert bench.work(1_150)[4:] == ["look", "save"]
    assert logged(log, tmp_path) == [
        ("snapshot failed", "no reply"),
        ("snapshot saved", 1_050),
    ]


async def test_a_snapshot_that_was_saved_as_its_session_ended_is_ignored_no_more(
    log: ServiceLog,
) -> None:
    # given a replica that ignores the snapshot which is stored, and saves another one
    bench = Bench(log, stored=0, ignored=True)
    bench.work(1_050)

    # when its session ends right after it is saved
    await bench.end(1_050)
    bench.snapshots.abandon()

    # then the next session begins there
    assert not bench.snapshots.ignored


async def test_finish_waits_for_the_snapshot_that_is_being_saved(log: ServiceLog) -> None:
    # given a replica that stops while it saves
    bench = Bench(log, stored=0)
    bench.work(100)
    finishing = asyncio.create_task(bench.snapshots.finish(0, None))
    await asyncio.sleep(0)

    # when the snapshot is saved, then it is done
    assert not finishing.done()
    await bench.end(100)
    assert finishing.done()


async def test_finish_without_a_snapshot_does_nothing(log: ServiceLog) -> None:
    # given no snapshot that is being saved
    # when the replica stops
    # then there is nothing to wait for
    await Snapshots(EVERY, log.logger).finish(EVERY // STOPPING - 1, None)


async def test_an_error_in_which_a_job_ends_that_was_abandoned_is_not_reported(
    log: ServiceLog,
) -> None:
    async def job() -> int:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise InDoubt("the connection is closed") from None
        return 0

    # given a job under way
    reported: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: reported.append(str(context["message"])))
    snapshots = Snapshots(EVERY, log.logger)
    snapshots.work(EVERY, 0.0, save=job, look=job)
    await asyncio.sleep(0)

    # when the session ends, and the job fails for that
    snapshots.abandon()
    for _ in range(5):
        await asyncio.sleep(0)
    gc.collect()

    # then asyncio has nothing to say about it
    assert (reported) == []
