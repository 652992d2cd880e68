"""Messages that do not belong where they are sent, on a real server: none does harm."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from nats.js.errors import NoStreamResponseError

from bus.harness import (
    PATIENCE_S,
    connected,
    fill,
    outcome,
    outcomes,
    read_all,
    send,
    serving,
    until,
)
from contracts.samples import SAMPLES
from nodepool.client import Client
from nodepool.contract.commands import ApplyNodePool, DeleteNodePool, RegisterCluster
from nodepool.contract.events import CWNodePoolNodesRemoved
from nodepool.contract.messages import Message, envelope_of, pool_fields
from nodepool.contract.model import RemovalReason
from nodepool.contract.subjects import subject_of
from nodepool.engine.replica import Replica
from nodepool.engine.snapshot import dump
from nodepool.local.server import NatsServer
from nodepool.nats.log import api
from nodepool.nats.log.reader import Reader
from nodepool.nats.log.streams import STREAM, provision, streams
from nodepool.nats.wire.connection import Connection
from nodepool.service import AnyService
from support.constants import H100, ZONE
from support.sample_service import JOB, Fault, JobQueued, enqueue, page, print_now
from support.sample_service import SERVICE as PRINTER
from support.services import NAMES, services

EVIL = "np.cmd.evil.evil.x"
REMOVED_ELSEWHERE = (
    f"{EVIL}.CWNodePoolNodesRemoved",
    "np.cmd.acme.prod.train.CWNodePoolNodesRemoved",
    "np.evt.allocator.evil.evil.x.CWNodePoolNodesRemoved",
)
"""Subjects of commands, of the NodePool itself too, and of events of another NodePool."""
FAR_BEHIND = 12_000
"""So many messages behind, of which each `EACH`th passes, a reader leaves the filters out."""
EACH = 20
"""Of so many messages one is a command, which the validator refuses; it reads no others."""


def encoded(message: Message, cause: int | None = None) -> bytes:
    """A message in an envelope, as another program may make it."""
    return (
        envelope_of(type(message))
        .model_construct(
            id="e1",
            type=type(message).__name__,
            source="evil",
            causeposition=cause,
            data=message,
        )
        .encode()
    )


async def replayed(connection: Connection, service: AnyService, to: int) -> list[bytes]:
    """What the log alone leads to, up to this commit record."""
    replica = Replica(service, log=await provision(connection))
    for entry in await read_all(connection):
        if entry.position <= to and service.wants(entry.subject):
            replica.read(entry)
    return list(dump(replica.safe))


# --- what the log takes -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "subject",
    [
        "np.cmd.ScaleNodePool",
        "np.cmd.demo.training.ScaleNodePool",
        "np.cmd.demo.demo.training.x.ScaleNodePool",
        "np.evt.quota.demo.QuotaSet",
        "np.evt.quota.demo._._.x.QuotaSet",
        "np.commit.quota.x",
        "np.dead",
        "np.other.a.b.c.D",
    ],
)
async def test_a_message_on_a_subject_of_another_shape_is_not_acknowledged(
    server: NatsServer, subject: str
) -> None:
    async with connected(server.url) as connection:
        # given a bus
        # when a message is sent that no service would ever read
        with pytest.raises(NoStreamResponseError):
            await connection.jetstream().publish(subject, b'{"targetNodes": 3}')

        # then its sender learns that, and it is not stored
        assert await api.last_position(connection, STREAM) == 0


async def test_a_log_of_an_earlier_version_takes_less_from_now_on_and_loses_nothing(
    server: NatsServer,
) -> None:
    async with connected(server.url) as connection:
        # given a log that takes everything below np, and holds a message that nobody reads
        other = {"subjects": ["np.>"], "duplicate_window": 120_000_000_000}
        config = {**streams()[STREAM], **other}
        await api.request(connection, f"$JS.API.STREAM.UPDATE.{STREAM}", config)
        await api.publish(connection, "np.cmd.ScaleNodePool", b"{}")

        # when a service provisions the bus
        await provision(connection)

        # then the log takes no more of these, and still has that one
        with pytest.raises(NoStreamResponseError):
            await connection.jetstream().publish("np.cmd.ScaleNodePool", b"{}")
        subjects = [entry.subject for entry in await read_all(connection)]
        assert subjects == ["np.cmd.ScaleNodePool"]


# --- what readers let through -------------------------------------------------------------------


def everywhere() -> list[str]:
    """Each name of a message on each kind of subject, right or wrong."""
    names = [*dict.fromkeys(type(each).__name__ for each in SAMPLES), "Unknown", "Wake"]
    speakers = [*NAMES, "clock", "evil"]
    return [
        *(f"{EVIL}.{name}" for name in names),
        *(f"np.evt.{speaker}.acme.prod.train.{name}" for speaker in speakers for name in names),
        *(f"np.evt.clock.{name}._._.Wake" for name in NAMES),
        *(f"np.{kind}.{name}" for kind in ("commit", "dead") for name in speakers),
    ]


async def test_the_server_and_the_check_in_python_let_the_same_subjects_through(
    server: NatsServer,
) -> None:
    async with connected(server.url) as connection:
        # given a log with every name of a message where it belongs and where it does not
        await fill(connection, [(subject, b"{}") for subject in everywhere()])
        stored = [entry.subject for entry in await read_all(connection)]

        # when each service reads it with its filters
        # then it gets what its check lets through, neither more nor less
        for service in services():
            wanted = [subject for subject in stored if service.wants(subject)]
            assert await filtered(connection, service.filters()) == wanted


async def filtered(connection: Connection, filters: Sequence[str]) -> list[str]:
    """The subjects of all that the server lets through."""
    reader = Reader(connection, STREAM, filters)
    await reader.open()
    subjects: list[str] = []
    while reader.pending:
        subjects += [entry.subject for entry in await reader.next(timeout_s=5)]
    await reader.close()
    return subjects


# --- events that were not said where they are ---------------------------------------------------


@pytest.mark.parametrize("behind", [0, FAR_BEHIND], ids=["near", "far behind"])
async def test_a_pool_in_deletion_is_not_gone_before_the_allocator_says_so(
    server: NatsServer, tmp_path: Path, behind: int
) -> None:
    async with connected(server.url) as connection:
        # given a NodePool that is being deleted
        (validator,) = services("validator")
        async with serving(validator, server, tmp_path / "one.log"):
            await send(connection, RegisterCluster(org="acme", cluster="prod", zone=ZONE), "c")
            await send(connection, pool(), "apply")
            await send(connection, DeleteNodePool(**pool_fields(JOB)), "delete")
            await outcome(connection, "delete")
        await fill(connection, forged(behind))

        # when another organisation says that its Nodes are gone
        uid = await uid_of_pool(connection)
        for subject in REMOVED_ELSEWHERE:
            await api.publish(connection, subject, encoded(removed(uid)))

        # then it is still there, and the validator goes on
        await send(connection, DeleteNodePool(**pool_fields(JOB)), "again")
        async with serving(validator, server, tmp_path / "two.log"):
            data = (await outcome(connection, "again"))["data"]
        subjects = {entry.subject.rpartition(".")[2] for entry in await read_all(connection)}
        assert "CWNodePoolDeleted" not in subjects
        assert isinstance(data, dict)
        assert data["result"] == "deleted"


def forged(count: int) -> list[tuple[str, bytes]]:
    """So many messages of another organisation, of which the validator reads each `EACH`th."""
    command, event = f"{EVIL}.DeleteNodePool", "np.evt.evil.evil.evil.x.CWNodeAssigned"
    return [(event if number % EACH else command, b"{}") for number in range(count)]


def pool() -> ApplyNodePool:
    manifest = {
        "apiVersion": "compute.coreweave.com/v1alpha1",
        "kind": "NodePool",
        "metadata": {"name": "train"},
        "spec": {"instanceType": H100, "targetNodes": 2},
    }
    return ApplyNodePool.model_validate({**manifest, **pool_fields(JOB)}, by_name=True)


def removed(uid: str) -> CWNodePoolNodesRemoved:
    """What the allocator would say of the last Nodes of the pool."""
    return CWNodePoolNodesRemoved(
        **pool_fields(JOB),
        uid=uid,
        count=2,
        remaining=0,
        removal=RemovalReason.POOL_DELETED,
        message="2 Nodes are removed",
    )


async def uid_of_pool(connection: Connection) -> str:
    (event,) = [e for e in await read_all(connection) if e.subject.endswith(".NodePoolDeleting")]
    return str(json.loads(event.content)["data"]["uid"])


@pytest.mark.parametrize(
    "event",
    [page(99), JobQueued(**pool_fields(JOB), pages=1, fault=Fault.FOLDING_OUTPUT)],
    ids=["fitting its state", "not fitting its state"],
)
async def test_a_foreign_event_on_a_services_own_subject_in_the_middle_of_its_work_changes_nothing(
    server: NatsServer, tmp_path: Path, event: Message
) -> None:
    async with connected(server.url) as connection:
        # given a service at work, and another program that says its events about its inputs
        async with serving(PRINTER, server, tmp_path / "one.log") as runtime:
            for number in range(1, 21):
                last = await api.last_position(connection, STREAM)
                own = subject_of(event, "printer")
                await send(connection, enqueue(1), f"c{number}")
                for cause in range(last, last + 4):
                    await api.publish(connection, own, encoded(event, cause))
            await until(lambda: runtime.replica.state.pages == 20)
            await until(lambda: runtime.replica.due() is None and not runtime.committing)
            live, to = list(dump(runtime.replica.safe)), runtime.replica.expected_sequence

        # when it starts again
        async with serving(PRINTER, server, tmp_path / "two.log") as runtime:
            # then it has done each thing once, and knows what it knew
            assert runtime.replica.state.pages == 20
            assert runtime.replica.failures == 0
        assert await replayed(connection, PRINTER, to) == live


@pytest.mark.parametrize(
    "record",
    [
        b"garbage",
        b'{"position": 1}',
        b'{"position": 999999}',
        b'{"position": 1, "outputs": 0, "follows": 3, "log": "another"}',
        b'{"position": 1, "outputs": 900, "follows": 0, "log": ""}',
    ],
)
async def test_a_foreign_commit_record_before_each_command_keeps_none_from_being_done_once(
    server: NatsServer, tmp_path: Path, record: bytes
) -> None:
    async with connected(server.url) as connection:
        # given a service at work, and another program that stores commit records for it
        async with serving(PRINTER, server, tmp_path / "one.log") as runtime:
            await send(connection, print_now(1), "c0")
            await outcome(connection, "c0")
            for number in range(1, 10):
                await api.publish(connection, "np.commit.printer", record)
                await send(connection, print_now(1), f"c{number}")
            await until(lambda: runtime.replica.state.pages == 10 and not runtime.committing)
            live, to = list(dump(runtime.replica.safe)), runtime.replica.expected_sequence

        # when the log is read from its beginning
        # then each command has one outcome, and it leads to the same
        by_command = await outcomes(connection)
        assert by_command == {f"c{n}": ["CommandAccepted"] for n in range(10)}
        assert await replayed(connection, PRINTER, to) == live


# --- ids that another sender has used ------------------------------------------------------------


async def test_a_wake_is_fired_whatever_ids_another_program_has_used(
    server: NatsServer, tmp_path: Path
) -> None:
    async with connected(server.url) as connection:
        # given a program that uses every id that a wake of the printer may soon have
        for position in range(100):
            headers = {"Nats-Msg-Id": f"printer.0.000000.{position}"}
            await api.publish(connection, f"{EVIL}.DeleteNodePool", b"{}", headers)

        # when the printer has work to do
        async with serving(PRINTER, server, tmp_path / "one.log") as runtime:
            await send(connection, enqueue(3), "c1")

            # then it does it
            await until(lambda: runtime.replica.state.pages == 3)


async def test_a_command_of_the_client_is_not_lost_where_another_sender_has_used_its_id(
    server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connected(server.url) as connection:
        # given another organisation that has sent something under the id that is used next
        monkeypatch.setattr("nodepool.client.sender.uuid4", lambda: "guessed")
        (quota,) = services("quota")
        async with (
            serving(quota, server, tmp_path / "one.log"),
            Client(server.url, org="acme", cluster="prod", timeout_s=PATIENCE_S) as client,
        ):
            headers = {"Nats-Msg-Id": "guessed"}
            await api.publish(connection, "np.cmd.evil._._.SetQuota", b"{}", headers)

            # when a command is sent under that id
            accepted = await client.quotas.set(ZONE, H100, 5)

            # then it is done
            assert accepted.result == "configured"


async def test_a_command_of_any_sender_is_stored_where_its_id_was_used_a_moment_ago(
    server: NatsServer,
) -> None:
    async with connected(server.url) as connection:
        # given a message of another organisation under some id
        headers = {"Nats-Msg-Id": "order-17"}
        first = await api.publish(connection, f"{EVIL}.DeleteNodePool", b"{}", headers)

        # when a program that sends its ids to the server sends one under the same
        async def is_stored() -> bool:
            subject = "np.cmd.acme.prod.train.DeleteNodePool"
            return await api.publish(connection, subject, b"{}", headers) > first

        # then the server takes it as soon as it has forgotten the other
        await until(is_stored)


# --- a type that is not that of the subject -----------------------------------------------------


@pytest.mark.parametrize("headers", [{}, {"ce-type": "DeleteNodePool"}], ids=["JSON", "headers"])
async def test_a_command_of_another_type_than_its_subject_is_refused(
    server: NatsServer, tmp_path: Path, headers: dict[str, str]
) -> None:
    async with connected(server.url) as connection:
        # given a validator
        (validator,) = services("validator")
        async with serving(validator, server, tmp_path / "one.log"):
            # when an event of one type is sent on the subject of another
            event = {"specversion": "1.0", "id": "c1", "data": {"targetNodes": 3}}
            if not headers:
                event["type"] = "DeleteNodePool"
            subject = "np.cmd.acme.prod.train.ScaleNodePool"
            await api.publish(connection, subject, json.dumps(event).encode(), headers)

            # then it is refused
            data = (await outcome(connection, "c1"))["data"]
        assert isinstance(data, dict)
        assert (data["reason"], data["field"]) == ("Invalid", "type")
        assert data["message"] == (
            "differs from the subject it was sent on, which is for ScaleNodePool"
        )


# --- names that are too long --------------------------------------------------------------------


async def test_a_command_about_a_name_that_is_too_long_is_refused_and_stops_nothing(
    server: NatsServer, tmp_path: Path
) -> None:
    async with connected(server.url) as connection:
        # given a command whose outcome would have a longer subject than the server takes
        (validator,) = services("validator")
        token = "x" * 3_990
        async with serving(validator, server, tmp_path / "one.log"):
            headers = {"ce-id": "c1"}
            subject = f"np.cmd.a.b.{token}.ScaleNodePool"
            await api.publish(connection, subject, b'{"targetNodes": 3}', headers)

            # when the validator comes to it
            # then it is refused under a shorter name, and the next command has its outcome
            refused = await outcome(connection, "c1")
            cluster = RegisterCluster(org="acme", cluster="prod", zone=ZONE)
            await send(connection, cluster, "c2")
            assert (await outcome(connection, "c2"))["type"] == "CommandAccepted"
        assert refused["subject"] == f"a/b/{'x' * 253}…"
