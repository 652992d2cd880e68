"""The metrics of a running control plane: how many series there are, and who exports which."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from bus.harness import ReplicaProcess, connected, launched, until
from nodepool.client import Client
from nodepool.contract.services import SERVICES
from nodepool.local.server import NatsServer
from nodepool.nats import api
from nodepool.nats.connection import Connection
from support.constants import H100, ZONE
from support.ports import free_port
from support.services import services

INVENTED = 300
TYPOS = 30
SERIES_MAX = 700
"""The most series that all services may have together, with one NodePool."""
TARGET_LABELS = {
    "cluster",
    "container",
    "endpoint",
    "instance",
    "job",
    "namespace",
    "node",
    "pod",
    "service",
}
"""Labels that Prometheus, or a usual configuration of it, gives to whatever a target exports."""
MANIFEST = {
    "apiVersion": "compute.coreweave.com/v1alpha1",
    "kind": "NodePool",
    "metadata": {"name": "p"},
    "spec": {"instanceType": H100, "targetNodes": 2},
}

DEAD_LETTERS = "nodepool_dead_letters_total"
KNOWN = {
    "unknown",
    *(
        name
        for service in services()
        for messages in (service.inputs, service.outputs)
        for name in messages
    ),
}
"""The values that the label `message` may have."""

Series = tuple[str, Mapping[str, str], float]
"""A series as it is on a page: its name, its labels, its value."""


def series(page: str) -> Iterator[Series]:
    """The series on a page."""
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            yield sample.name, sample.labels, sample.value


def values(replica: ReplicaProcess, name: str) -> list[float]:
    """The values of one metric on the page of a replica."""
    return [value for found, _, value in series(replica.page("/metrics")) if found == name]


async def ready(replicas: Sequence[ReplicaProcess]) -> None:
    """Returns once each replica is ready."""

    def is_ready(replica: ReplicaProcess) -> bool:
        try:
            return replica.page("/readyz") == "ok\n"
        except OSError:
            return False

    await until(lambda: all(map(is_ready, replicas)))


def labels(page: Sequence[Series], name: str) -> set[str]:
    """The values of one label on a page."""
    return {labels[name] for _, labels, _ in page if name in labels}


async def with_a_pool(client: Client) -> None:
    """Brings a NodePool to its target of two Nodes."""
    await client.register_cluster("prod", ZONE)
    await client.set_quota(ZONE, H100, 4)
    await client.add_machines(ZONE, H100, 4)
    await client.apply(MANIFEST)
    await client.wait("p", "AtTarget", timeout_s=60)


async def invent(connection: Connection, client: Client) -> None:
    """Sends commands of names, and about instance types, that there are not."""
    for number in range(INVENTED):
        await api.publish(connection, f"np.cmd.acme.prod.p.Invented{number}", b"{}")
    for number in range(TYPOS):
        typo = {"name": f"typo{number}"}, {"instanceType": f"typo-{number}", "targetNodes": 1}
        await client.apply({**MANIFEST, "metadata": typo[0], "spec": typo[1]})
        await client.delete(f"typo{number}")
        await client.wait_until_gone(f"typo{number}", timeout_s=60)


@pytest.mark.timeout(240)
def test_what_senders_invent_makes_no_series(server: NatsServer, tmp_path: Path) -> None:
    async def story(replicas: Mapping[str, ReplicaProcess]) -> None:
        async with (
            connected(server.url) as connection,
            Client(server.url, org="acme", cluster="prod", timeout_s=30) as client,
        ):
            # given a control plane with a NodePool at its target
            await ready(tuple(replicas.values()))
            await with_a_pool(client)

            # when hundreds of commands arrive that are unknown, or about types that are
            await invent(connection, client)
            await until(lambda: sum(values(replicas["validator"], DEAD_LETTERS)) == INVENTED)

        # then there are no more series than the system itself makes
        pages = {name: list(series(it.page("/metrics"))) for name, it in replicas.items()}
        assert {name for page in pages.values() for name in labels(page, "message")} <= KNOWN
        assert {name for page in pages.values() for name in labels(page, "pool")} == {"p"}
        assert {kind for page in pages.values() for kind in labels(page, "instance_type")} == {H100}
        assert sum(map(len, pages.values())) <= SERIES_MAX

        # and no label is one that Prometheus gives to the target
        used = {name for page in pages.values() for _, labels, _ in page for name in labels}
        assert used & TARGET_LABELS == set()

    with ExitStack() as stack:
        replicas = {
            name: stack.enter_context(launched(name, server, tmp_path, free_port()))
            for name in SERVICES
        }
        asyncio.run(story(replicas))


NODES = "nodepool_current_nodes"


def leading(replicas: Sequence[ReplicaProcess]) -> list[float]:
    """What each replica says of its leadership."""
    return [value for it in replicas for value in values(it, "nodepool_leading")]


@pytest.mark.timeout(240)
def test_of_two_replicas_the_one_that_leads_exports_the_gauges_of_the_state(
    server: NatsServer, tmp_path: Path
) -> None:
    async def story(first: ReplicaProcess, stack: ExitStack) -> None:
        async with Client(server.url, org="acme", cluster="prod", timeout_s=30) as client:
            # given a NodePool at its target, and two aggregators that start when all is quiet
            await ready((first,))
            await with_a_pool(client)
            first.process.terminate()
            first.process.wait()
            one, other = (stack.enter_context(aggregator()) for _ in range(2))
            await ready((one, other))

            # when nothing happens
            # then one of them soon leads, and it alone has the gauges
            await until(lambda: sorted(leading((one, other))) == [0, 1])
            if leading((other,)) == [1]:
                one, other = other, one
            assert (values(one, NODES), values(other, NODES)) == ([2], [])

            # and when it has ended, the other leads from its first commit on
            one.process.kill()
            await client.set_quota(ZONE, H100, 5)
            await until(lambda: leading((other,)) == [1])
            assert values(other, NODES) == [2]

    def aggregator() -> AbstractContextManager[ReplicaProcess]:
        return launched("aggregator", server, tmp_path, free_port())

    with ExitStack() as stack:
        for name in SERVICES:
            if name != "aggregator":
                stack.enter_context(launched(name, server, tmp_path, free_port()))
        asyncio.run(story(stack.enter_context(aggregator()), stack))


def test_a_replica_shows_what_it_has_still_to_process_only_while_it_is_connected(
    server: NatsServer, tmp_path: Path
) -> None:
    def shown(replica: ReplicaProcess) -> list[list[float]]:
        names = ("connected", "leading", "pending_messages")
        return [values(replica, f"nodepool_{name}") for name in names]

    async def story(replica: ReplicaProcess) -> None:
        # given a replica that leads
        await ready((replica,))
        await until(lambda: shown(replica) == [[1], [1], [0]])

        # when the server is gone
        await asyncio.to_thread(server.kill)

        # then it says so, and nothing of what it cannot know
        await until(lambda: shown(replica) == [[0], [0], []])

        # and once the server is back, it knows again
        await asyncio.to_thread(server.start)
        await until(lambda: shown(replica)[0::2] == [[1], [0]])

    with launched("quota", server, tmp_path, free_port()) as replica:
        asyncio.run(story(replica))
