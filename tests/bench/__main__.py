"""Measures the control plane: `make bench`, or `make bench ARGS="--runs 5 --commands 20000"`.

Times on a shared machine vary, so the result is a ratio to a bare pipeline that is measured in turn
with it on the same server settings. Results are medians of several runs, lowest and highest beside.
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import uvloop

from bench.bare import Bare, set_up
from nodepool.contract.commands import (
    MACHINES_MAX,
    AddMachines,
    ApplyNodePool,
    RegisterCluster,
    SetQuota,
)
from nodepool.contract.log import Entry
from nodepool.contract.messages import Command, envelope_of
from nodepool.contract.model import ManifestMetadata, NodePoolSpec
from nodepool.contract.subjects import subject_of
from nodepool.local.binary import find_server
from nodepool.local.server import NatsServer
from nodepool.nats import api
from nodepool.nats.connection import connect
from nodepool.nats.publisher import Publisher
from nodepool.nats.reader import Reader
from nodepool.nats.streams import STREAM, provision
from support.ports import free_port
from support.processes import ControlPlane

ZONE, KIND = "US-EAST-04A", "gd-8xh100ib-i128"
PATIENCE_S = 300


@dataclass(frozen=True)
class Work:
    """What to publish, and how to see in a bucket that it is done.

    messages: subject, content and id of each.
    finished: the key of an object that is done; None for one that is not.
    """

    messages: Sequence[tuple[str, bytes, str]]
    bucket: str
    finished: Callable[[Entry], str | None]


def _envelope(command: Command, id: str) -> tuple[str, bytes, str]:
    envelope = envelope_of(type(command)).model_construct(
        id=id, type=type(command).__name__, source="bench", correlationid=id, data=command
    )
    return subject_of(command, ""), envelope.encode(), id


def _pool(number: int, target: int) -> ApplyNodePool:
    name = f"pool-{number:05d}"
    return ApplyNodePool(
        org="acme",
        cluster="prod",
        pool=name,
        metadata=ManifestMetadata(name=name),
        spec=NodePoolSpec(instance_type=KIND, target_nodes=target),
    )


def _site(nodes: int) -> list[Command]:
    machines = [
        AddMachines(zone=ZONE, instance_type=KIND, count=min(MACHINES_MAX, nodes - first))
        for first in range(0, nodes, MACHINES_MAX)
    ]
    return [
        RegisterCluster(org="acme", cluster="prod", zone=ZONE),
        SetQuota(org="acme", zone=ZONE, instance_type=KIND, limit=max(1, nodes)),
        *machines,
    ]


def _conditions(entry: Entry) -> tuple[str, dict[str, str]]:
    pool = json.loads(entry.content)
    conditions = {c["type"]: c["reason"] for c in pool["status"]["conditions"]}
    return pool["metadata"]["name"], conditions


def _checked(entry: Entry) -> str | None:
    name, conditions = _conditions(entry)
    return name if {"Validated", "Quota", "Capacity", "AtTarget"} <= conditions.keys() else None


def _at_target(entry: Entry) -> str | None:
    name, conditions = _conditions(entry)
    checked = {"Validated", "Quota", "Capacity"} <= conditions.keys()
    return name if checked and conditions.get("AtTarget") == "TargetMet" else None


def _bare_finished(entry: Entry) -> str | None:
    last = json.loads(entry.content)["of"] == "capacity"
    return entry.subject.rpartition(".")[2] if last else None


async def _drive(url: str, work: Work, window: int) -> tuple[float, list[float]]:
    """Keeps `window` commands in flight; seconds for all, and the seconds of each in order."""
    connection = await connect(url, "bench")
    publisher = Publisher(connection, window)
    await publisher.open()
    objects = Reader(connection, f"KV_{work.bucket}", [f"$KV.{work.bucket}.>"])
    await objects.open()
    in_flight = asyncio.Semaphore(window)
    sent: dict[str, float] = {}
    took: list[float] = []
    began = time.perf_counter()

    async def watch() -> None:
        while len(took) < len(work.messages):
            for entry in await objects.next():
                key = work.finished(entry) if entry.content else None
                since = sent.pop(key, None) if key is not None else None
                if since is not None:
                    took.append(time.perf_counter() - since)
                    in_flight.release()

    watching = asyncio.create_task(watch())
    sending = []
    for subject, content, id in work.messages:
        await in_flight.acquire()
        sent[subject.split(".")[-2]] = time.perf_counter()
        sending.append(
            asyncio.create_task(publisher.publish(subject, content, {"Nats-Msg-Id": id}))
        )
    await asyncio.gather(*sending)
    await asyncio.wait_for(watching, PATIENCE_S)
    seconds = time.perf_counter() - began
    await objects.close()
    await connection.close()
    return seconds, sorted(took)


async def _prepare(url: str, site: Sequence[Command]) -> None:
    connection = await connect(url, "bench")
    await provision(connection)
    outcomes = Reader(connection, STREAM, ["np.evt.*.*.*.*.CommandAccepted"])
    await outcomes.open()
    for number, command in enumerate(site):
        subject, content, id = _envelope(command, f"site-{number}")
        await api.publish(connection, subject, content, id=id)
    accepted = 0
    while accepted < len(site):
        accepted += len(await outcomes.next(timeout_s=60))
    await outcomes.close()
    await connection.close()


@dataclass(frozen=True)
class Sizes:
    """How many bytes the control plane publishes, so that the bare pipeline publishes as many.

    hops: the outputs of each service to one command.
    status: the NodePool in the read model.
    """

    hops: dict[str, list[int]]
    status: int


async def _sizes(url: str) -> Sizes:
    connection = await connect(url, "bench")
    hops: dict[str, list[int]] = {}
    for name in ("validator", "quota", "capacity"):
        reader = Reader(connection, STREAM, [f"np.evt.{name}.acme.prod.pool-00000.*"])
        await reader.open()
        hops[name] = [len(entry.content) for entry in await reader.next(timeout_s=5)]
        await reader.close()
    reader = Reader(connection, "KV_nodepools", ["$KV.nodepools.acme.prod.pool-00000"])
    await reader.open()
    status = max(len(entry.content) for entry in await reader.next(timeout_s=5))
    await connection.close()
    return Sizes(hops, status)


def _control_plane(count: int, target: int, window: int) -> tuple[float, list[float], Sizes]:
    """`count` NodePools of `target` Nodes: from nothing until every status says so."""
    messages = [_envelope(_pool(number, target), f"c{number}") for number in range(count)]
    finished = _at_target if target else _checked
    with tempfile.TemporaryDirectory() as folder, ControlPlane(Path(folder)) as plane:
        uvloop.run(_prepare(plane.server.url, _site(count * target)))
        work = Work(messages, "nodepools", finished)
        seconds, took = uvloop.run(_drive(plane.server.url, work, window))
        return seconds, took, uvloop.run(_sizes(plane.server.url))


def _bare(count: int, window: int, sizes: Sizes) -> tuple[float, list[float]]:
    """The same number of commands through the bare pipeline."""
    size = len(_envelope(_pool(0, 0), "c0")[1])
    messages = []
    for number in range(count):
        pool = f"pool-{number:05d}"
        command = {
            "id": f"c{number}",
            "type": "Apply",
            "pool": pool,
            "cause": f"c{number}",
            "pad": "",
        }
        command["pad"] = "x" * max(0, size - len(json.dumps(command)))
        messages.append(
            (f"b.cmd.acme.prod.{pool}.Apply", json.dumps(command).encode(), f"c{number}")
        )
    with tempfile.TemporaryDirectory() as folder:
        server = NatsServer(Path(folder), free_port(), find_server(None))
        server.start()
        bare = Bare(server.url, sizes.hops, sizes.status)
        try:
            asyncio.run(set_up(server.url))
            bare.start()
            return uvloop.run(_drive(server.url, Work(messages, "bare", _bare_finished), window))
        finally:
            bare.stop()
            server.stop()


def _spread(values: Sequence[float], digits: int = 0) -> str:
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:,.{digits}f} ({low:,.{digits}f} to {high:,.{digits}f})"


def _percentile(took: Sequence[float], part: float) -> float:
    return took[min(len(took) - 1, int(part * len(took)))] * 1e3


def main() -> None:
    """Prints one line for each measure."""
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--commands", type=int, default=5_000)
    parser.add_argument("--window", type=int, default=512)
    parser.add_argument("--pools", type=int, default=1_000)
    parser.add_argument("--nodes", type=int, default=10)
    options = parser.parse_args()
    print(f"{os.cpu_count()} cores, {options.runs} runs, medians (lowest to highest)")
    rates, bare_rates, ratios, p50, p99 = [], [], [], [], []
    for _ in range(options.runs):
        seconds, took, sizes = _control_plane(options.commands, 0, options.window)
        bare_seconds, _ = _bare(options.commands, options.window, sizes)
        rates.append(options.commands / seconds)
        bare_rates.append(options.commands / bare_seconds)
        ratios.append(bare_seconds / seconds)
        p50.append(_percentile(took, 0.5))
        p99.append(_percentile(took, 0.99))
    print(f"pipeline, commands/s             {_spread(rates)}")
    print(f"bare pipeline, commands/s        {_spread(bare_rates)}")
    print(f"pipeline / bare pipeline         {_spread(ratios, 2)}   (budget: at least 0.50)")
    print(f"  status after, ms               p50 {_spread(p50)}, p99 {_spread(p99)}")
    sys.stdout.flush()
    created = []
    for _ in range(options.runs):
        seconds, _, _ = _control_plane(options.pools, options.nodes, options.pools)
        created.append(seconds)
    nodes = options.pools * options.nodes
    print(f"{options.pools} pools of {options.nodes} Nodes, s       {_spread(created, 1)}")
    print(f"  Nodes/s                        {_spread([nodes / s for s in created])}")


if __name__ == "__main__":
    main()
