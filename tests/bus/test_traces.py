"""A command's trace through the services, each a process of its own."""

import asyncio
import json
import signal
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

from bus.harness import Replica, connected, launched, send, until, whole
from nodepool.contract.commands import AddMachines, ApplyNodePool, RegisterCluster, SetQuota
from nodepool.contract.model import ManifestMetadata, NodePoolSpec
from nodepool.local.server import NatsServer, free_port
from nodepool.nats import bus
from support.constants import H100, ZONE

CHAIN = ("validator", "quota", "capacity", "allocator", "fleet", "lifecycle")
TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"


async def one_pool(server: NatsServer) -> list[dict[str, object]]:
    """Applies a NodePool under a trace; every event in the log once its Node is registered."""
    async with connected(server.url) as connection:
        await send(connection, RegisterCluster(org="acme", cluster="prod", zone=ZONE), "c1")
        await send(connection, SetQuota(org="acme", zone=ZONE, instance_type=H100, limit=1), "c2")
        await send(connection, AddMachines(zone=ZONE, instance_type=H100, count=1), "c3")

        async def there() -> bool:
            log = await whole(connection)
            ready = {"MachineAdded", "QuotaSet", "ClusterRegistered"}
            return ready <= {entry.subject.rpartition(".")[2] for entry in log}

        await until(there)
        wish = ApplyNodePool(
            org="acme",
            cluster="prod",
            pool="p",
            metadata=ManifestMetadata(name="p"),
            spec=NodePoolSpec(instance_type=H100, target_nodes=1),
        )
        await send(connection, wish, "apply", PARENT)
        last = "np.evt.lifecycle.acme.prod.p.CWNodeRegistered"

        async def registered() -> bool:
            return await bus.last_of(connection, bus.STREAM, last) is not None

        await until(registered)
        log = await whole(connection)
        return [json.loads(e.content) for e in log if e.subject.startswith("np.evt.")]


def spans(replica: Replica) -> Iterator[Mapping[str, Mapping[str, str]]]:
    """What it has told on standard error, which is spans and nothing else."""
    for line in replica.errors().splitlines():
        yield json.loads(line)


def house(stack: ExitStack, server: NatsServer, folder: Path, traces: str) -> list[Replica]:
    return [
        stack.enter_context(launched(name, server, folder, free_port(), traces=traces))
        for name in CHAIN
    ]


def end(replicas: list[Replica]) -> None:
    """Ends them gracefully, so that they send what they have."""
    for replica in replicas:
        replica.process.send_signal(signal.SIGTERM)
    for replica in replicas:
        assert replica.process.wait(20) == 0


def test_a_commands_trace_runs_through_every_service_that_has_a_part_in_it(
    server: NatsServer, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        # given services that make spans
        replicas = house(stack, server, tmp_path, "console")

        # when a NodePool is applied under a trace, and gets its Node
        said = asyncio.run(one_pool(server))
        end(replicas)

        # then each service has spans of that trace
        found = {
            name: [span for span in spans(replica) if span["context"]["trace_id"] == f"0x{TRACE}"]
            for name, replica in zip(CHAIN, replicas, strict=True)
        }
        assert [name for name in CHAIN if not found[name]] == []

        # and each is the child of another, from the first to the last
        ids = {str(span["context"]["span_id"]) for some in found.values() for span in some}
        parents = {str(span["parent_id"]) for some in found.values() for span in some}
        assert parents - ids == {"0xb7ad6b7169203331"}

        # and whatever began with that command carries its trace
        ours = [event for event in said if event.get("correlationid") == "apply"]
        assert len(ours) >= len(CHAIN)
        assert {str(event["traceparent"])[3:35] for event in ours} == {TRACE}


def test_without_traces_nothing_is_made_of_them_and_a_commands_is_handed_on(
    server: NatsServer, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        # given services as they are by default
        replicas = house(stack, server, tmp_path, "off")

        # when a NodePool is applied under a trace, and gets its Node
        said = asyncio.run(one_pool(server))
        end(replicas)

        # then no span is told, and the trace is handed on to the last output as it came
        assert [replica.errors() for replica in replicas] == [""] * len(CHAIN)
        ours = [event for event in said if event.get("correlationid") == "apply"]
        assert {event["traceparent"] for event in ours} == {PARENT}
        assert {event["source"] for event in ours} == set(CHAIN)

        # and each service has told each message that it handled once, in a line
        for replica in replicas:
            told = [line["position"] for line in replica.lines() if "position" in line]
            assert told == sorted(set(map(int, map(str, told))))
