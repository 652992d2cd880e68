"""Recording the events of the log as Kubernetes Events, whatever becomes of the log."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from agent.actions import Place, RecordEvent
from agent.host.event_recorder import EventRecorder
from agent.host.model import BusModel
from agent.host.performing import kubernetes_event
from agent.host.view import ClusterView
from agent.host.work import Work
from agent.pools.objects import Log
from bus.harness import connected, until
from nodepool.cli.app import run
from nodepool.client import Client
from nodepool.client.mirror import mirror_of
from nodepool.contract.events import CWNodeAssigned, CWNodePoolCreated
from nodepool.contract.messages import envelope_of
from nodepool.contract.subjects import subject_of
from nodepool.local.server import NatsServer
from nodepool.nats.log import api
from nodepool.nats.log.streams import STREAM
from nodepool.nats.wire.access import NO_ACCESS, Access
from nodepool.nats.wire.connection import Connection
from nodepool.nats.wire.waiting import cancel
from support.agent.answered import unanswered

PLACE = Place("acme", "prod", "zone-a")
OBJECT_S = 0.5


@pytest.fixture(autouse=True)
def _without_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no event wait long for its object: the cluster of these tests has none."""
    monkeypatch.setattr("agent.host.event_recorder.OBJECT_S", OBJECT_S)


async def say(connection: Connection, *pools: str) -> None:
    """Stores for each of these NodePools the event that it is created."""
    for pool in pools:
        event = CWNodePoolCreated(org=PLACE.org, cluster=PLACE.cluster, pool=pool, message=pool)
        envelope = envelope_of(CWNodePoolCreated).model_construct(
            id=pool, type="CWNodePoolCreated", source="validator", subject="", data=event
        )
        await api.publish_event(connection, subject_of(event, "validator"), envelope.encode())


async def assign(connection: Connection, pool: str, *nodes: str) -> None:
    """Stores for each of these Nodes the event that it is assigned to the NodePool."""
    for node in nodes:
        event = CWNodeAssigned(
            org=PLACE.org,
            cluster=PLACE.cluster,
            pool=pool,
            node=node,
            zone=PLACE.zone,
            assignment=1,
            uid="pool-uid",
            instance_type="gd-8xh100ib-i128",
            message=f"{node} is assigned",
        )
        envelope = envelope_of(CWNodeAssigned).model_construct(
            id=node, type="CWNodeAssigned", source="allocator", subject="", data=event
        )
        await api.publish_event(connection, subject_of(event, "allocator"), envelope.encode())


class Cluster:
    """A cluster without objects, in which an Event is recorded once under its name.

    events, counts: the objects of what was recorded, in its order, and how many events each shows.
    progress: what the Lease says of it.
    """

    def __init__(self) -> None:
        self.events: list[str] = []
        self.counts: list[int] = []
        self.progress = ""
        self._names: set[str] = set()

    async def _record(self, event: RecordEvent) -> None:
        if kubernetes_event(event).name not in self._names:
            self._names.add(kubernetes_event(event).name)
            self.events.append(event.name)
            self.counts.append(event.count)

    @asynccontextmanager
    async def followed(
        self, connection: Connection, url: str, access: Access = NO_ACCESS
    ) -> AsyncIterator[None]:
        """An agent records the events of the log here, until the context ends."""
        client = Client(url, org=PLACE.org, cluster=PLACE.cluster, access=access)
        async with unanswered() as (api_server, lines), client:
            mirror = mirror_of(client.session, "")
            state = await mirror.open()
            model = BusModel(lambda _key: None)
            log = model.log = Log(state.id, state.end)
            view = ClusterView(api_server, PLACE, model, Work(lambda: True), lambda: None, lines)
            view.pools.fault = view.nodes.fault = ""
            recorder = EventRecorder(PLACE, model, view, self._record, lines, self.progress)
            following = asyncio.create_task(recorder.follow(mirror, log, state))
            try:
                yield
                end = await api.last_position(connection, STREAM)
                await until(
                    lambda: recorder.recorded.split(":")[1:2] == [str(end)] or following.done()
                )
            finally:
                await cancel(following)
                self.progress = recorder.recorded
            assert following.cancelled(), following.exception()


async def test_events_are_recorded_once_by_one_agent_after_another(server: NatsServer) -> None:
    cluster = Cluster()
    async with connected(server.url) as connection:
        await say(connection, "before")
        async with cluster.followed(connection, server.url):
            await say(connection, "first")
        await say(connection, "between")
        async with cluster.followed(connection, server.url):
            await say(connection, "second")

    assert cluster.events == ["before", "first", "between", "second"]


@pytest.mark.parametrize("since", [[], ["b"], ["b", "c", "d", "e"]], ids=["none", "fewer", "more"])
async def test_events_are_recorded_of_a_log_restored_from_a_backup(
    server: NatsServer, tmp_path: Path, since: list[str]
) -> None:
    cluster, folder = Cluster(), str(tmp_path / "backup")
    async with connected(server.url) as connection:
        # given a backup, and events that were recorded since
        async with cluster.followed(connection, server.url):
            await say(connection, "a")
            assert await asyncio.to_thread(run, ["--url", server.url, "backup", folder]) == 0
            await say(connection, "lost-1", "lost-2", "lost-3")
        assert cluster.events == ["a", "lost-1", "lost-2", "lost-3"]

        # when it is restored, and things happen before an agent is there again, or more
        line = ["--url", server.url, "restore", "--force", folder]
        assert await asyncio.to_thread(run, line) == 0
        await say(connection, *since)
        async with cluster.followed(connection, server.url):
            await say(connection, "last")

    # then what has taken the places of the events that are lost is recorded as well
    assert cluster.events == ["a", "lost-1", "lost-2", "lost-3", *since, "last"]


async def test_events_about_the_nodes_of_a_nodepool_are_few_events_with_their_count(
    server: NatsServer,
) -> None:
    cluster = Cluster()
    async with connected(server.url) as connection, cluster.followed(connection, server.url):
        await assign(connection, "train", *(f"n{number}" for number in range(40)))
        await assign(connection, "serve", "only")

    # Each window is one Event, and those that came together may lie in two windows.
    assert sum(cluster.counts) == 41
    assert cluster.events in (["train", "serve"], ["train", "train", "serve"])


@pytest.mark.parametrize("is_noted", [True, False])
async def test_an_agent_that_is_killed_leaves_each_event_counted_once(
    server: NatsServer, is_noted: bool
) -> None:
    # given an agent that is killed after, or before, it has noted what it has shown
    cluster = Cluster()
    async with connected(server.url) as connection:
        await assign(connection, "train", "n1", "n2")
        async with cluster.followed(connection, server.url):
            before = cluster.progress
        cluster.progress = cluster.progress if is_noted else before
        await assign(connection, "train", "n3")

        # when another one takes its place
        async with cluster.followed(connection, server.url):
            await say(connection, "created")

    # then each event counts once
    assert cluster.events.count("train") in (1, 2)
    assert sum(cluster.counts) == 4
