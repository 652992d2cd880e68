"""Services at work on a real server: they stop, start again, fire timers, park what is broken."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Generator, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from bus.harness import (
    PATIENCE_S,
    ROUNDS,
    connected,
    crash,
    fill,
    limit,
    lines_of,
    outcome,
    outcomes,
    read,
    read_all,
    restart,
    send,
    serving,
    until,
)
from nodepool.contract.commands import SetQuota
from nodepool.contract.events import QuotaSet
from nodepool.contract.messages import Envelope, Message, envelope_of
from nodepool.contract.outcomes import CommandOutcome, build_acceptance
from nodepool.contract.subjects import subject_of
from nodepool.engine.replica import Replica
from nodepool.engine.snapshot import dump
from nodepool.engine.wakes import CLOCK, wake, wake_subject
from nodepool.host.runtime import Runtime
from nodepool.local.server import NatsServer
from nodepool.nats.log import api
from nodepool.nats.log.reader import Reader
from nodepool.nats.log.streams import SNAPSHOTS, STREAM, provision
from nodepool.nats.objects.snapshots import restore
from nodepool.nats.wire.connection import Connection
from nodepool.service import Context, Failure, I, O, Reconciler, S, Service
from nodepool.state.work import WithWork
from quota.decide import SERVICE as QUOTA
from support.constants import H100, ZONE

Damage = Callable[[Connection], Awaitable[None]]
SUBJECT = "np.cmd.acme._._.SetQuota"


def count_processed(runtime: Runtime[S, I, O], message: str = "SetQuota", **labels: str) -> float:
    """How many messages of a kind this replica has processed."""
    registry = runtime.telemetry.metrics.page.registry
    name, total = "nodepool_messages_processed", 0.0
    for family in registry.collect():
        for sample in family.samples if family.name == name else ():
            wanted = {"message": message, **labels}
            if wanted.items() <= sample.labels.items() and sample.name.endswith("_total"):
                total += sample.value
    return total


def state_of(replica: Replica[S, I, O]) -> list[bytes]:
    return list(dump(replica.safe))


async def all_processed(connection: Connection, count: int) -> None:
    """Returns once so many commands have their outcome."""

    async def all_there() -> bool:
        return len(await outcomes(connection)) == count

    await until(all_there)


async def replayed(connection: Connection, service: Service[S, I, O]) -> Replica[S, I, O]:
    """A replica that has read the whole log and nothing else."""
    replica = Replica(service, log=await provision(connection))
    for entry in await read_all(connection):
        if service.wants(entry.subject):
            replica.read(entry)
    return replica


# --- stopping and starting ----------------------------------------------------------------------


async def test_a_replica_that_stopped_gracefully_reads_nothing_again(
    server: NatsServer, tmp_path: Path
) -> None:
    async with connected(server.url) as connection:
        # given a replica that has processed commands, and an input without an output
        async with serving(QUOTA, server, tmp_path / "one.log") as first:
            for number in range(5):
                await send(connection, limit(number), f"c{number}")
            await all_processed(connection, 5)
            too_early = wake("quota", datetime(2100, 1, 1, tzinfo=UTC), 0)
            position = await api.publish(
                connection, subject_of(too_early.data, CLOCK), too_early.encode()
            )
            replica = first.replica
            await until(lambda: replica.read_to >= position and not replica.open)

        # when it has stopped, and another starts
        async with serving(QUOTA, server, tmp_path / "two.log"):
            await send(connection, limit(9), "c9")
            await all_processed(connection, 6)

        # then that one processes only what was not processed before
        lines = lines_of(tmp_path / "two.log")
        committed = first.replica.committed
        assert committed >= position
        positions = [line["position"] for line in lines if "position" in line]
        assert all(isinstance(each, int) and each > committed for each in positions)


async def test_a_replica_that_starts_after_a_crash_processes_the_rest_once(
    server: NatsServer, tmp_path: Path
) -> None:
    async with connected(server.url) as connection:
        # given a replica that crashes while it processes many commands
        async with serving(QUOTA, server, tmp_path / "one.log") as first:
            sending = [send(connection, limit(n), f"c{n}") for n in range(100)]
            await asyncio.gather(*sending[:50])
            await until(lambda: count_processed(first) > 0)
            await crash(first)
            await asyncio.gather(*sending[50:])

        # when another starts
        async with serving(QUOTA, server, tmp_path / "two.log"):
            await all_processed(connection, 100)

        # then each command has one outcome
        by_command = await outcomes(connection)
        assert by_command == {f"c{number}": ["CommandAccepted"] for number in range(100)}


async def test_a_service_that_is_ready_has_processed_all_that_waited_for_it(
    server: NatsServer, tmp_path: Path
) -> None:
    async with connected(server.url) as connection:
        # given a service that has committed something, and commands that came while it was gone
        async with serving(QUOTA, server, tmp_path / "one.log"):
            await send(connection, limit(1), "c1")
            await all_processed(connection, 1)
        envelope = command_envelope(limit(2))
        await fill(connection, [(SUBJECT, envelope)] * 3_000)
        last = await api.last_position(connection, STREAM)

        # when it is ready again
        async with serving(QUOTA, server, tmp_path / "two.log") as runtime:
            # then it has processed all of them
            assert runtime.replica.committed >= last
            assert runtime.replica.open == 0


def command_envelope(command: SetQuota) -> bytes:
    """A command as a client sends it, which others may send too."""
    kind = envelope_of(type(command))
    return kind.model_construct(id="x", type="SetQuota", source="test", data=command).encode()


async def test_a_restart_from_a_snapshot_equals_a_replay_from_the_start_byte_for_byte(
    server: NatsServer, tmp_path: Path
) -> None:
    async with connected(server.url) as connection:
        # given a replica that has saved a snapshot, and has gone on since
        async with serving(QUOTA, server, tmp_path / "one.log", snapshot_after=20) as first:
            await send_several(connection, 0, 40)
            await until(lambda: snapshot_there(connection))
        async with serving(QUOTA, server, tmp_path / "two.log"):
            await send_several(connection, 40, 60)

        # when one starts from the snapshot, and one from the start of the log
        saved = (await restore(connection, QUOTA, await provision(connection))).replica
        async with serving(QUOTA, server, tmp_path / "three.log") as third:
            await until(lambda: third.replica.open == 0)
            again = third.replica
        anew = await replayed(connection, QUOTA)

        # then both have the same state, to the byte
        assert 0 < saved.committed < again.committed
        assert state_of(saved) != state_of(again)
        assert state_of(again) == state_of(anew)
        assert (again.committed, again.expected_sequence) == (
            anew.committed,
            anew.expected_sequence,
        )
        assert state_of(first.replica)


async def send_several(connection: Connection, first: int, last: int) -> None:
    """Sends commands, and returns once each has its outcome."""
    for number in range(first, last):
        await send(connection, limit(number, f"org{number % 7}"), f"c{number}")
    await all_processed(connection, last)


async def snapshot_there(connection: Connection) -> bool:
    return await api.last_message(connection, SNAPSHOTS, "np-snapshot.quota.manifest") is not None


async def chunk_of(connection: Connection) -> str:
    """The subject of the only chunk of the snapshot."""
    entry = await api.last_message(connection, SNAPSHOTS, "np-snapshot.quota.manifest")
    assert entry is not None
    return f"np-snapshot.quota.{json.loads(entry.content)['id']}.0"


async def cut(connection: Connection) -> None:
    await api.publish(connection, await chunk_of(connection), b"not packed")


async def lose(connection: Connection) -> None:
    body = {"filter": await chunk_of(connection)}
    await api.request(connection, f"$JS.API.STREAM.PURGE.{SNAPSHOTS}", body)


async def garble(connection: Connection) -> None:
    await api.publish(connection, "np-snapshot.quota.manifest", b"\x00\xff")


async def other_shape(connection: Connection) -> None:
    await api.publish(connection, "np-snapshot.quota.manifest", b'{"id": 1}')


async def no_object(connection: Connection) -> None:
    await api.publish(connection, "np-snapshot.quota.manifest", b"[]")


async def other_log(connection: Connection) -> None:
    """Deletes the log and leaves its snapshots."""
    await api.request(connection, f"$JS.API.STREAM.DELETE.{STREAM}")
    await provision(connection)


@pytest.mark.parametrize("damage", [cut, lose, garble, other_shape, no_object, other_log])
async def test_a_snapshot_that_cannot_be_used_is_ignored_and_replaced(
    server: NatsServer, tmp_path: Path, damage: Damage
) -> None:
    async with connected(server.url) as connection:
        # given a snapshot that was damaged, or is of another log
        async with serving(QUOTA, server, tmp_path / "one.log", snapshot_after=20):
            await send_several(connection, 0, 25)
            await until(lambda: snapshot_there(connection))
        await damage(connection)
        left = len(await outcomes(connection))

        # when a replica starts
        async with serving(QUOTA, server, tmp_path / "two.log", snapshot_after=20) as second:
            for number in range(100, 130):
                await send(connection, limit(number), f"c{number}")
            await all_processed(connection, left + 30)
            after = second.replica

        # then its state is that of the log, and the next snapshot is usable
        assert state_of(after) == state_of(await replayed(connection, QUOTA))
        again = (await restore(connection, QUOTA, await provision(connection))).replica
        assert 0 < again.committed <= after.committed


# --- what cannot be read ------------------------------------------------------------------------


async def test_an_unreadable_command_is_refused_and_counted_and_has_a_dead_letter(
    server: NatsServer, tmp_path: Path
) -> None:
    async with (
        connected(server.url) as connection,
        serving(QUOTA, server, tmp_path / "one.log") as runtime,
    ):
        # given commands that cannot be read, among some that can
        broken = {
            "b1": b"not json",
            "b2": b'{"zone": "Z"}',
            "b3": b"\xff\xfe\x00",
            "b4": b'{"zone": "Z", "instanceType": "t", "limit": 1, "typo": 1}',
            "b5": b'{"zone": "Z", "instanceType": "t", "limit": 1e400}',
            "b6": b"[" * 100_000,
        }
        for number, (id, content) in enumerate(broken.items()):
            await api.publish(connection, SUBJECT, content, {"Nats-Msg-Id": id})
            await send(connection, limit(number), f"c{number}")

        # when they are processed
        await all_processed(connection, 2 * len(broken))

        # then the unreadable ones are refused with the reason, and the others accepted
        by_command = await outcomes(connection)
        assert {id: by_command[id] for id in broken} == {id: ["CommandRefused"] for id in broken}
        assert all(by_command[f"c{n}"] == ["CommandAccepted"] for n in range(len(broken)))
        refusal = (await outcome(connection, "b2"))["data"]
        assert isinstance(refusal, dict)
        assert (refusal["reason"], refusal["field"]) == ("Invalid", "instanceType")
        assert refusal["message"] == "is required"

        # and each has a dead letter
        log = await read_all(connection)
        letters = [json.loads(e.content) for e in log if e.subject == "np.dead.quota"]
        positions = [entry.position for entry in log if entry.headers.get("Nats-Msg-Id") in broken]
        assert [letter["position"] for letter in letters] == positions
        assert {letter["subject"] for letter in letters} == {SUBJECT}
        assert (letters[1]["field"], letters[1]["cause"]) == ("instanceType", "is required")
        assert letters[1]["content"] == '{"zone": "Z"}'

        # and counted, but not among the dead letters that an operator is alerted to
        value = runtime.telemetry.metrics.page.registry.get_sample_value
        assert value("nodepool_dead_letters_total", {"nodepool_service": "quota"}) == 0
        assert count_processed(runtime, outcome="failure") == len(broken)


async def test_an_unreadable_event_has_a_dead_letter_and_holds_nothing_up(
    server: NatsServer, tmp_path: Path
) -> None:
    async with (
        connected(server.url) as connection,
        serving(QUOTA, server, tmp_path / "one.log"),
    ):
        # given an event whose content is broken
        subject = "np.evt.validator.acme.prod.p.NodePoolValidated"
        position = await api.publish(connection, subject, b'{"data": 1}')

        # when a command follows it
        await send(connection, limit(1), "c1")
        await all_processed(connection, 1)

        # then the event has a dead letter, and the command is processed
        letters = [e for e in await read_all(connection) if e.subject == "np.dead.quota"]
        assert [json.loads(letter.content)["position"] for letter in letters] == [position]


# --- time ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Alarm(WithWork[str]):
    """The state of a service that a command sets for so many milliseconds later.

    due: when it is to publish its event.
    """

    due: datetime | None = None


ALARM_KEY = "alarm"


def evolve_alarm(alarm: Alarm, message: SetQuota | QuotaSet, now: Context) -> Alarm:
    match message:
        case SetQuota(limit=milliseconds):
            due = now.time + timedelta(milliseconds=milliseconds)
            return Alarm(alarm.work.put_at(ALARM_KEY, due), due)
        case QuotaSet():
            return Alarm()


def decide_alarm(
    _alarm: Alarm, command: SetQuota, _now: Context
) -> Generator[CommandOutcome, Alarm, None]:
    yield build_acceptance(command, "done")


def reconcile_alarm(alarm: Alarm, _key: str, now: Context) -> Generator[QuotaSet, Alarm, None]:
    if alarm.due is not None and now.time >= alarm.due:
        yield QuotaSet(org="acme", zone=ZONE, instance_type=H100, limit=1, granted=0)


ALARM = Service(
    name="alarm",
    hears=SetQuota,
    says=QuotaSet,
    initial=Alarm(),
    evolve=evolve_alarm,
    decide=decide_alarm,
    reconciler=Reconciler(reconcile_alarm),
)


def evolve_stuck(alarm: Alarm, message: SetQuota | QuotaSet, _now: Context) -> Alarm:
    match message:
        case SetQuota() | QuotaSet():
            return Alarm(alarm.work.put(ALARM_KEY))


def reconcile_stuck(_alarm: Alarm, _key: str, _now: Context) -> Generator[QuotaSet, Alarm, None]:
    raise LookupError("no such rack")


def report_stuck(_alarm: Alarm, _failure: Failure) -> Iterator[QuotaSet]:
    yield QuotaSet(org="acme", zone=ZONE, instance_type=H100, limit=1, granted=0)


STUCK = replace(
    ALARM, evolve=evolve_stuck, reconciler=Reconciler(reconcile_stuck), on_failure=report_stuck
)
"""A service with a bug: what has failed is due again immediately, for ever."""


async def first_event(connection: Connection, name: str, after: int = 0) -> Envelope[Message]:
    """The first event of the alarm with this name behind a position, as soon as there is one."""
    reader = Reader(connection, STREAM, [f"np.evt.alarm.*.*.*.{name}"], start=after + 1)
    await reader.open()
    (entry,) = await read(reader, 1)
    await reader.close()
    return Envelope[QuotaSet].model_validate_json(entry.content)  # type: ignore[return-value]


async def failures_of_wakes(connection: Connection) -> list[datetime]:
    """When a `Wake` of the alarm was processed and failed; a `Wake` that is passed over is not."""
    entries = await read_all(connection)
    return [entry.time for entry in entries if entry.subject.startswith("np.evt.alarm.")][1:]


async def fired(connection: Connection) -> int:
    """How many `Wake` the log holds for the alarm."""
    subjects = [entry.subject for entry in await read_all(connection)]
    return sum(subject.startswith("np.evt.clock.alarm.") for subject in subjects)


async def test_a_due_service_is_woken_in_time_and_never_early(
    server: NatsServer, tmp_path: Path
) -> None:
    async with (
        connected(server.url) as connection,
        serving(ALARM, server, tmp_path / "one.log"),
    ):
        late: list[float] = []
        for number in range(ROUNDS):
            # given a service that wants to be woken
            await send(connection, limit(300), f"c{number}")
            command = await api.last_message(connection, STREAM, SUBJECT)
            assert command is not None
            due = command.time + timedelta(milliseconds=300)

            # when its time has come
            event = await first_event(connection, "QuotaSet", command.position)

            # then its event is neither early nor late, and one wake was enough
            assert event.time is not None
            late.append((event.time - due).total_seconds())
            assert late[-1] >= 0
            assert await fired(connection) == number + 1
            if late[-1] < 1:
                break
        assert min(late) < 1


async def test_a_wake_before_its_time_finds_nothing_due_and_is_fired_again(
    server: NatsServer, tmp_path: Path
) -> None:
    async with (
        connected(server.url) as connection,
        serving(ALARM, server, tmp_path / "one.log"),
    ):
        for number in range(ROUNDS):
            # given a service that is to be woken in a while
            await send(connection, limit(1_500), f"c{number}")
            command = await api.last_message(connection, STREAM, SUBJECT)
            assert command is not None
            due = command.time + timedelta(milliseconds=1_500)

            # when a machine whose clock is ahead fires the very same wake immediately
            early = wake("alarm", due, command.position)
            await api.publish_event(connection, wake_subject("alarm"), early.encode())

            # then it finds nothing due, and another is fired when the time has come
            event = await first_event(connection, "QuotaSet", command.position)
            assert event.time is not None
            assert event.time >= due
            log = await read_all(connection)
            fired = [entry for entry in log if entry.subject == wake_subject("alarm")]
            times = [entry.time for entry in fired if entry.position > command.position]
            if times[0] < due:  # Else this machine was too busy to fire it before its time.
                assert [time >= due for time in times] == [False, True]
                return
        pytest.fail("no wake was stored before its time")


async def set_alarm(connection: Connection, milliseconds: int) -> datetime:
    """Has the alarm wake its service so much later; a moment at which that is due for certain."""
    await send(connection, limit(milliseconds), "c1")
    await outcome(connection, "c1")
    return datetime.now(UTC) + timedelta(milliseconds=milliseconds)


async def test_a_service_that_became_due_while_it_was_stopped_is_woken_at_its_start(
    server: NatsServer, tmp_path: Path
) -> None:
    async with connected(server.url) as connection:
        # given a service that crashes before it is due
        async with serving(ALARM, server, tmp_path / "one.log") as first:
            due = await set_alarm(connection, 500)
            await crash(first)
        await until(lambda: datetime.now(UTC) > due)

        # when it starts after that time
        async with serving(ALARM, server, tmp_path / "two.log"), asyncio.timeout(PATIENCE_S):
            # then its event follows
            event = await first_event(connection, "QuotaSet")
            assert isinstance(event.data, QuotaSet)


async def test_a_service_whose_every_wake_fails_is_woken_at_growing_intervals(
    server: NatsServer, tmp_path: Path
) -> None:
    async with (
        connected(server.url) as connection,
        serving(STUCK, server, tmp_path / "one.log") as runtime,
    ):
        # given a service that is due, fails, and is due again
        await send(connection, limit(1), "c1")

        # when it was woken several times
        async def several() -> bool:
            return await fired(connection) >= 4

        await until(several)

        # then the pauses between have doubled
        log = await read_all(connection)
        times = [entry.time for entry in log if ".Wake" in entry.subject][:4]
        pauses = [(later - time).total_seconds() for time, later in pairwise(times)]
        assert [pause >= 0.5 * 2**number for number, pause in enumerate(pauses)] == [True] * 3

        # and the failure has one dead letter, and is why the service is not ready
        assert [entry.subject for entry in log].count("np.dead.alarm") == 1
        assert runtime.obstacle() == "what is due fails: LookupError: no such rack"

        # and commands are processed meanwhile
        await send(connection, limit(1), "c2")
        assert (await outcome(connection, "c2"))["type"] == "CommandAccepted"


async def test_two_replicas_whose_every_wake_fails_fire_them_at_growing_intervals_together(
    server: NatsServer, tmp_path: Path
) -> None:
    async with (
        connected(server.url) as connection,
        serving(STUCK, server, tmp_path / "one.log"),
        serving(STUCK, server, tmp_path / "two.log"),
    ):
        # given two replicas of a service that is due, fails, and is due again
        await send(connection, limit(1), "c1")

        # when it was woken several times
        async def several() -> bool:
            return len(await failures_of_wakes(connection)) >= 4

        await until(several)

        # then the leader processed no Wake of the follower while it waited
        first, *_, fourth = (await failures_of_wakes(connection))[:4]
        assert (fourth - first).total_seconds() >= 2.5
        log = await read_all(connection)

        # and the failure has one dead letter
        assert [entry.subject for entry in log].count("np.dead.alarm") == 1


async def test_a_service_that_becomes_due_while_the_server_is_gone_is_woken_when_it_is_back(
    server: NatsServer, tmp_path: Path
) -> None:
    async with (
        connected(server.url) as connection,
        serving(ALARM, server, tmp_path / "one.log"),
    ):
        # given a service that wants to be woken
        due = await set_alarm(connection, 500)

        # when the server is killed, and is back after that time
        await asyncio.to_thread(server.kill)
        await until(lambda: datetime.now(UTC) > due)
        await asyncio.to_thread(server.start)

        # then its event follows
        async with asyncio.timeout(PATIENCE_S):
            event = await first_event(connection, "QuotaSet")
        assert isinstance(event.data, QuotaSet)


# --- the server -----------------------------------------------------------------------------------


async def test_commands_sent_while_the_server_is_killed_again_and_again_have_one_outcome_each(
    server: NatsServer, tmp_path: Path
) -> None:
    async with (
        connected(server.url) as connection,
        serving(QUOTA, server, tmp_path / "one.log"),
    ):
        # given a client that sends commands all the time
        enough, number = asyncio.Event(), 0

        async def keep_sending() -> None:
            nonlocal number
            while not enough.is_set():
                await send(connection, limit(number), f"c{number}")
                number += 1

        sending = asyncio.create_task(keep_sending())

        # when the server is killed again and again
        for round_ in range(1, 8):
            goal = round_ * 10
            await until(lambda goal=goal: number >= goal)
            await restart(server)
        enough.set()
        await sending
        await all_processed(connection, number)

        # then each command has one outcome, however often it was sent, and was done once
        by_command = await outcomes(connection)
        once = {id: set(names) for id, names in by_command.items()}
        assert once == {f"c{n}": {"CommandAccepted"} for n in range(number)}
        log = await read_all(connection)
        assert sum(entry.subject.endswith(".QuotaSet") for entry in log) == number


async def test_a_replica_that_waits_for_a_server_stops_immediately(
    tmp_path: Path, server: NatsServer
) -> None:
    # given a replica that waits for a server
    await asyncio.to_thread(server.kill)
    async with asyncio.timeout(PATIENCE_S):
        # when it is to stop
        async with serving(QUOTA, server, tmp_path / "one.log", wait=False) as runtime:
            assert not runtime.ready.is_set()
