"""A service whose key was stolen, on a server with the accounts: it can lie as itself alone."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from bus.accounts import CLUSTER, ORG, Guarded, guarded_server
from bus.harness import ReplicaProcess, launched, limit, outcome, read_all, send, serving, until
from contracts.samples import sample
from nodepool.auth.accounts import GATEWAY, OPERATOR, PROVISIONER, platform_rights
from nodepool.contract.events import CWNodeRegistered
from nodepool.contract.messages import wrap
from nodepool.contract.services import FEED, SERVICES
from nodepool.contract.subjects import subject_of
from nodepool.nats.log.api import request
from nodepool.nats.log.streams import SNAPSHOTS, STREAM
from nodepool.nats.wire.connection import Connection, connect
from nodepool.nats.wire.errors import ServerRefusal
from support.audit.auditor import violations
from support.services import services
from testbed.ports import free_port

HOSTILE = "autoscaler"
"""The service whose key was stolen; it is not at work."""
ALSO = (FEED, GATEWAY, PROVISIONER)
ROUNDS = 5


@asynccontextmanager
async def as_user(server: Guarded, name: str) -> AsyncIterator[Connection]:
    """A connection of an identity."""
    connection = await connect(server.url, name, patience_s=30, access=server.access(name))
    try:
        yield connection
    finally:
        await connection.close()


def said_by_others(name: str) -> list[str]:
    """What services other than this one publish as themselves, with every wildcard filled."""
    own = platform_rights(services())
    return [
        subject.replace("*", "x").replace(">", "x")
        for other in SERVICES
        if other != name
        for subject in own[other].publish
        if not subject.startswith("$JS.API")
    ]


@pytest.mark.parametrize("name", [*SERVICES, *ALSO])
async def test_a_user_of_the_platform_speaks_as_no_service_but_itself(
    tmp_path: Path, name: str
) -> None:
    with guarded_server(tmp_path) as server:
        await server.provision()
        async with as_user(server, name) as hostile, as_user(server, OPERATOR) as operator:
            # given all that other services say, and the commands and inboxes of everybody
            subjects = said_by_others(name)
            subjects += [f"np.cmd.{ORG}.x.x.DeleteNodePool"] if name != GATEWAY else []
            subjects += [f"_INBOX_{each}.x" for each in (*SERVICES, OPERATOR) if each != name]
            subjects += [f"$JS.API.STREAM.{verb}.{SNAPSHOTS}" for verb in ("PURGE", "MSG.DELETE")]

            # when it says that
            for subject in subjects:
                await hostile.publish(subject, b"{}")
            await hostile.flush()

            # then each is denied, and nothing is stored
            denied = len(subjects)
            await until(lambda: len(server.violations()) >= denied)
            for stream in (STREAM, SNAPSHOTS, "KV_nodepools"):
                assert await read_all(operator, stream) == []


async def test_a_service_that_takes_away_consumers_and_messages_of_another_delays_it_only(
    tmp_path: Path,
) -> None:
    (quota,) = services("quota")
    with guarded_server(tmp_path) as server:
        await server.provision()
        access = server.access("quota")
        async with (
            as_user(server, OPERATOR) as operator,
            as_user(server, HOSTILE) as hostile,
            serving(quota, server, tmp_path / "quota.log", access=access, snapshot_after=3),
        ):
            for number in range(ROUNDS):
                # given a hostile service that takes the messages of every consumer, turns it to
                # other messages, and removes it
                await attack_consumers(hostile, remove=number % 2 == 1)

                # when the operator sends a command
                await send(operator, limit(number), f"c{number}")

                # then it has its outcome
                assert (await outcome(operator, f"c{number}"))["type"] == "CommandAccepted"

            # and the log is as it must be, with a snapshot
            assert violations(await read_all(operator)) == []
        async with as_user(server, OPERATOR) as operator:
            manifest = await read_all(operator, SNAPSHOTS)
            assert any(entry.subject == "np-snapshot.quota.manifest" for entry in manifest)


async def attack_consumers(hostile: Connection, *, remove: bool) -> None:
    """Takes messages of every consumer of others, and changes or removes it."""
    listed = await request(hostile, f"$JS.API.CONSUMER.LIST.{STREAM}")
    consumers = listed["consumers"]
    assert isinstance(consumers, list)
    for consumer in consumers:
        name = consumer["name"]
        inbox = hostile.new_inbox()
        pull = json.dumps({"batch": 100, "no_wait": True}).encode()
        await hostile.publish(f"$JS.API.CONSUMER.MSG.NEXT.{STREAM}.{name}", pull, reply=inbox)
        config = {**consumer["config"], "filter_subject": "np.dead.x", "filter_subjects": None}
        body = {"stream_name": STREAM, "config": config, "action": "update"}
        if remove:
            with suppress(ServerRefusal):  # The operator removes its own when it is done.
                await request(hostile, f"$JS.API.CONSUMER.DELETE.{STREAM}.{name}")
        else:
            subject = f"$JS.API.CONSUMER.CREATE.{STREAM}.{name}.np.dead.x"
            await hostile.publish(subject, json.dumps(body).encode(), reply=inbox)
    await hostile.flush()


async def test_a_lie_of_a_service_about_what_it_decides_itself_breaks_a_rule_that_is_shown(
    tmp_path: Path,
) -> None:
    with guarded_server(tmp_path) as server:
        await server.provision()
        shown = server.access("aggregator")
        async with (
            as_user(server, "lifecycle") as hostile,
            as_user(server, OPERATOR) as operator,
        ):
            with launched(
                "aggregator",
                server,
                tmp_path,
                free_port(),
                nkey_file=shown.nkey_file,
                inbox_prefix=shown.inbox_prefix,
            ) as aggregator:
                # given an event about a Node that nobody has assigned, which its service makes up
                lie = sample(CWNodeRegistered, org=ORG, cluster=CLUSTER)
                content = wrap(lie, id="1.lifecycle.0", source="lifecycle").encode()

                # when it says that
                await hostile.publish(subject_of(lie, "lifecycle"), content)
                await hostile.flush()

                # then the aggregator counts a broken rule, and the audit of the log names it
                await until(lambda: _metric(aggregator) > 0)
            assert violations(await read_all(operator)) != []


def _metric(aggregator: ReplicaProcess) -> float:
    try:
        return aggregator.metric("nodepool_invariant_violations_total")
    except OSError:  # It is starting.
        return 0.0


async def test_a_service_that_reads_on_after_a_lost_server_is_denied_nothing(
    tmp_path: Path,
) -> None:
    (quota,) = services("quota")
    with guarded_server(tmp_path) as server:
        await server.provision()
        access = server.access("quota")
        async with serving(quota, server, tmp_path / "quota.log", access=access):
            # given a service that has read a message
            async with as_user(server, OPERATOR) as operator:
                await send(operator, limit(1), "c1")
                await outcome(operator, "c1")

            # when the server is lost and comes again, twice
            for number in (2, 3):
                await asyncio.to_thread(server.kill)
                server.start()
                async with as_user(server, OPERATOR) as operator:
                    await send(operator, limit(number), f"c{number}")

                    # then the service goes on, and the server has denied nothing
                    await outcome(operator, f"c{number}")
            assert server.violations() == []
