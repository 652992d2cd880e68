"""Node-hours: what counts as what, and that an archive gives the numbers of the whole log."""

import asyncio
import csv
import io
import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aggregator.decide
from flow.test_racks import given_racks, run_pod, want
from nodepool.cli.app import run
from nodepool.client.errors import ClientError
from nodepool.client.node_hours import measure
from nodepool.client.whole_log import opened
from nodepool.contract import events as on
from nodepool.contract.log import Entry, LogId
from nodepool.contract.messages import wrap
from nodepool.contract.model import NodePhase, RemovalReason
from nodepool.contract.node_failures import CORDON_CAUSES, NodeFailure
from nodepool.contract.subjects import subject_of
from nodepool.engine.past import read_into
from nodepool.engine.replica import Replica
from nodepool.engine.world import START
from nodepool.usage.meter import Meter
from nodepool.usage.nodes import Counted, event_of
from nodepool.usage.report import By, build_rows, hours
from nodepool.usage.uses import PREEMPTION, VERIFICATION, Use, use_of
from support.archived import Archiving, archive_entries
from support.constants import PREFER_IDLE
from support.reference.usage import count_usage
from support.replay import scenario_log
from support.simulation.driver import simulated_log
from support.work import ROOT
from support.world_harness import WorldHarness

HOUR = timedelta(hours=1)


def measured(entries: Sequence[Entry], since: datetime, until: datetime) -> Meter:
    """What a replay of all messages counts."""
    meter = Meter(since, until)
    for entry in entries:
        event = event_of(entry)
        if event is not None and entry.time < until:
            meter.add(event, entry.time)
    return meter


def uses(world: WorldHarness, since: datetime) -> dict[str, float]:
    """The hours from a time up to now by use, and of a loss by cause, to a second."""
    meter = measured(world.world.log.entries, since, world.world.log.clock)
    found = dict[str, float]()
    for (_, use, cause), micros in meter.sums().items():
        name = cause or use.value
        found[name] = round(found.get(name, 0) + micros / 3.6e9, 3)
    return {name: value for name, value in found.items() if value}


@pytest.fixture
def world() -> WorldHarness:
    """A NodePool `train` of two Nodes."""
    world = WorldHarness()
    world.given_data_center(machines=10)
    world.apply("train", 2, lifecycle=PREFER_IDLE)
    return world


# What counts as what.


def test_a_node_is_idle_until_a_workload_runs_there_and_afterwards(world: WorldHarness) -> None:
    since, (node, _) = world.world.log.clock, world.nodes("train")

    world.pass_time(minutes=60)
    world.run_pod(node)
    world.pass_time(minutes=120)
    world.stop_pod(node)
    world.pass_time(minutes=60)

    assert uses(world, since) == {"used": 2, "idle": 6}


def test_a_node_that_boots_is_joining_until_it_is_registered() -> None:
    world = WorldHarness()
    world.given_data_center(machines=3, boot_s=360)
    since = world.world.log.clock

    world.apply("train", 2)
    world.pass_time(minutes=60)

    assert uses(world, since) == {"joining": 0.2, "idle": 1.8}


def test_a_node_reserved_for_the_control_plane_is_not_billable_whatever_runs_there(
    world: WorldHarness,
) -> None:
    (node, _), since = world.nodes("train"), world.world.log.clock
    world.command_node("ReserveNode", "train", node, reservedDesired="control-plane")
    world.pass_time(minutes=60)

    found = uses(world, since)

    assert found["reserved"] == pytest.approx(1, abs=0.01)
    assert found["idle"] >= 2, "another machine has taken its place"


def test_a_cordoned_node_is_used_while_something_runs_there_and_lost_afterwards(
    world: WorldHarness,
) -> None:
    (node, _), since = world.nodes("train"), world.world.log.clock
    world.run_pod(node)
    world.command_node("CordonNode", "train", node)
    world.pass_time(minutes=60)
    world.stop_pod(node)
    world.pass_time(minutes=60)

    assert uses(world, since) == {"used": 1, "AdminCordon": 1, "idle": 2}


def test_a_preempted_node_is_used_as_long_as_its_work_runs() -> None:
    world = WorldHarness()
    world.given_data_center(machines=10)
    world.apply("cheap", 2, computeClass="spot")
    (one, other), since = world.nodes("cheap"), world.world.log.clock
    world.run_pod(one, "job", interruption="graceful", graceS=240)

    world.preempt("cheap", one)
    world.preempt("cheap", other)
    world.pass_time(minutes=10)

    found = uses(world, since)
    # Two minutes of warning, and then four of grace.
    assert found["used"] == pytest.approx(6 / 60, abs=0.001)
    assert found["Preempted"] == pytest.approx(2 / 60, abs=0.001)


def test_the_idle_nodes_of_a_rack_that_is_closed_are_lost_for_their_rack() -> None:
    # given a rack, and a workload on one of its Nodes
    world = WorldHarness()
    given_racks(world, 1)
    want(world, 1)
    run_pod(world, "n4")
    since = world.world.log.clock

    # when so many of its Nodes are cordoned that no work begins on the others
    for name in ("n1", "n2", "n3"):
        world.command_node("CordonNode", "train", name)
    world.pass_time(minutes=60)

    # then each Node on which nothing runs is lost, for its own cause or its rack
    assert uses(world, since) == {"used": 1, "AdminCordon": 3, "RackUnavailable": 14}


def test_the_page_names_each_cause_of_a_loss() -> None:
    page = (ROOT / "shared" / "USAGE.md").read_text(encoding="utf-8")

    causes = (*CORDON_CAUSES, PREEMPTION, VERIFICATION, NodeFailure.OTHER.value)

    assert [cause for cause in causes if f"`{cause}`" not in page] == []


def test_a_node_that_leaves_with_its_nodepool_is_idle_until_it_is_deleted(
    world: WorldHarness,
) -> None:
    since = world.world.log.clock
    world.pass_time(minutes=30)
    world.delete("train")
    world.pass_time(minutes=60)

    assert uses(world, since) == {"idle": 1}


def test_nothing_runs_during_a_reboot_whatever_was_known_before() -> None:
    def use(phase: NodePhase) -> Use:
        return use_of(is_registered=True, is_usable=True, is_active=True, phase=phase, is_lost=True)

    assert {phase: use(phase) for phase in NodePhase if use(phase) is not Use.USED} == {
        NodePhase.REBOOTING: Use.LOST
    }


# Any events of a Node.

NODE = {
    "org": "acme",
    "cluster": "prod",
    "pool": "train",
    "node": "g1",
    "zone": "Z",
    "message": "m",
}
LOOK: dict[str, Any] = {"labels": {}, "annotations": {}, "taints": ()}


def events_of(assignment: int) -> st.SearchStrategy[list[Counted]]:
    """What may be said of a Node once it is assigned, in any order."""
    node: dict[str, Any] = {**NODE, "assignment": assignment}
    phases = st.sampled_from([each for each in NodePhase if each is not NodePhase.DELETED])
    removals = st.sampled_from([None, *RemovalReason])
    causes = st.sampled_from(["NotReady", "AdminCordon, NotReady", "odd", "RackUnavailable r1"])
    updated = st.builds(
        lambda phase, removal: on.NodeUpdated(
            **node, **LOOK, phase=phase, unschedulable=False, removal=removal
        ),
        *(phases, removals),
    )
    said = st.one_of(
        updated,
        updated,
        st.booleans().map(lambda active: on.NodeActivityChanged(**node, active=active)),
        st.booleans().map(lambda usable: on.NodeReservationChanged(**node, usable=usable)),
        causes.map(lambda cause: on.CWNodeCordoned(**node, cause=cause)),
        st.just(on.CWNodeUncordoned(**node)),
        st.just(on.CWDrainNode(**node, force=False)),
        phases.map(lambda phase: on.CWNodeRegistered(**node, **LOOK, phase=phase)),
        # Of an earlier stay of the machine, which says nothing of this one.
        st.just(on.NodeActivityChanged(**{**node, "assignment": 99}, active=True)),
    )
    assigned = on.CWNodeAssigned(**node, uid="u", instance_type="t")
    deleted = on.CWNodeDeleted(**node, uid="u", registered=True, removal=RemovalReason.SCALE_DOWN)
    return st.lists(said, max_size=12).map(lambda events: [assigned, *events, deleted])


@settings(max_examples=300, deadline=None)
@given(events_of(1), events_of(2), st.integers(0, 40), st.integers(0, 40), st.booleans())
def test_any_events_of_a_node_count_as_in_the_reference(
    first: list[Counted], second: list[Counted], since: int, length: int, stays: bool
) -> None:
    events = [*first, *second][: -1 if stays else None]
    times = [START + number * HOUR for number in range(len(events))]
    entries = [
        Entry(
            number + 1,
            time,
            subject_of(event, event.speaker),
            wrap(event, id=f"e{number}", source="test", time=time).encode(),
            {},
        )
        for number, (event, time) in enumerate(zip(events, times, strict=True))
    ]
    window = START + since * HOUR, START + (since + length) * HOUR

    found = measured(entries, *window).sums()

    plain = {(tuple(account), use.value, why): n for (account, use, why), n in found.items()}
    assert plain == count_usage(entries, *window)


# The sums.


def test_windows_that_follow_each_other_have_the_sums_of_the_window_that_spans_them() -> None:
    entries = scenario_log()
    chance, begin, end = Random(3), entries[0].time, entries[-1].time
    whole = measured(entries, begin, end).sums()

    for _ in range(20):
        middle = begin + (end - begin) * chance.random()
        first, second = measured(entries, begin, middle), measured(entries, middle, end)
        both = dict(first.sums())
        for entry, micros in second.sums().items():
            both[entry] = both.get(entry, 0) + micros
        assert both == whole


def test_no_time_passes_while_the_clock_of_the_server_is_behind() -> None:
    entries = scenario_log()
    begin, end = entries[0].time, entries[-1].time
    # given a clock that was put back for a while
    back = [
        entry._replace(time=entry.time - 2 * HOUR) if 200 <= entry.position < 220 else entry
        for entry in entries
    ]

    # then all that was stored meanwhile counts as if stored at the last change before
    last = max(entry.time for entry in entries[:199] if event_of(entry) is not None)
    still = [
        entry._replace(time=last) if 200 <= entry.position < 220 else entry for entry in entries
    ]
    assert measured(back, begin, end).sums() == measured(still, begin, end).sums()


def test_rows_add_up_in_each_grouping() -> None:
    entries = scenario_log()
    sums = measured(entries, entries[0].time, entries[-1].time).sums()

    rows = {by: build_rows(sums, by) for by in By}

    assert [row.group for row in rows[By.CLASS]] == [("default",), ("spot",)]
    assert [row.group[2] for row in rows[By.POOL]] == ["cheap", "greedy", "serve", "train"]
    for found in rows.values():
        for row in found:
            assert row.billable == row.used + row.idle + row.lost
        assert sum(row.idle for row in found) == pytest.approx(rows[By.ORGANISATION][0].idle)
    (row,) = (row for row in rows[By.CLASS] if row.group == ("spot",))
    assert row.lost_by_cause == {"Preempted": row.lost}


@given(st.integers(0, 10**18))
def test_hours_have_six_digits_and_are_never_off_by_more_than_half_of_the_last(micros: int) -> None:
    found = hours(micros)

    assert found.as_tuple().exponent == -6
    assert abs(found * 3_600_000_000 - micros) <= 1_800


# The archive.


async def add_snapshot(archiving: Archiving, entries: Sequence[Entry]) -> datetime:
    """Adds a set with a snapshot of the aggregator after these messages; of which time it is."""
    replica = Replica(aggregator.decide.SERVICE, log=LogId(archiving.log))
    read_into(replica, entries)
    while (proposal := replica.propose(even_if_quiet=True)) is not None:
        replica.confirm_proposal(proposal, len(entries))
    hour = START + len(entries) * HOUR  # A set is of an hour, and each of these of another one.
    await archiving.add_set([replica], entries, hour)
    return entries[-1].time


@pytest.mark.parametrize("seed", range(4))
async def test_an_archive_with_a_snapshot_gives_the_numbers_of_the_whole_log(
    seed: int, tmp_path: Path
) -> None:
    log, chance = simulated_log(seed), Random(seed)
    entries = log.entries
    archiving = await archive_entries(tmp_path, entries, log.id, most=200)
    moments = [
        await add_snapshot(archiving, entries[: len(entries) * share // 10]) for share in (3, 6, 9)
    ]
    begin, end = entries[0].time, entries[-1].time
    async with opened(str(tmp_path)) as history:
        for number in range(30):
            drawn = sorted(begin + (end - begin) * chance.random() for _ in range(2))
            since, until = (moments[number % len(moments)], end) if number < 6 else drawn
            if since < until:
                meter = await measure(history, since, until)
                expected = dict(count_usage(entries, since, until))
                found = {
                    (tuple(account), use.value, cause): micros
                    for (account, use, cause), micros in meter.sums().items()
                }
                assert found == expected, f"{since} to {until}"


async def test_only_what_follows_a_snapshot_is_read(tmp_path: Path) -> None:
    entries = scenario_log()
    archiving = await archive_entries(tmp_path, entries, most=50)
    time = await add_snapshot(archiving, entries[: len(entries) // 2])

    # given an archive whose first segments are gone
    for path in sorted((tmp_path / "segments").rglob("*.parquet"))[:3]:
        path.unlink()

    async with opened(str(tmp_path)) as history:
        # when a window begins after the snapshot, then nothing else is needed
        meter = await measure(history, time, entries[-1].time)
        assert meter.sums() == measured(entries, time, entries[-1].time).sums()

    # and when it begins before, then what is missing is named
    with pytest.raises(ClientError, match="is missing; see 'nodepool log verify'"):
        async with opened(str(tmp_path)) as history:
            await measure(history, entries[0].time, entries[-1].time)


async def test_an_archive_that_begins_later_needs_a_snapshot(tmp_path: Path) -> None:
    entries = scenario_log()[100:]
    await archive_entries(tmp_path, entries)

    async with opened(str(tmp_path)) as history:
        with pytest.raises(ClientError, match="from position 101 on, and there is no snapshot"):
            await measure(history, entries[50].time, entries[-1].time)


# The command.


@pytest.fixture
async def archive(tmp_path: Path) -> Path:
    await archive_entries(tmp_path, scenario_log())
    return tmp_path


def usage(archive: Path, *options: str) -> int:
    """The exit code of the command, which asks no server."""
    return run(["usage", "--archive", str(archive), "--only-archived", *options])


async def test_the_hours_are_printed_in_each_format(
    archive: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    window = "--from=2026-01-01", "--to=2026-01-01T00:40Z"

    async def printed(*options: str) -> str:
        assert await asyncio.to_thread(usage, archive, *window, *options) == 0
        return capsys.readouterr().out

    table = (await printed("--by", "class")).splitlines()
    assert table[0].split()[:5] == ["COMPUTE", "CLASS", "BILLABLE", "USED", "IDLE"]
    assert [line.split()[0] for line in table[1:]] == ["default", "spot"]
    rows = list(csv.DictReader(io.StringIO(await printed("--by", "pool", "-o", "csv"))))
    assert [row["pool"] for row in rows] == ["cheap", "serve", "train"]
    (whole,) = json.loads(await printed("-o", "json"))["items"]
    assert whole["organisation"] == "acme"
    assert whole["billable"] == pytest.approx(sum(float(row["billable"]) for row in rows))
    assert whole["lost_by_cause"] == {}


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--from=2026-01-01", "--to=2025-01-01"], 2, "is not after --from, 2026-01-01T00:00:00Z"),
        (["--from=2027-01-01", "--to=2027-02-01"], 1, "the log has nothing from 2027-01-01 00:00"),
        (["--by", "zone"], 2, "'zone' is not one of 'organisation', 'pool', 'type', 'class'"),
        (["--from", "soon"], 2, "--from: 'soon' is no time"),
    ],
)
def test_what_cannot_be_counted_is_named(
    options: list[str], code: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(archive_entries(tmp_path, scenario_log()))

    assert usage(tmp_path, *options) == code
    assert said in capsys.readouterr().err


async def test_the_hours_end_with_the_archive_if_no_server_is_asked(
    archive: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await asyncio.to_thread(usage, archive, "--from=2026-01-01", "--to=2026-02-01") == 0

    said = capsys.readouterr().err
    assert "Node-hours from 2026-01-01T00:00:00Z to 2026-01-01T00:53:00Z" in said
