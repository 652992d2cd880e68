"""The services and agents that read the log now, according to the metadata of their consumers."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import NamedTuple

from nodepool.nats.log.api import Json, request
from nodepool.nats.log.consumers import AGENT, REPLICA, SERVICE, VERSION
from nodepool.nats.log.streams import STREAM
from nodepool.nats.wire.client import BusClient

LOOKS = 5
PAUSE_S = 0.1
"""How often to look at consumers without a waiting request, and the pause between two looks."""
PAGES_MAX = 100
"""How many pages of consumers are read, of some hundred each."""


class Reading(NamedTuple):
    """The service and the release of a replica.

    service: the name of the service.
    version: the release of the program; empty for an old release, which does not name itself.
    """

    service: str
    version: str


class Replicas(NamedTuple):
    """The replicas of the services that have a consumer of the log.

    at_work: how many read the log now.
    silent: how many replicas of each service request no messages: they have hung for half a minute
        or longer, or have ended within the last minute.
    """

    at_work: Counter[Reading]
    silent: Counter[str]


async def replicas(client: BusClient) -> Replicas:
    """Return the replicas of the services; raise as `nodepool.nats.log.api.request` does."""
    at_work, silent = await _consumers_of(client, SERVICE)
    return Replicas(
        Counter(
            Reading(name, each.get(VERSION, "")) for each in at_work for name in _services(each)
        ),
        Counter(name for each in silent for name in _services(each)),
    )


async def replicas_at_work(client: BusClient) -> Counter[Reading]:
    """Return how many replicas read the log now; raise as `nodepool.nats.log.api.request` does."""
    return (await replicas(client)).at_work


async def agents_at_work(client: BusClient) -> Mapping[str, str]:
    """Return the release of each agent that reads the log now, by `<org>/<cluster>`.

    Raises as `nodepool.nats.log.api.request` does.
    """
    at_work, _ = await _consumers_of(client, AGENT)
    return {each[AGENT]: each.get(VERSION, "") for each in at_work}


async def is_reading(client: BusClient, replica: str) -> bool:
    """Return whether the replica with this mark has a consumer; raise as `replicas_at_work` does.

    A killed replica still has a consumer for a minute; a replica that replaces its consumer has
    no consumer for a moment.
    """
    async for consumer in _consumers(client):
        if replica in _metadata(consumer).get(REPLICA, "").split(","):
            return True
    return False


def _services(metadata: Mapping[str, str]) -> Sequence[str]:
    """Return the services that a consumer reads for; services of one process may share it."""
    return metadata[SERVICE].split(",")


async def _consumers_of(
    client: BusClient, key: str
) -> tuple[Sequence[Mapping[str, str]], Sequence[Mapping[str, str]]]:
    """Return the metadata of each consumer with this key: of consumers in use, and of the others.

    A consumer is in use if a request waits for messages: the consumer of a killed process stays
    without a request for a minute. A consumer with much to read briefly has no request, too.
    """
    waiting: set[str] = set()
    found: dict[str, Mapping[str, str]] = {}
    for look in range(LOOKS):
        if look:
            await asyncio.sleep(PAUSE_S)
        found, requested = {}, set[str]()
        async for consumer in _consumers(client):
            name, metadata = str(consumer["name"]), _metadata(consumer)
            if key in metadata:
                found[name] = metadata
                if consumer.get("num_waiting"):
                    requested.add(name)
        waiting = (waiting | requested) & found.keys()
        if len(waiting) == len(found):
            break
    silent = [metadata for name, metadata in found.items() if name not in waiting]
    return [found[name] for name in waiting], silent


async def _consumers(client: BusClient) -> AsyncIterator[Json]:
    """Yield all consumers of the log, as the server describes them."""
    offset = 0
    for _ in range(PAGES_MAX):
        page = await request(client, f"$JS.API.CONSUMER.LIST.{STREAM}", {"offset": offset})
        consumers = page.get("consumers")
        if not isinstance(consumers, list) or not consumers:
            break
        for consumer in consumers:
            yield consumer
        offset += len(consumers)
        if offset >= int(str(page.get("total", 0))):
            break


def _metadata(consumer: Json) -> dict[str, str]:
    config = consumer.get("config")
    metadata = config.get("metadata") if isinstance(config, dict) else None
    return metadata if isinstance(metadata, dict) else {}
