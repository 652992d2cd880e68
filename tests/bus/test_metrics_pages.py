"""The metrics of a running control plane: how many series there are, and who exports which."""

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from bus.harness import PAUSE_S, ReplicaProcess, connected, launched, send, until
from nodepool.client import Client
from nodepool.contract.commands import SetQuota
from nodepool.contract.metrics import ALL
from nodepool.contract.services import SERVICES
from nodepool.host.session import SILENCE_S
from nodepool.local.server import NatsServer
from nodepool.nats.log import api
from nodepool.nats.wire.connection import Connection
from support.constants import H100, ZONE
from support.metric_pages import PROMTOOL, lint, strangers
from support.services import services
from testbed.ports import free_port

INVENTED = 300
TYPOS = 30
SERIES_MAX = 2_500
"""The most series that all services may have together, with one NodePool."""
START_S = 120.0
"""How long all services may take to start on a machine that has much else to do."""
LOOK_S = 0.1
"""The pause between two looks at pages; making and reading them takes much of a processor."""
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

REFUSED = "nodepool_commands_total"
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

seen = partial(until, pause_s=LOOK_S)

Series = tuple[str, Mapping[str, str], float]
"""A series as it is on a page: its name, its labels, its value."""


def series(page: str) -> Iterator[Series]:
    """The series on a page."""
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            yield sample.name, sample.labels, sample.value


def part(replica: ReplicaProcess, name: str) -> str:
    """The lines of one metric on the page of a replica: fewer than all are soon read."""
    lines = replica.page("/metrics").splitlines(keepends=True)
    return "".join(line for line in lines if line.startswith(name))


def values(replica: ReplicaProcess, name: str) -> list[float]:
    """The values of one metric on the page of a replica."""
    return [value for found, _, value in series(part(replica, name)) if found == name]


def refused(replica: ReplicaProcess) -> float:
    """How many commands a replica has refused."""
    page = series(part(replica, REFUSED))
    return sum(
        value for name, labels, value in page if name == REFUSED and "refused" in labels.values()
    )


async def ready(replicas: Sequence[ReplicaProcess]) -> None:
    """Returns once each replica is ready."""
    await seen(lambda: all(each.is_ready() for each in replicas), START_S)


def labels(page: Sequence[Series], name: str) -> set[str]:
    """The values of one label on a page."""
    return {labels[name] for _, labels, _ in page if name in labels}


async def with_a_pool(client: Client) -> None:
    """Brings a NodePool to its target of two Nodes."""
    await client.clusters.register("prod", ZONE)
    await client.quotas.set(ZONE, H100, 4)
    await client.fleet.add_machines(ZONE, H100, 4)
    await client.nodepools.apply(MANIFEST)
    await client.nodepools.wait("p", "AtTarget", timeout_s=60)


async def invent(connection: Connection, client: Client) -> None:
    """Sends commands of names, and about instance types, that there are not."""
    for number in range(INVENTED):
        await api.publish(connection, f"np.cmd.acme.prod.p.Invented{number}", b"{}")
    for number in range(TYPOS):
        typo = {"name": f"typo{number}"}, {"instanceType": f"typo-{number}", "targetNodes": 1}
        await client.nodepools.apply({**MANIFEST, "metadata": typo[0], "spec": typo[1]})
        await client.nodepools.delete(f"typo{number}")
        await client.nodepools.wait_until_gone(f"typo{number}", timeout_s=60)


def test_promtool_is_there_to_check_pages() -> None:
    if PROMTOOL is None:
        pytest.skip("promtool is not installed, so no page of metrics was checked by it")
    assert "no help text" in lint("nodepool_x 1\n")


async def test_what_senders_invent_makes_no_series(server: NatsServer, tmp_path: Path) -> None:
    host = " ".join(("nodepool.host", *SERVICES))
    with launched(host, server, tmp_path, free_port(), output=tmp_path / "host.log") as all_of_them:
        async with (
            connected(server.url) as connection,
            Client(server.url, org="acme", cluster="prod", timeout_s=30) as client,
        ):
            # given a control plane with a NodePool at its target
            await ready((all_of_them,))
            await with_a_pool(client)

            # when hundreds of commands arrive that are unknown, or about types that are
            await invent(connection, client)
            await seen(lambda: refused(all_of_them) == INVENTED)
            await seen(lambda: pools_on(all_of_them) == {"p"})

            # and none of them is a fault of a service
            assert sum(values(all_of_them, "nodepool_dead_letters_total")) == 0

        # then there are no more series than the system itself makes
        text = all_of_them.page("/metrics")
        page = list(series(text))
        assert labels(page, "nodepool_service") == set(SERVICES)
        assert labels(page, "message") <= KNOWN
        assert labels(page, "pool") == {"p"}
        assert labels(page, "instance_type") == {H100}
        assert len(page) <= SERIES_MAX
        assert 'command="unknown"' in text
        assert "Invented" not in text

        # and the page has what the list of metrics says, and nothing else
        assert strangers(text, ALL) == []
        assert lint(text) == ""

        # and no label is one that Prometheus gives to the target
        assert {name for _, labels, _ in page for name in labels} & TARGET_LABELS == set()


def pools_on(replica: ReplicaProcess) -> set[str]:
    """The NodePools that have series on the page of a replica."""
    return set(labels(list(series(replica.page("/metrics"))), "pool"))


NODES = "nodepool_current_nodes"


def leading_and_nodes(replica: ReplicaProcess) -> tuple[list[float], list[float]]:
    """What a replica says of its leadership, and its gauges of Nodes, both on one page."""
    page = list(series(replica.page("/metrics")))
    leading, nodes = (
        [value for found, _, value in page if found == name] for name in ("nodepool_leading", NODES)
    )
    return leading, nodes


async def test_of_two_replicas_the_one_that_leads_exports_the_gauges_of_the_state(
    server: NatsServer, tmp_path: Path
) -> None:
    def aggregator() -> AbstractContextManager[ReplicaProcess]:
        return launched("aggregator", server, tmp_path, free_port())

    with ExitStack() as stack:
        others = [name for name in SERVICES if name != "aggregator"]
        host = " ".join(("nodepool.host", *others))
        log = tmp_path / "others.log"
        stack.enter_context(launched(host, server, tmp_path, free_port(), output=log))
        first = stack.enter_context(aggregator())
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
            shown = [([0], []), ([1], [2])]
            await seen(lambda: sorted(map(leading_and_nodes, (one, other))) == shown)
            if leading_and_nodes(other) == ([1], [2]):
                one, other = other, one

            # and when it has ended, the other leads from its first commit on
            one.process.kill()
            await client.quotas.set(ZONE, H100, 5)
            await seen(lambda: leading_and_nodes(other) == ([1], [2]))


async def test_a_replica_shows_what_it_has_still_to_process_only_while_it_is_connected(
    server: NatsServer, tmp_path: Path
) -> None:
    def shown(replica: ReplicaProcess) -> list[list[float]]:
        names = ("connected", "leading", "pending_messages")
        return [values(replica, f"nodepool_{name}") for name in names]

    with launched("quota", server, tmp_path, free_port()) as replica:
        # given a replica that leads
        await ready((replica,))
        await seen(lambda: shown(replica) == [[1], [1], [0]])

        # when the server is gone
        await asyncio.to_thread(server.kill)

        # then it says so, and nothing of what it cannot know
        await seen(lambda: shown(replica) == [[0], [0], []])

        # and once the server is back, it knows again
        await asyncio.to_thread(server.start)
        await seen(lambda: shown(replica)[0::2] == [[1], [0]])


AGE = "nodepool_oldest_input_age_seconds"


async def test_the_age_of_the_oldest_input_grows_while_the_server_is_gone(
    server: NatsServer, tmp_path: Path
) -> None:
    async def grown(replica: ReplicaProcess, than: float) -> None:
        await seen(lambda: values(replica, AGE) > [than])

    with launched("quota", server, tmp_path, free_port()) as replica:
        # given a replica that has nothing to do
        await ready((replica,))
        await seen(lambda: values(replica, AGE) == [0])

        # when the server is gone for longer than it is ever silent
        await asyncio.to_thread(server.kill)

        # then inputs may wait since then, for longer and longer
        await grown(replica, SILENCE_S)
        await grown(replica, SILENCE_S + 1)

        # and none does once the server is back
        await asyncio.to_thread(server.start)
        await seen(lambda: values(replica, AGE) == [0])


async def test_a_replica_that_never_had_a_server_shows_for_how_long(
    server: NatsServer, tmp_path: Path
) -> None:
    def served(replica: ReplicaProcess) -> list[float]:
        try:
            return values(replica, AGE)
        except OSError:
            return []

    # given a command that waits for a service which is not there
    async with connected(server.url) as connection:
        command = SetQuota(org="acme", zone=ZONE, instance_type=H100, limit=1)
        await send(connection, command, "c1")
    began = time.monotonic()

    # when a replica has no server to begin with
    await asyncio.to_thread(server.kill)
    with launched("quota", server, tmp_path, free_port()) as replica:
        # then it cannot know of the command, and its own age is what it shows
        await seen(lambda: served(replica) > [0.5])
        assert served(replica) <= [time.monotonic() - began]

        # and it has processed all as soon as it can
        await asyncio.to_thread(server.start)
        await seen(lambda: served(replica) == [0])
        await seen(lambda: replica.metric("nodepool_commands_total") == 1)


async def test_the_leader_of_the_read_model_shows_the_log_and_what_is_not_written(
    server: NatsServer, tmp_path: Path
) -> None:
    with launched("aggregator", server, tmp_path, free_port()) as replica:
        # given an aggregator that leads
        await ready((replica,))
        await seen(lambda: values(replica, "nodepool_log_copies") == [1, 0, 0])

        # then it soon shows what the server says
        async def as_the_server_says(connection: Connection) -> bool:
            info = await api.request(connection, "$JS.API.STREAM.INFO.NODEPOOL")
            state = info["state"]
            assert isinstance(state, dict)
            names = ("log_messages", "log_bytes", "log_last_position")
            shown = [values(replica, f"nodepool_{name}") for name in names]
            return shown == [[state["messages"]], [state["bytes"]], [state["last_seq"]]]

        async with connected(server.url) as connection:
            await seen(partial(as_the_server_says, connection))
        await seen(lambda: values(replica, "nodepool_storage_used_bytes") > [0])
        assert values(replica, "nodepool_storage_limit_bytes") == []

        # and that nothing is left to write
        assert values(replica, "nodepool_read_model_lag_seconds") == [0]
        assert values(replica, "nodepool_read_model_pending_objects") == [0]


async def test_no_scrape_fails_and_no_counter_goes_back_whatever_happens_to_a_replica(
    server: NatsServer, tmp_path: Path
) -> None:
    async def scrape(replica: ReplicaProcess, stop: asyncio.Event) -> list[str]:
        """The counters that went back or vanished; raises the error of a scrape that failed."""
        before: dict[str, float] = {}
        wrong: list[str] = []
        while not stop.is_set():
            page = await asyncio.to_thread(replica.page, "/metrics")
            now = {f"{it[0]}{it[1]}": it[2] for it in series(page) if it[0].endswith("_total")}
            wrong += [name for name, value in before.items() if now.get(name, -1) < value]
            before = now
            await asyncio.sleep(PAUSE_S)
        return wrong

    with (
        launched("quota", server, tmp_path, free_port()) as one,
        launched("quota", server, tmp_path, free_port()) as other,
    ):
        # given two replicas whose pages are read all the time
        replicas = (one, other)
        await ready(replicas)
        stop = asyncio.Event()
        scrapers = [asyncio.create_task(scrape(replica, stop)) for replica in replicas]

        # when commands arrive, and the server ends and starts meanwhile
        for round in range(2):
            async with connected(server.url) as connection:
                for number in range(100):
                    limit = SetQuota(org="acme", zone=ZONE, instance_type=H100, limit=number)
                    await send(connection, limit, f"c{round}-{number}")
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
        await seen(lambda: sum(it.metric("nodepool_commands_total") for it in replicas) == 200)

        # then every page was there, and each counter only grew
        stop.set()
        assert await asyncio.gather(*scrapers) == [[]] * len(scrapers)
