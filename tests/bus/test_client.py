"""The client on a real server: commands and outcomes, objects, waiting, and events."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bus.harness import PATIENCE_S, connected, serving
from nodepool.cli.names import EVENT
from nodepool.cli.sources import EndOfList, watch
from nodepool.client import (
    Client,
    Listed,
    NoOutcome,
    NotFound,
    Object,
    Refused,
    TimedOut,
    Unreachable,
)
from nodepool.client.objects import has_condition
from nodepool.client.sender import PendingOutcomes, Sender
from nodepool.contract.commands import DeleteNodePool, RegisterCluster, ScaleNodePool
from nodepool.contract.conditions import Validated
from nodepool.contract.documents import text
from nodepool.contract.events import (
    ClusterRegistered,
    CommandAccepted,
    CWNodePoolDeleted,
    CWOverQuota,
    NodePoolValidated,
)
from nodepool.contract.messages import Command, Event, envelope_of
from nodepool.contract.model import NodePoolSpec
from nodepool.contract.subjects import subject_of
from nodepool.local.server import NatsServer
from nodepool.nats.log import api
from nodepool.nats.log.reader import Reader
from nodepool.nats.log.streams import STREAM
from nodepool.nats.wire.connection import Connection, connect
from testbed.ports import free_port
from validator.decide import SERVICE as VALIDATOR

ORG, CLUSTER, ZONE = "acme", "prod", "US-EAST-04A"
CREATED = datetime(2026, 11, 21, tzinfo=UTC)
MANIFEST = {
    "apiVersion": "compute.coreweave.com/v1alpha1",
    "kind": "NodePool",
    "metadata": {"name": "p"},
    "spec": {"instanceType": "gd-8xh100ib-i128", "targetNodes": 1},
}
DELETE_OLD = DeleteNodePool(org=ORG, cluster=CLUSTER, pool="p", resource_version="1")
SOON_S = 0.5
"""A time limit for what is not to happen."""
LIMITS_S = (SOON_S, 5.0, PATIENCE_S)
"""Such limits, one after the other, until all the rest is done within one on a busy machine."""


@asynccontextmanager
async def opened(
    server: NatsServer, timeout_s: float = PATIENCE_S
) -> AsyncIterator[tuple[Client, Connection]]:
    """A client, and a connection to put messages where it reads."""
    async with (
        connected(server.url) as connection,
        Client(server.url, org=ORG, cluster=CLUSTER, timeout_s=timeout_s) as client,
    ):
        yield client, connection


async def put(connection: Connection, key: str, document: Mapping[str, object]) -> None:
    """Stores an object of the read model; `key` is its bucket and its subject in there."""
    await api.publish(connection, f"$KV.{key}", json.dumps(document).encode())


async def say(connection: Connection, event: Event) -> int:
    """Stores an event of the service that is its speaker; its position."""
    kind = type(event)
    envelope = envelope_of(kind).model_construct(id="1", type=kind.__name__, source="x", data=event)
    return await api.publish(connection, subject_of(event, kind.speaker), envelope.encode())


@asynccontextmanager
async def validating(server: NatsServer, log: Path) -> AsyncIterator[Client]:
    """A client of a validator at work."""
    async with (
        serving(VALIDATOR, server, log),
        Client(server.url, org=ORG, cluster=CLUSTER, timeout_s=PATIENCE_S) as client,
    ):
        yield client


async def refusal_of(client: Client, command: Command, id: str) -> str:
    """Why a command under this id is refused."""
    with pytest.raises(Refused) as refused:
        await client.commands.send(command, id=id)
    return str(refused.value)


def pool(name: str, generation: int = 1, observed: int = 1) -> dict[str, object]:
    """A NodePool at its target, as far as generation `observed` is concerned."""
    condition = {"type": "AtTarget", "status": "True", "observedGeneration": observed}
    return {
        "metadata": {"name": name, "generation": generation},
        "status": {"conditions": [condition]},
    }


# Connecting.


async def test_a_server_that_does_not_run_is_named_with_what_to_do() -> None:
    port = free_port()

    with pytest.raises(Unreachable) as error:
        async with Client(f"nats://user:secret@127.0.0.1:{port}"):
            pass

    assert str(error.value) == (
        f"no NATS server responds at nats://127.0.0.1:{port} (Connection refused): "
        "start one with 'nodepool up', or set NODEPOOL_URL"
    )


async def test_a_server_without_a_control_plane_is_named_with_what_to_do(
    server: NatsServer,
) -> None:
    for timeout_s in LIMITS_S:
        with pytest.raises(Unreachable) as error:
            async with Client(server.url, timeout_s=timeout_s) as client:
                await client.nodepools.list()
        if "no control plane" in str(error.value):
            break

    assert str(error.value).startswith("no control plane is set up at nats://")


# Commands.


async def test_a_command_that_is_not_stored_is_sent_again_less_and_less_often(
    server: NatsServer,
) -> None:
    for timeout_s in (3, 10, 20):
        # given a server without a log
        connection = await connect(server.url, "test")
        outcomes = PendingOutcomes(Reader(connection, STREAM, []), CommandAccepted)
        sender = Sender(connection, outcomes, source="test", timeout_s=timeout_s)

        # when a command is sent
        before = connection.stats["out_msgs"]
        outcome = await sender.send(DeleteNodePool(org=ORG, cluster=CLUSTER, pool="p"))
        sent = connection.stats["out_msgs"] - before
        await connection.close()

        # then it is tried again until the time is up, a few times a second
        assert isinstance(outcome, NoOutcome)
        assert sent <= 7 * timeout_s
        if sent >= 4:
            break
    assert sent >= 4


async def test_a_command_repeated_under_its_id_has_the_outcome_that_it_had(
    server: NatsServer, tmp_path: Path
) -> None:
    scale = ScaleNodePool(org=ORG, cluster=CLUSTER, pool="p", target_nodes=4)
    accepted, refusals = [], []
    # given a command that was accepted under an id, one that was refused, and a later change
    async with validating(server, tmp_path / "first") as client:
        await client.clusters.register(CLUSTER, ZONE)
        await client.nodepools.apply(MANIFEST)
        accepted.append(await client.commands.send(scale, id="u1.2"))
        refusals.append(await refusal_of(client, DELETE_OLD, "u1.delete"))
        await client.nodepools.scale("p", 9)

    # when another client repeats them, after a restart of the service and of the client
    async with validating(server, tmp_path / "second") as client:
        accepted.append(await client.commands.send(scale, id="u1.2"))
        refusals.append(await refusal_of(client, DELETE_OLD, "u1.delete"))

        # then each has the outcome that it had, and nothing is changed
        assert [(each.result, each.generation) for each in accepted] == [("configured", 2)] * 2
        assert len(set(refusals)) == 1
        assert "(Conflict)" in refusals[0]
        assert (await client.nodepools.scale("p", 9)).generation == 3


async def test_a_command_under_an_id_that_the_services_do_not_take_is_not_sent(
    server: NatsServer, tmp_path: Path
) -> None:
    async with validating(server, tmp_path / "log") as client:
        refusals = [await refusal_of(client, DELETE_OLD, id) for id in ("x" * 257, "a\n")]

    refusal = "id: has {} characters; use at most 256 that can be printed (Invalid)"
    assert refusals == [refusal.format(257), refusal.format(2)]


async def test_each_command_of_many_comes_with_its_outcome_in_order(
    server: NatsServer, tmp_path: Path
) -> None:
    # given a validator at work
    async with validating(server, tmp_path / "log") as client:
        # when more commands are sent than may be in flight, one of them without a valid name
        clusters = [RegisterCluster(org=ORG, cluster=f"c{n}", zone=ZONE) for n in range(5)]
        bad = DeleteNodePool(org=ORG, cluster=CLUSTER, pool="a b")
        missing = DeleteNodePool(org=ORG, cluster=CLUSTER, pool="missing")
        outcomes = await client.commands.send_many([*clusters, bad, missing], window=2)

    # then each has its own outcome
    kinds = [each.reason if isinstance(each, Refused) else type(each) for each in outcomes]
    assert kinds == [*[CommandAccepted] * 5, "Invalid", "NotFound"]


async def test_a_refused_command_is_raised_with_its_field(
    server: NatsServer, tmp_path: Path
) -> None:
    async with validating(server, tmp_path / "log") as client:
        with pytest.raises(Refused) as refusal:
            await client.nodepools.scale("missing", 3)

    assert (refusal.value.field, refusal.value.reason) == ("cluster", "NotFound")


async def test_a_manifest_that_cannot_be_read_is_refused_before_it_is_sent(
    server: NatsServer,
) -> None:
    async with opened(server) as (client, _):
        with pytest.raises(Refused, match=r"^the manifest: kind: is \"Pod\"; only NodePool"):
            await client.nodepools.apply("kind: Pod")


async def test_without_services_a_command_has_no_outcome_and_is_not_lost(
    server: NatsServer,
) -> None:
    for timeout_s in LIMITS_S:
        with pytest.raises(NoOutcome) as error:
            async with opened(server, timeout_s=timeout_s) as (client, _):
                await client.clusters.register(CLUSTER, ZONE)
        if "is stored" in str(error.value):
            break

    assert str(error.value) == (
        f"RegisterCluster has no outcome after {timeout_s:g} s; it is stored in the log and will be"
        " processed once the services run"
    )


# Objects.


async def test_objects_are_those_of_the_organisation_and_cluster_by_key(server: NatsServer) -> None:
    async with opened(server) as (client, connection):
        for name in ("b", "a", "x"):
            await put(connection, f"nodepools.{ORG}.{CLUSTER}.{name}", pool(name))
        await put(connection, f"nodepools.{ORG}.other.c", pool("c"))
        await put(connection, f"quotas.{ORG}.Z.t", {"limit": 3})

        assert [each.key for each in await client.nodepools.list()] == ["a", "b", "x"]
        assert await client.quotas.get("Z.t") == {"limit": 3}
        assert await client.nodepools.get("c") is None


async def test_watching_gives_what_there_is_then_each_change_and_deletion(
    server: NatsServer,
) -> None:
    async with opened(server) as (client, connection):
        await put(connection, f"nodepools.{ORG}.{CLUSTER}.p", pool("p"))
        seen: list[object] = []
        async with asyncio.timeout(PATIENCE_S), aclosing(client.nodepools.watch()) as changes:
            async for change in changes:
                match change:
                    case Listed():
                        seen.append("listed")
                        await put(connection, f"nodepools.{ORG}.{CLUSTER}.q", pool("q"))
                    case Object(key="q", document=dict()):
                        seen.append("q")
                        headers = {"KV-Operation": "DEL"}
                        subject = f"$KV.nodepools.{ORG}.{CLUSTER}.q"
                        await api.publish(connection, subject, b"", headers=headers)
                    case Object(key="q", document=None):
                        seen.append("q is gone")
                        break
                    case Object(key=key):
                        seen.append(key)

    assert seen == ["p", "listed", "q", "q is gone"]


async def test_the_zone_of_a_cluster_is_the_one_it_is_registered_in(server: NatsServer) -> None:
    async with opened(server) as (client, connection):
        assert await client.clusters.zone() is None
        await say(connection, ClusterRegistered(org=ORG, cluster=CLUSTER, zone=ZONE))
        assert await client.clusters.zone() == ZONE


# Waiting.


async def test_a_condition_counts_only_for_the_newest_generation(server: NatsServer) -> None:
    async with opened(server) as (client, connection):
        key = f"nodepools.{ORG}.{CLUSTER}.p"
        await put(connection, key, pool("p", generation=2, observed=1))
        with pytest.raises(TimedOut, match="timed out waiting for attarget=True on nodepool/p"):
            await client.nodepools.wait("p", "attarget", timeout_s=SOON_S)
        met = pool("p", generation=2, observed=2)
        await put(connection, key, met)
        assert await client.nodepools.wait("p", "attarget", timeout_s=PATIENCE_S) == met


VALIDATED = NodePoolValidated(
    org=ORG,
    cluster=CLUSTER,
    pool="p",
    uid="u",
    zone=ZONE,
    generation=2,
    version=1,
    created=CREATED,
    spec=NodePoolSpec(instance_type="gd-8xh100ib-i128", target_nodes=3),
    reason=Validated.VALID,
    message="NodePool configuration is valid.",
)
"""A NodePool of generation 2, as the log has accepted it."""


async def test_a_read_model_behind_the_log_does_not_end_a_wait(server: NatsServer) -> None:
    async with opened(server) as (client, connection):
        # given a command that the log has accepted, and an object at its target before that
        await say(connection, VALIDATED)
        key = f"nodepools.{ORG}.{CLUSTER}.p"
        await put(connection, key, pool("p", generation=1, observed=1))
        # when the target is awaited, then it is not met
        with pytest.raises(TimedOut):
            await client.nodepools.wait("p", "AtTarget", timeout_s=SOON_S)
        # until the read model has caught up
        met = pool("p", generation=2, observed=2)
        await put(connection, key, met)
        assert await client.nodepools.wait("p", "AtTarget", timeout_s=PATIENCE_S) == met


async def test_an_object_whose_deletion_lies_in_the_log_already_is_not_found(
    server: NatsServer,
) -> None:
    async with opened(server) as (client, connection):
        # given an object at its target, which the read model still has after its deletion
        await say(connection, VALIDATED)
        await put(connection, f"nodepools.{ORG}.{CLUSTER}.p", pool("p"))
        deleted = CWNodePoolDeleted(org=ORG, cluster=CLUSTER, pool="p", uid="u", message="")
        await say(connection, deleted)
        # when it is awaited, then it is not found
        with pytest.raises(NotFound, match='nodepool "p" not found in acme/prod'):
            await client.nodepools.wait("p", "AtTarget", timeout_s=PATIENCE_S)


async def test_the_mark_of_an_earlier_deletion_is_not_taken_for_one_of_the_present_object(
    server: NatsServer,
) -> None:
    async with opened(server) as (client, connection):
        # given a NodePool that was deleted and made anew, of which the read model is behind
        key = f"nodepools.{ORG}.{CLUSTER}.p"
        await put(connection, key, pool("p"))
        await api.publish(connection, f"$KV.{key}", b"", headers={"KV-Operation": "DEL"})
        await say(connection, VALIDATED)
        # when its deletion is awaited, then it is not met
        with pytest.raises(TimedOut):
            await client.nodepools.wait_until_gone("p", timeout_s=SOON_S)
        # and its creation is, once the read model has it
        waiting = asyncio.create_task(
            client.nodepools.wait_until_created("p", timeout_s=PATIENCE_S)
        )
        await put(connection, key, pool("p", generation=2))
        assert await waiting == pool("p", generation=2)


async def test_a_node_is_awaited_by_its_conditions(server: NatsServer) -> None:
    node = {"status": {"conditions": [{"type": "CWRegistered", "status": "True"}]}}

    async with opened(server) as (client, connection):
        waiting = asyncio.create_task(client.nodes.wait_until_created("g1", timeout_s=PATIENCE_S))
        await put(connection, f"nodes.{ORG}.{CLUSTER}.g1", node)
        assert await waiting == node
        registered = client.nodes.wait_for(
            "g1", lambda each: has_condition(each, "CWRegistered", "True"), "x"
        )
        assert await registered == node


async def test_the_clusters_are_those_that_the_log_has(server: NatsServer) -> None:
    async with opened(server) as (client, connection):
        for org, cluster in (("b", "two"), ("a", "one"), ("b", "one")):
            await say(connection, ClusterRegistered(org=org, cluster=cluster, zone=ZONE))
        registered = await client.clusters.list_registered()

    assert registered == [("a", "one"), ("b", "one"), ("b", "two")]


async def test_waiting_for_a_nodepool_that_does_not_exist_is_an_error(server: NatsServer) -> None:
    async with opened(server) as (client, _):
        await client.nodepools.wait_until_gone("p", timeout_s=PATIENCE_S)
        with pytest.raises(NotFound, match=r'^nodepool "p" not found in acme/prod$'):
            await client.nodepools.wait("p", "AtTarget", timeout_s=PATIENCE_S)


async def test_a_wait_for_deletion_that_takes_too_long_names_what_is_left(
    server: NatsServer,
) -> None:
    left = "timed out waiting for nodepool/a and 1 more to be deleted"
    async with opened(server) as (client, connection):
        for name in ("a", "b"):
            await put(connection, f"nodepools.{ORG}.{CLUSTER}.{name}", pool(name))
        for timeout_s in LIMITS_S:
            with pytest.raises(TimedOut) as error:
                await client.nodepools.wait_until_gone("a", "b", "missing", timeout_s=timeout_s)
            if str(error.value) == left:
                break
        assert str(error.value) == left


# Events.


def over_quota(pool: str, message: str) -> CWOverQuota:
    return CWOverQuota(org=ORG, cluster=CLUSTER, pool=pool, message=message)


async def test_events_are_read_from_a_time_on_and_of_one_nodepool(server: NatsServer) -> None:
    async def messages(client: Client, pool: str = "", since: datetime | None = None) -> list[str]:
        return [event.message async for event in client.events.read(pool=pool, since=since)]

    async with opened(server) as (client, connection):
        for pool, message in (("p", "first"), ("q", "second"), ("p", "third")):
            await say(connection, over_quota(pool, message))
        (second,) = [event.time async for event in client.events.read(pool="q")]

        assert await messages(client) == ["first", "second", "third"]
        assert await messages(client, pool="p") == ["first", "third"]
        assert await messages(client, since=second) == ["second", "third"]


async def test_following_events_goes_on_with_new_ones(server: NatsServer) -> None:
    async with opened(server) as (client, connection):
        await say(connection, over_quota("p", "old"))
        seen: list[str] = []
        async with (
            asyncio.timeout(PATIENCE_S),
            aclosing(client.events.read(follow=True)) as events,
        ):
            async for event in events:
                seen.append(event.message)
                if event.message == "new":
                    break
                await say(connection, over_quota("p", "new"))

    assert seen == ["old", "new"]


@pytest.mark.parametrize(("past", "seen"), [(True, ["old", "new"]), (False, ["new"])])
async def test_a_watch_of_changes_alone_leaves_out_the_events_that_lie_in_the_past(
    past: bool, seen: list[str], server: NatsServer
) -> None:
    messages: list[str] = []
    async with opened(server) as (client, connection):
        await say(connection, over_quota("p", "old"))
        stream = watch(client, EVENT, past=past)
        async with asyncio.timeout(PATIENCE_S), aclosing(stream) as items:
            async for item in items:
                if isinstance(item, EndOfList):
                    await say(connection, over_quota("p", "new"))
                else:
                    messages.append(text(item.document, "message"))
                if messages[-1:] == ["new"]:
                    break
    assert messages == seen
