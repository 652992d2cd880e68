"""What the command line reads has what was accepted before, on a real server.

The read model is written by the tests, after the log as the aggregator writes it, but much later.
"""

import asyncio
from pathlib import Path
from typing import TypedDict

import pytest

from bus.cli import Done
from bus.harness import connected
from bus.test_client import CLUSTER, CREATED, ORG, ZONE, opened, say
from bus.tls import HOST, running
from nodepool.cli.app import run
from nodepool.cli.names import CAPACITY, NODE, NODEPOOL, QUOTA, Kind
from nodepool.cli.names import CLUSTER as CLUSTER_KIND
from nodepool.cli.sources import Item, read
from nodepool.contract.conditions import Validated
from nodepool.contract.documents import labels
from nodepool.contract.events import (
    CapacityReclaimed,
    ClusterRegistered,
    CWNodeAssigned,
    CWNodeDeleted,
    CWNodePoolDeleted,
    NodePoolDeleting,
    NodePoolValidated,
    NodeUpdated,
    QuotaDeleted,
    QuotaSet,
)
from nodepool.contract.messages import Event
from nodepool.contract.model import NodePhase, NodePoolSpec, RemovalReason
from nodepool.local.server import NatsServer
from nodepool.nats.log import api
from nodepool.nats.objects.stored_objects import VERSION_HEADER
from nodepool.nats.wire.connection import Connection
from testbed.ports import free_port

H100 = "gd-8xh100ib-i128"
SOON_S = 0.3
"""A time limit for what is not to happen, shorter than the time that a reader waits."""
NOTE = "the read model is behind the log: the newest changes may be missing here\n"


def changed(name: str, team: str) -> NodePoolValidated:
    """A NodePool is accepted with this label; its generation stays what it was."""
    return NodePoolValidated(
        org=ORG,
        cluster=CLUSTER,
        pool=name,
        zone=ZONE,
        uid=name,
        generation=1,
        version=1,
        created=CREATED,
        labels={"team": team},
        spec=NodePoolSpec(instance_type=H100, target_nodes=3),
        reason=Validated.VALID,
        message="NodePool configuration is valid.",
    )


def deleting(name: str) -> NodePoolDeleting:
    """A NodePool is being deleted."""
    place = {"org": ORG, "cluster": CLUSTER, "pool": name}
    return NodePoolDeleting(**place, uid=name, generation=1, since=CREATED)


def deleted(name: str) -> CWNodePoolDeleted:
    """A NodePool is gone."""
    return CWNodePoolDeleted(org=ORG, cluster=CLUSTER, pool=name, uid=name, message="")


async def show(connection: Connection, event: Event, position: int) -> None:
    """Writes the object of a NodePool as this event at this position leaves it."""
    assert isinstance(event, NodePoolValidated | NodePoolDeleting | CWNodePoolDeleted)
    headers, content = {VERSION_HEADER: str(position)}, b""
    match event:
        case NodePoolValidated():
            content = b'{"metadata":{"name":"%s","labels":{"team":"%s"}}}' % (
                event.pool.encode(),
                event.labels["team"].encode(),
            )
        case NodePoolDeleting():
            content = b'{"metadata":{"name":"%s","deletionTimestamp":"t"}}' % event.pool.encode()
        case CWNodePoolDeleted():
            headers["KV-Operation"] = "DEL"
    await api.publish(connection, f"$KV.nodepools.{ORG}.{CLUSTER}.{event.pool}", content, headers)


def teams(items: list[Item]) -> dict[str, str]:
    """The label of each NodePool that was read, by its key."""
    return {item.key: labels(item.document or {}).get("team", "") for item in items}


READS = pytest.mark.parametrize(
    ("names", "everywhere"), [((), False), (("a.b",), False), ((), True)], ids=str
)


@READS
@pytest.mark.parametrize(
    ("event", "left"),
    [(changed("a.b", "web"), ["web"]), (deleting("a.b"), [""]), (deleted("a.b"), [])],
    ids=["changed", "deleting", "deleted"],
)
async def test_a_change_that_was_accepted_is_read_though_the_read_model_is_behind(
    server: NatsServer, names: tuple[str, ...], everywhere: bool, event: Event, left: list[str]
) -> None:
    async with opened(server) as (client, connection):
        # given a NodePool that the read model has, and a change that it has not
        before = changed("a.b", "ml")
        await show(connection, before, await say(connection, before))
        position = await say(connection, event)
        # when it is read, then that takes until the read model has the change
        reading = asyncio.create_task(read(client, NODEPOOL, names, everywhere=everywhere))
        await asyncio.wait([reading], timeout=SOON_S)
        await show(connection, event, position)
        assert list(teams(await reading).values()) == left


class NodeFields(TypedDict):
    """The identity of a Node as the fields of an event about it."""

    org: str
    cluster: str
    pool: str
    zone: str
    assignment: int
    node: str


OF_NODE = NodeFields(org=ORG, cluster=CLUSTER, pool="a.b", zone=ZONE, assignment=3, node="g1")
CHANGES: list[tuple[Kind, str, Event]] = [
    (
        NODE,
        f"{ORG}.{CLUSTER}.g1",
        CWNodeAssigned(**OF_NODE, uid="u", instance_type=H100, message=""),
    ),
    (
        NODE,
        f"{ORG}.{CLUSTER}.g1",
        NodeUpdated(
            **OF_NODE,
            phase=NodePhase.PRODUCTION,
            unschedulable=True,
            labels={},
            annotations={},
            taints=(),
        ),
    ),
    (
        QUOTA,
        f"{ORG}.{ZONE}.{H100}",
        QuotaSet(org=ORG, zone=ZONE, instance_type=H100, limit=8, granted=0),
    ),
    (
        QUOTA,
        f"{ORG}.{ZONE}.{H100}",
        QuotaDeleted(org=ORG, zone=ZONE, instance_type=H100, granted=2),
    ),
    (CAPACITY, f"{ZONE}.{H100}", CapacityReclaimed(zone=ZONE, instance_type=H100, count=2)),
    (CLUSTER_KIND, f"{ORG}.{CLUSTER}", ClusterRegistered(org=ORG, cluster=CLUSTER, zone=ZONE)),
]


@pytest.mark.parametrize("everywhere", [False, True], ids=["here", "everywhere"])
@pytest.mark.parametrize(
    ("kind", "key", "event"), CHANGES, ids=[type(event).__name__ for *_, event in CHANGES]
)
async def test_an_object_of_each_kind_is_read_as_it_was_changed_last(
    server: NatsServer, kind: Kind, key: str, event: Event, everywhere: bool
) -> None:
    async def put(connection: Connection, position: int) -> None:
        headers = {VERSION_HEADER: str(position)}
        content = b'{"position":%d}' % position
        await api.publish(connection, f"$KV.{kind.bucket}.{key}", content, headers)

    async with opened(server) as (client, connection):
        # given an object as an older event left it, and one of somewhere else
        await put(connection, 0)
        await say(connection, ClusterRegistered(org="o2", cluster="c2", zone=ZONE))
        position = await say(connection, event)
        # when it is read, then that takes until the read model has the change
        reading = asyncio.create_task(read(client, kind, everywhere=everywhere))
        await asyncio.wait([reading], timeout=SOON_S)
        await put(connection, position)
        shown = [(item.document or {}).get("position") for item in await reading]
        assert shown == [position]


async def test_a_node_that_was_deleted_is_not_read(server: NatsServer) -> None:
    async with opened(server) as (client, connection):
        subject = f"$KV.nodes.{ORG}.{CLUSTER}.g1"
        await api.publish(connection, subject, b"{}", {VERSION_HEADER: "0"})
        gone = CWNodeDeleted(
            **OF_NODE, registered=True, uid="u", removal=RemovalReason.SCALE_DOWN, message=""
        )
        await say(connection, gone)
        reading = asyncio.create_task(read(client, NODE))
        await asyncio.wait([reading], timeout=SOON_S)
        await api.publish(connection, subject, b"", {"KV-Operation": "DEL"})
        assert await reading == []


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff", b"[]", b'{"data":{"node":3}}', b'{"data":{"node":"a b"}}', b"[" * 10_000],
    ids=["empty", "no-text", "no-object", "number", "no-key", "deep"],
)
async def test_an_event_that_cannot_be_read_is_not_waited_for(
    server: NatsServer, content: bytes
) -> None:
    async with opened(server) as (client, connection):
        subject = f"np.evt.lifecycle.{ORG}.{CLUSTER}.p.NodeUpdated"
        await api.publish(connection, subject, content)
        assert await client.nodes.catch_up()


async def test_nothing_is_waited_for_where_the_read_model_has_every_change(
    server: NatsServer,
) -> None:
    async with opened(server) as (client, connection):
        # given no NodePool, then one that was deleted before the read model had it
        assert await client.nodepools.catch_up()
        position = await say(connection, deleted("p"))
        await show(connection, deleted("p"), position - 1)
        assert await client.nodepools.catch_up()


async def test_a_read_model_that_stays_behind_is_read_as_it_is_with_a_note(
    server: NatsServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nodepool.client.accepted.CATCH_UP_S", SOON_S)
    async with opened(server) as (client, connection):
        before = changed("p", "ml")
        await show(connection, before, await say(connection, before))
        await say(connection, changed("p", "web"))
        assert teams(await read(client, NODEPOOL)) == {"p": "ml"}
    assert capsys.readouterr().err == NOTE


NOT_FILLED = (
    "error: the read model does not show the nodepools of the log yet: try again in a moment, and"
    " 'nodepool doctor' says whether the aggregator writes it\n"
)


async def test_after_a_restore_get_ends_with_4_until_the_read_model_is_filled(
    server: NatsServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("nodepool.client.accepted.CATCH_UP_S", SOON_S)
    folder, port, event = str(tmp_path / "backup"), free_port(), changed("p", "ml")
    url = f"nats://{HOST}:{port}"

    async def nodepool(url: str, *words: str) -> Done:
        words = ("--url", url, "--org", ORG, "--cluster", CLUSTER, *words)
        code = await asyncio.to_thread(run, words)
        printed = capsys.readouterr()
        return Done(code, printed.out, printed.err)

    # given the backup of a log with a NodePool, which is restored on another server
    async with connected(server.url) as connection:
        position = await say(connection, event)
    assert (await nodepool(server.url, "backup", folder)).code == 0
    with running(tmp_path, port, ""):
        assert (await nodepool(url, "restore", folder)).code == 0
        async with connected(url) as connection:
            # when a user reads before the aggregator has written an object
            by_list = await nodepool(url, "get", "np", "-o", "name")
            by_name = await nodepool(url, "get", "np", "p", "-o", "name")

            # then the command says that the read model is not filled
            assert {by_list, by_name} == {Done(4, "", f"{NOTE}{NOT_FILLED}")}

            # and it prints the NodePool once the read model is filled
            await show(connection, event, position)
            assert await nodepool(url, "get", "np", "-o", "name") == (
                0,
                "nodepool.compute.coreweave.com/p\n",
                "",
            )
