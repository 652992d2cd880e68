"""What was shown at a moment is shown again, from an archive, byte for byte."""

import asyncio
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from datetime import datetime
from io import StringIO
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from aggregator.decide import SERVICE as AGGREGATOR
from nodepool.archive.storage.records import Records
from nodepool.archive.storage.store import Store
from nodepool.cli.app import cli, run
from nodepool.cli.settings import Settings
from nodepool.client import Client
from nodepool.client.past.backend import PastBackend
from nodepool.client.past.history import Extent, History, matching
from nodepool.client.past.objects import PastObjects
from nodepool.client.past.replicas import replica_at
from nodepool.client.session import Session
from nodepool.contract.log import Entry, LogId
from nodepool.engine.past import read_into, state_of
from nodepool.engine.replica import Replica
from nodepool.engine.snapshot import dump
from nodepool.engine.world import World
from support.archived import Archiving
from support.constants import CLUSTER, ORG
from support.simulation.driver import Simulation
from support.world_harness import WorldHarness

SEEN = 8
"""At how many moments it is looked at what is shown."""
COMMANDS = (
    ("get", "np,no,qt,cap,cl,ma,zo", "-o", "wide"),
    ("get", "np,no,qt,cap,cl,ma", "-o", "yaml"),
    ("get", "np", "-A", "--show-labels"),
    ("get", "events", "--since", "2h"),
    ("describe", "np,no"),
    ("explain", "np", "train"),
    ("describe", "np", "gone", "missing"),
    ("events", "--since", "30m"),
    ("events", "--for", "np/serve", "--types", "Warning", "-o", "json"),
)


class Shown(NamedTuple):
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str


class Moment(NamedTuple):
    """A moment of a world, and what each command showed then."""

    position: int
    time: datetime
    shown: Sequence[Shown]


class Present(History):
    """The messages of a world until now, as they lie in its memory."""

    def __init__(self, world: World) -> None:
        last = len(world.log.entries)
        super().__init__(None, None, Extent(world.log.id, 1, last, world.log.clock))
        self._log = world.log.entries

    async def recent(self, first: int, filters: Sequence[str] = ()) -> Any:
        """Yield the messages from a position on."""
        match = matching(filters)
        yield [e for e in self._log[first - 1 : self.position] if match(e.subject)]

    async def position_before(self, time: datetime) -> int:
        """Count the messages until then."""
        return sum(entry.time <= time for entry in self._log[: self.position])

    async def message_at(self, position: int) -> Entry | None:
        """Return a message."""
        return self._log[position - 1] if 0 < position <= self.position else None


class PresentSession(Session):
    """A session with a world, which needs no server."""

    def __init__(self, world: World) -> None:
        super().__init__(org=ORG, cluster=CLUSTER)
        history = Present(world)
        backend = PastBackend(ORG, CLUSTER)
        assert AGGREGATOR.projection is not None
        state = world.state(AGGREGATOR.name)
        objects = PastObjects(AGGREGATOR.projection, state, world.log.id, history.position)

        async def read() -> PastObjects:
            return objects

        backend.show(history, read)
        self.__dict__["backend"] = backend
        self.moment = world.log.clock

    async def open(self, on_fault: Any = None) -> None:
        """There is nothing to open."""


class PresentClient(Client):
    """A client of a world."""

    def __init__(self, world: World) -> None:
        super().__init__(org=ORG, cluster=CLUSTER)
        self._use(PresentSession(world))


@dataclass(frozen=True, slots=True)
class PresentSettings(Settings):
    """The settings of a command that sees a world."""

    world: World | None = None

    def _client(self) -> Client:
        assert self.world is not None
        return PresentClient(self.world)


def shown(args: Sequence[str], settings: Settings | None = None) -> Shown:
    """Run a command line; what it prints."""
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        if settings is None:
            code = run(["--org", ORG, "--cluster", CLUSTER, *args])
        else:
            code = int(
                cli.main(args, prog_name="nodepool", standalone_mode=False, obj=settings) or 0
            )
    return Shown(code, out.getvalue(), err.getvalue())


def look(world: World) -> Moment:
    """What each command shows now."""
    settings = PresentSettings(url="", org=ORG, cluster=CLUSTER, world=world)
    return Moment(
        len(world.log.entries),
        world.log.clock,
        [shown(args, settings) for args in COMMANDS],
    )


def act(harness: WorldHarness, chance: Random, number: int) -> None:
    """Something happens, and then time passes."""
    match chance.randrange(9):
        case 0:
            harness.apply("train", chance.randrange(1, 9), nodeLabels={"round": str(number)})
        case 1:
            harness.apply("serve", chance.randrange(1, 9))
        case 2:
            harness.apply("cheap", chance.randrange(1, 5), computeClass="spot")
        case 3:
            harness.delete(chance.choice(("train", "cheap")))
        case 4:
            harness.break_machines(f"n{chance.randrange(1, 20)}", fault="boot")
        case 5:
            harness.break_machines(f"n{chance.randrange(1, 20)}", fault="silence")
        case 6:
            harness.given_quota(chance.randrange(5, 30))
        case 7:
            harness.apply("gone", 1)
            harness.delete("gone")
        case _:
            harness.apply("serve", 60)
    harness.pass_time(minutes=chance.choice((0, 0.1, 1, 7, 90)))


async def archive(folder: Path, harness: WorldHarness, archiving: Archiving | None) -> Archiving:
    """Add the log so far, and a set of the snapshots of all services."""
    archiving = archiving or Archiving(folder, harness.world.log.id)
    await archiving.add(harness.world.log.entries)
    hosts = harness.world.hosts
    log = harness.world.log
    await archiving.add_set((host.replica for host in hosts), log.entries, log.clock)
    return archiving


def test_commands_show_at_any_moment_of_the_past_what_they_showed_then(tmp_path: Path) -> None:
    chance, seen, archiving = Random(5), list[Moment](), None
    # given a world in which much happens, with an archive and snapshot sets now and then
    harness = WorldHarness()
    harness.given_data_center(machines=20, quota=15)
    harness.apply("train", 3)
    for number in range(SEEN * 3):
        act(harness, chance, number)
        # and at some moments it is seen what is shown
        if number % 3 == 2:
            seen.append(look(harness.world))
        if number % 7 == 4:
            harness.pass_time(minutes=61)  # A set is of an hour.
            archiving = asyncio.run(archive(tmp_path, harness, archiving))
    # and the archive knows that nothing more was stored by then
    harness.given_quota(99)
    asyncio.run(archive(tmp_path, harness, archiving))
    assert len(list((tmp_path / "sets").iterdir())) > 2

    for moment in chance.sample(seen, SEEN):
        # when the same is asked for later, of that time
        at = ("--at", moment.time.isoformat(), "--archive", str(tmp_path))
        again = [shown([*args, *at]) for args in COMMANDS]

        # then the same is shown, byte for byte
        assert again == moment.shown


def states(replicas: Sequence[Replica[Any, Any, Any]]) -> list[list[bytes]]:
    """What each of these replicas has folded."""
    return [list(dump(replica.safe)) for replica in replicas]


def test_each_service_is_at_any_position_as_a_replay_of_the_whole_log_has_it(
    tmp_path: Path,
) -> None:
    check_positions(tmp_path, 0)


def check_positions(folder: Path, seed: int) -> None:
    """Compare each service at random positions with replays of the whole log up to there."""
    chance, simulation = Random(seed), Simulation(seed)
    simulation.run()
    log, services = simulation.log, simulation.services
    cuts = sorted(chance.sample(range(1, len(log.entries)), 3))

    async def check() -> None:
        # given the log of a simulation of faults as an archive with snapshot sets
        archiving = Archiving(folder, log.id, seed)
        await archiving.add(log.entries)
        replicas = [Replica[Any, Any, Any](service, log=log.id) for service in services]
        for number, cut in enumerate(cuts):
            for replica in replicas:
                read_into(replica, log.entries[:cut])
            ready = [replica for replica in replicas if replica.is_chained]
            now = log.entries[cut - 1].time.replace(hour=number)
            await archiving.add_set(ready, log.entries, now)
        records = await Records.open(Store(str(folder)))

        # when each service is made at a random position
        for position in chance.sample(range(1, len(log.entries) + 1), 4):
            history = History(records, None, Extent(LogId(log.id), 1, len(log.entries), log.clock))
            history.position = position
            again = [await replica_at(history, service) for service in services]

            # then it is as a replay of the whole log up to there has it
            whole = [Replica[Any, Any, Any](service, log=log.id) for service in services]
            for replica in whole:
                read_into(replica, log.entries[:position])
            assert states(again) == states(whole)
            assert [state_of(each) for each in again] == [state_of(each) for each in whole]

    asyncio.run(check())
