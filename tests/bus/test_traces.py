"""The trace of a command through the services, each a process of its own."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

import pytest

from bus.harness import (
    BINARY,
    PATIENCE_S,
    ReplicaProcess,
    connected,
    launched,
    limit,
    outcomes,
    read_all,
    send,
    until,
)
from nodepool.contract.commands import (
    AddMachines,
    ApplyNodePool,
    PreemptNode,
    RegisterCluster,
    SetQuota,
)
from nodepool.contract.commands_spot import AcknowledgePreemption
from nodepool.contract.model import ManifestMetadata, NodePoolSpec
from nodepool.contract.services import SERVICES
from nodepool.host.exporting import CLOSE_S, SCHEMA
from nodepool.local.server import NatsServer
from nodepool.nats.log import api
from nodepool.nats.log.streams import STREAM
from support.constants import H100, ZONE
from support.otlp import Receiver, Span, receiving
from testbed.ports import free_port

BUSY_S = 12
"""How much later a process may end on a busy machine; sending all its spans would take longer."""
CHAIN = ("validator", "quota", "capacity", "allocator", "fleet", "lifecycle")
TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"
REGISTERED = "np.evt.lifecycle.acme.prod.p.CWNodeRegistered"
MANIFEST = f"""\
apiVersion: compute.coreweave.com/v1alpha1
kind: NodePool
metadata:
  name: p
spec:
  instanceType: {H100}
  computeClass: spot
  targetNodes: 1
"""
Events = list[dict[str, Any]]


async def given_a_machine(url: str) -> None:
    """A cluster with a limit and a machine."""
    async with connected(url) as connection:
        await send(connection, RegisterCluster(org="acme", cluster="prod", zone=ZONE), "c1")
        await send(connection, SetQuota(org="acme", zone=ZONE, instance_type=H100, limit=1), "c2")
        await send(connection, AddMachines(zone=ZONE, instance_type=H100, count=1), "c3")

        async def there() -> bool:
            log = await read_all(connection)
            ready = {"MachineAdded", "QuotaSet", "ClusterRegistered"}
            return ready <= {entry.subject.rpartition(".")[2] for entry in log}

        await until(there)


async def events_once_registered(url: str) -> Events:
    """Every event in the log once the Node of the NodePool is registered."""
    async with connected(url) as connection:

        async def registered() -> bool:
            return await api.last_message(connection, STREAM, REGISTERED) is not None

        await until(registered)
        log = await read_all(connection)
        return [json.loads(e.content) for e in log if e.subject.startswith("np.evt.")]


async def apply(url: str) -> None:
    """Applies a NodePool with a trace, and without our client."""
    command = ApplyNodePool(
        org="acme",
        cluster="prod",
        pool="p",
        metadata=ManifestMetadata(name="p"),
        spec=NodePoolSpec(instance_type=H100, target_nodes=1),
    )
    async with connected(url) as connection:
        await send(connection, command, "apply", PARENT)


def exporting_to(endpoint: str) -> dict[str, str]:
    """The environment of a process that sends its spans there, soon."""
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_BSP_SCHEDULE_DELAY": "100"}


def launch_all(
    stack: ExitStack,
    server: NatsServer,
    folder: Path,
    names: Sequence[str],
    traces: str,
    endpoint: str = "",
) -> list[ReplicaProcess]:
    others = exporting_to(endpoint) if endpoint else {}
    return [
        stack.enter_context(
            launched(name, server, folder, free_port(), others=others, traces=traces)
        )
        for name in names
    ]


def stop(replicas: list[ReplicaProcess]) -> None:
    """Stops them gracefully, so that they export the spans they have."""
    for replica in replicas:
        replica.process.send_signal(signal.SIGTERM)
    for replica in replicas:
        assert replica.process.wait(PATIENCE_S) == 0


def apply_by_command_line(server: NatsServer, receiver: Receiver, file: Path) -> None:
    """Applies the manifest as a person does, with a trace."""
    file.write_text(MANIFEST)
    done = subprocess.run(
        [sys.executable, "-m", "nodepool.cli", "apply", "-f", str(file)],
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join(sys.path),
            "NODEPOOL_URL": server.url,
            "NODEPOOL_ORG": "acme",
            "NODEPOOL_CLUSTER": "prod",
            "NODEPOOL_TRACES": "otlp",
            **exporting_to(receiver.endpoint),
        },
        capture_output=True,
        text=True,
        timeout=3 * PATIENCE_S,
        check=False,
    )
    # It says of the trace nothing that nobody has asked for.
    said = (done.returncode, done.stdout, done.stderr)
    assert said == (0, "nodepool.compute.coreweave.com/p created\n", "")


class Story(NamedTuple):
    """What there is of a NodePool that was applied, has got its Node, and lost it by preemption.

    logs: the lines of each service, as they are in its log.
    """

    spans: list[Span]
    events: Events
    logs: Mapping[str, list[str]]


async def preempt(url: str, node: str) -> Events:
    """Preempts a Node, and ends its warning at once; every event in the log once it is gone."""
    own = {"org": "acme", "cluster": "prod", "pool": "p", "node": node}
    async with connected(url) as connection:

        async def is_there(subject: str) -> bool:
            return await api.last_message(connection, STREAM, subject) is not None

        for command, following in (
            (PreemptNode(**own), "PreemptionPending"),
            (AcknowledgePreemption(**own), "DeletedForPreemption"),
        ):
            await send(connection, command, type(command).__name__)
            await until(partial(is_there, f"np.evt.preemption.acme.prod.p.{following}"))
        log = await read_all(connection)
        return [json.loads(e.content) for e in log if e.subject.startswith("np.evt.")]


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """A story that every service has a part in, each with its spans on."""
    folder = tmp_path_factory.mktemp("traces")
    with (
        ExitStack() as stack,
        NatsServer(folder / "nats", free_port(), BINARY) as server,
        receiving() as receiver,
    ):
        replicas = launch_all(stack, server, folder, SERVICES, "otlp", receiver.endpoint)
        # Nine processes that start at once, on a machine that may be busy.
        asyncio.run(until(lambda: all(each.log.exists() for each in replicas), 3 * PATIENCE_S))
        asyncio.run(given_a_machine(server.url))
        apply_by_command_line(server, receiver, folder / "pool.yaml")
        events = asyncio.run(events_once_registered(server.url))
        (node,) = [each["data"]["node"] for each in events if each["type"] == "CWNodeRegistered"]
        events = asyncio.run(preempt(server.url, node))
        asyncio.run(until(lambda: "aggregator" in services_that_saw_it(receiver.spans)))
        # A process that ends waits only some seconds for its last spans to be taken.
        asyncio.run(until(lambda: all_were_sent(replicas, receiver.spans)))
        stop(replicas)
        assert [replica.errors() for replica in replicas] == [""] * len(replicas)
        assert receiver.paths == {"/v1/traces"}
        logs = {
            name: each.log.read_text().splitlines()
            for name, each in zip(SERVICES, replicas, strict=True)
        }
        yield Story(receiver.spans, events, logs)


def services_that_saw_it(spans: Sequence[Span]) -> set[str]:
    """The services with a span of the registration."""
    return {each.service for each in spans if each.name.endswith(".CWNodeRegistered")}


def all_were_sent(replicas: Sequence[ReplicaProcess], spans: Sequence[Span]) -> bool:
    """Whether the spans of all services are there, one for each input that was logged."""
    sent = Counter(each.service for each in spans)
    logged = Counter(
        name
        for name, replica in zip(SERVICES, replicas, strict=True)
        for line in replica.lines()
        if "position" in line
    )
    return sent >= logged


def of_the_command(spans: Sequence[Span]) -> list[Span]:
    """The spans of the trace that the command line has begun."""
    (root,) = [each for each in spans if each.service == "nodepool-cli"]
    return [each for each in spans if each.trace == root.trace]


def test_one_trace_leads_from_the_command_line_to_the_last_event(story: Story) -> None:
    # given the spans of the trace that an `apply` has begun
    spans, events = of_the_command(story.spans), story.events

    # then its root is the command, as it was sent
    (root,) = [each for each in spans if not each.parent]
    assert (root.service, root.kind) == ("nodepool-cli", "producer")
    assert root.name == "send np.cmd.{org}.{cluster}.{pool}.ApplyNodePool"

    # and every service has a part in it, down to the registration of the Node in the read model
    assert {each.service for each in spans} == {"nodepool-cli", *SERVICES}
    assert "aggregator" in services_that_saw_it(spans)

    # and each span but the root is the child of another one that began before it
    by_id = {each.id: each for each in spans}
    assert len(by_id) == len(spans)
    assert [each.name for each in spans if each.parent and each.parent not in by_id] == []
    children = [(by_id[each.parent], each) for each in spans if each.parent]
    assert [child.name for parent, child in children if parent.start > child.start] == []

    # and every event that followed from the command names one of them
    command = str(root.attributes["messaging.message.id"])
    named = [str(each["traceparent"]) for each in events if each.get("correlationid") == command]
    assert len(named) >= len(CHAIN)
    assert [each for each in named if each[3:35] != root.trace or each[36:52] not in by_id] == []


def test_spans_name_what_the_messaging_conventions_ask_for(story: Story) -> None:
    # given the span of the command in the service that carries it out
    spans = of_the_command(story.spans)
    (root,) = [each for each in spans if not each.parent]
    (span,) = [each for each in spans if each.parent == root.id]

    # then it says what was processed, by whom, and how long that took
    assert (span.service, span.kind, span.schema) == ("validator", "consumer", SCHEMA)
    assert span.name == "process np.cmd.{org}.{cluster}.{pool}.ApplyNodePool"
    assert span.attributes["messaging.system"] == "nats"
    assert span.attributes["messaging.destination.name"] == "np.cmd.acme.prod.p.ApplyNodePool"
    assert span.attributes["messaging.consumer.group.name"] == "validator"
    assert span.attributes["messaging.operation.type"] == "process"
    assert span.attributes["messaging.message.id"] == root.attributes["messaging.message.id"]
    assert span.resource["service.namespace"] == "nodepool"
    assert [each.name for each in spans if not 0 < each.end - each.start < 60e9] == []

    # and each process is an instance of its own
    instances = {(each.service, str(each.resource["service.instance.id"])) for each in spans}
    assert len(instances) == len({instance for _, instance in instances}) == len(SERVICES) + 1


def test_a_preemption_is_one_trace_to_its_end(story: Story) -> None:
    # given the events that followed from a preemption, which its warning and a `Wake` divide
    (deleted,) = [each for each in story.events if each["type"] == "DeletedForPreemption"]

    # then the last is of the trace of the command that it follows from
    roots = {
        str(each.attributes["messaging.message.id"]): each.trace
        for each in story.spans
        if not each.parent
    }
    assert deleted["traceparent"][3:35] == roots[deleted["correlationid"]]


def test_the_documented_query_returns_the_node_that_was_preempted(story: Story) -> None:
    # given the query for preemptions, and the stages that make the label of a line
    page = (Path(__file__).parents[2] / "shared" / "TELEMETRY.md").read_text(encoding="utf-8")
    (label, value, word) = re.findall(r'\{(\w+)="([^"]+)"\} \|= "([^"]+)"', page)[0]
    ((made, field),) = re.findall(r'expressions = \{ (\w+) = "(\w+)" \}', page)
    renamed = dict(re.findall(r'if eq \.Value \\"(\w+)\\" \}\}([\w-]+)\{\{ else \}\}', page))
    assert re.findall(r'source   = "(\w+)"', page) == [made]
    assert re.findall(r'values = \{ (\w+) = "" \}', page) == [made]

    # and the lines of all services by that label, as if a container ran all of them
    streams: dict[str, list[str]] = {}
    for line in (line for lines in story.logs.values() for line in lines):
        service = json.loads(line)[field]
        streams.setdefault(renamed.get(service, service), []).append(line)

    # when it is evaluated: the streams with that very label, and their lines with that very text
    assert label == made
    result = [json.loads(line) for line in streams[value] if word in line]

    # then its lines are the stages of that preemption, and no others
    (node,) = {each["data"]["node"] for each in story.events if each["type"] == "CWNodeRegistered"}
    assert {line["event"] for line in result} >= {"PreemptionPending", "PreemptionInProgress"}
    assert f"Node {node} is deleted: it was preempted" in [
        message for line in result for message in line.get("messages", [])
    ]
    assert {line["node"] for line in result if "node" in line} == {node}
    assert len(result) < len(streams[value])


@contextmanager
def nothing_there() -> Iterator[str]:
    """An endpoint at which nothing listens."""
    yield f"http://127.0.0.1:{free_port()}"


@contextmanager
def never_responding() -> Iterator[str]:
    """An endpoint that takes connections and never replies."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(64)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.parametrize("receiver", [nothing_there, never_responding])
async def test_a_service_does_its_work_and_ends_where_its_spans_cannot_be_sent(
    server: NatsServer, tmp_path: Path, receiver: Callable[[], AbstractContextManager[str]]
) -> None:
    commands, kept = 300, {"OTEL_BSP_MAX_QUEUE_SIZE": "64", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "32"}
    with ExitStack() as stack:
        # given a service whose spans go nowhere, and more of them than it keeps
        others = {**exporting_to(stack.enter_context(receiver())), **kept}
        replica = stack.enter_context(
            launched("quota", server, tmp_path, free_port(), others=others, traces="otlp")
        )

        async with connected(server.url) as connection:
            for number in range(commands):
                await send(connection, limit(number % 9), f"c{number}")

            async def done() -> bool:
                return len(await outcomes(connection)) == commands

            await until(done)
        began = monotonic()
        replica.process.send_signal(signal.SIGTERM)

        # then it has done all of it, and ends within the time that it gives its last spans
        assert replica.process.wait(60) == 0
        assert monotonic() - began < CLOSE_S + BUSY_S

    # and it says now and then that some are lost, not once for each
    about = [line for line in replica.lines() if line["event"] == "library"]
    assert len(about) <= commands / 20
    assert {str(line["logger"]).split(".")[0] for line in about} <= {"opentelemetry"}
    assert replica.errors() == ""


def test_without_traces_there_are_no_spans_and_the_trace_of_a_command_goes_on(
    server: NatsServer, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        # given services as they are by default
        replicas = launch_all(stack, server, tmp_path, CHAIN, "off")

        # when a NodePool is applied with a trace, and gets its Node
        asyncio.run(given_a_machine(server.url))
        asyncio.run(apply(server.url))
        events = asyncio.run(events_once_registered(server.url))
        stop(replicas)

        # then there is no span, and every event to the last carries the trace as it came
        assert [replica.errors() for replica in replicas] == [""] * len(CHAIN)
        ours = [event for event in events if event.get("correlationid") == "apply"]
        assert {event["traceparent"] for event in ours} == {PARENT}
        assert {event["source"] for event in ours} == set(CHAIN)

        # and each service has logged each input once
        for replica in replicas:
            positions = [line["position"] for line in replica.lines() if "position" in line]
            assert positions == sorted(set(map(int, map(str, positions))))
