"""What the measurements send, and how they see that it is done."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from bench.door import DoorSender
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
from nodepool.nats.log import api
from nodepool.nats.log.publisher import Publisher
from nodepool.nats.log.reader import Reader
from nodepool.nats.log.streams import STREAM, provision
from nodepool.nats.wire.access import NO_ACCESS, Access
from nodepool.nats.wire.connection import connect

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


def envelope(command: Command, id: str) -> tuple[str, bytes, str]:
    """A command as what is published: subject, content and id."""
    envelope = envelope_of(type(command)).model_construct(
        id=id, type=type(command).__name__, source="bench", correlationid=id, data=command
    )
    return subject_of(command, ""), envelope.encode(), id


def pool(number: int, target: int) -> ApplyNodePool:
    """The NodePool of this number."""
    name = f"pool-{number:05d}"
    return ApplyNodePool(
        org="acme",
        cluster="prod",
        pool=name,
        metadata=ManifestMetadata(name=name),
        spec=NodePoolSpec(instance_type=KIND, target_nodes=target),
    )


def site(nodes: int) -> list[Command]:
    """A cluster with quota and machines for so many Nodes."""
    machines = [
        AddMachines(zone=ZONE, instance_type=KIND, count=min(MACHINES_MAX, nodes - first))
        for first in range(0, nodes, MACHINES_MAX)
    ]
    return [
        RegisterCluster(org="acme", cluster="prod", zone=ZONE),
        SetQuota(org="acme", zone=ZONE, instance_type=KIND, limit=max(1, nodes)),
        *machines,
    ]


def conditions(entry: Entry) -> tuple[str, dict[str, str]]:
    """The name of a NodePool in the read model, and the reasons of its conditions."""
    pool = json.loads(entry.content)
    conditions = {c["type"]: c["reason"] for c in pool["status"]["conditions"]}
    return pool["metadata"]["name"], conditions


def checked(entry: Entry) -> str | None:
    """The name of a NodePool with all its verdicts."""
    name, reasons = conditions(entry)
    return name if {"Validated", "Quota", "Capacity", "AtTarget"} <= reasons.keys() else None


def at_target(entry: Entry) -> str | None:
    """The name of a NodePool with all its verdicts and all its Nodes."""
    name, reasons = conditions(entry)
    return name if checked(entry) and reasons.get("AtTarget") == "TargetMet" else None


async def drive(
    url: str,
    work: Work,
    window: int,
    patience_s: float = PATIENCE_S,
    *,
    access: Access = NO_ACCESS,
    through: Access | None = None,
) -> tuple[float, list[float]]:
    """Keep `window` commands in flight; return the seconds of all, and of each, sorted.

    access: what the sender shows to the server, who looks whether the commands are done, too.
    through: what the user of an organisation shows, who sends them through the gateway instead.

    Raises TimeoutError if not all are done after `patience_s` seconds.
    """
    connection = await connect(url, "bench", access=access)
    sending_from = connection if through is None else await connect(url, "bench", access=through)
    sender = Publisher if through is None else DoorSender
    publisher = sender(sending_from, window)
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
    async with within(patience_s, lambda: f"{len(took)} of {len(work.messages)} are done"):
        for subject, content, id in work.messages:
            await in_flight.acquire()
            sent[subject.split(".")[-2]] = time.perf_counter()
            sending.append(
                asyncio.create_task(publisher.publish(subject, content, {"Nats-Msg-Id": id}))
            )
        await asyncio.gather(*sending)
        await watching
    seconds = time.perf_counter() - began
    await objects.close()
    await connection.close()
    await sending_from.close()
    return seconds, sorted(took)


@asynccontextmanager
async def within(seconds: float, describe: Callable[[], str]) -> AsyncIterator[None]:
    """Raise a TimeoutError that describes what is done if the context takes longer."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise TimeoutError(f"after {seconds:,.0f} s, {describe()}") from None


async def prepare(
    url: str,
    commands: Sequence[Command],
    patience_s: float = PATIENCE_S,
    *,
    access: Access = NO_ACCESS,
) -> None:
    """Have these commands accepted; raise TimeoutError after `patience_s` seconds."""
    connection = await connect(url, "bench", access=access)
    if access is NO_ACCESS:
        await provision(connection)
    outcomes = Reader(connection, STREAM, ["np.evt.*.*.*.*.CommandAccepted"])
    await outcomes.open()
    for number, command in enumerate(commands):
        subject, content, _ = envelope(command, f"site-{number}")
        await api.publish_event(connection, subject, content)
    accepted = 0
    async with within(patience_s, lambda: f"{accepted} of {len(commands)} are accepted"):
        while accepted < len(commands):
            accepted += len(await outcomes.next(timeout_s=60))
    await outcomes.close()
    await connection.close()
