"""The trace of a command through the services, each a process of its own."""

import asyncio
import json
import signal
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

from bus.harness import ReplicaProcess, connected, launched, read_all, send, until
from nodepool.contract.commands import AddMachines, ApplyNodePool, RegisterCluster, SetQuota
from nodepool.contract.model import ManifestMetadata, NodePoolSpec
from nodepool.local.server import NatsServer
from nodepool.nats import api
from nodepool.nats.streams import STREAM
from support.constants import H100, ZONE
from support.ports import free_port

CHAIN = ("validator", "quota", "capacity", "allocator", "fleet", "lifecycle")
TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"


async def one_pool(server: NatsServer) -> list[dict[str, object]]:
    """Applies a NodePool with a trace; every event in the log once its Node is registered."""
    async with connected(server.url) as connection:
        await send(connection, RegisterCluster(org="acme", cluster="prod", zone=ZONE), "c1")
        await send(connection, SetQuota(org="acme", zone=ZONE, instance_type=H100, limit=1), "c2")
        await send(connection, AddMachines(zone=ZONE, instance_type=H100, count=1), "c3")

        async def there() -> bool:
            log = await read_all(connection)
            ready = {"MachineAdded", "QuotaSet", "ClusterRegistered"}
            return ready <= {entry.subject.rpartition(".")[2] for entry in log}

        await until(there)
        command = ApplyNodePool(
            org="acme",
            cluster="prod",
            pool="p",
            metadata=ManifestMetadata(name="p"),
            spec=NodePoolSpec(instance_type=H100, target_nodes=1),
        )
        await send(connection, command, "apply", PARENT)
        last = "np.evt.lifecycle.acme.prod.p.CWNodeRegistered"

        async def registered() -> bool:
            return await api.last_message(connection, STREAM, last) is not None

        await until(registered)
        log = await read_all(connection)
        return [json.loads(e.content) for e in log if e.subject.startswith("np.evt.")]


def spans(replica: ReplicaProcess) -> Iterator[Mapping[str, Mapping[str, str]]]:
    """The spans that it has written to standard error, where nothing else is."""
    for line in replica.errors().splitlines():
        yield json.loads(line)


def launch_all(
    stack: ExitStack, server: NatsServer, folder: Path, traces: str
) -> list[ReplicaProcess]:
    return [
        stack.enter_context(launched(name, server, folder, free_port(), traces=traces))
        for name in CHAIN
    ]


def stop(replicas: list[ReplicaProcess]) -> None:
    """Stops them gracefully, so that they export the spans they have."""
    for replica in replicas:
        replica.process.send_signal(signal.SIGTERM)
    for replica in replicas:
        assert replica.process.wait(20) == 0


def test_the_trace_of_a_command_runs_through_every_service_that_works_on_it(
    server: NatsServer, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        # given services that make spans
        replicas = launch_all(stack, server, tmp_path, "console")

        # when a NodePool is applied with a trace, and gets its Node
        events = asyncio.run(one_pool(server))
        stop(replicas)

        # then each service has spans of that trace
        of_trace = {
            name: [span for span in spans(replica) if span["context"]["trace_id"] == f"0x{TRACE}"]
            for name, replica in zip(CHAIN, replicas, strict=True)
        }
        assert [name for name in CHAIN if not of_trace[name]] == []

        # and each is the child of another, from the first to the last
        ids = {str(span["context"]["span_id"]) for own in of_trace.values() for span in own}
        parents = {str(span["parent_id"]) for own in of_trace.values() for span in own}
        assert parents - ids == {"0xb7ad6b7169203331"}

        # and every event that the command has caused carries its trace
        ours = [event for event in events if event.get("correlationid") == "apply"]
        assert len(ours) >= len(CHAIN)
        assert {str(event["traceparent"])[3:35] for event in ours} == {TRACE}


def test_without_traces_there_are_no_spans_and_the_trace_of_a_command_goes_on(
    server: NatsServer, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        # given services as they are by default
        replicas = launch_all(stack, server, tmp_path, "off")

        # when a NodePool is applied with a trace, and gets its Node
        events = asyncio.run(one_pool(server))
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
