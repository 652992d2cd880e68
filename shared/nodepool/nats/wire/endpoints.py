"""A NATS service: says on `$SRV.>` which endpoints a program has, and how they are used.

The requests and replies are those of
https://github.com/nats-io/nats-architecture-and-design/blob/main/adr/ADR-32.md. The services of
nats-py handle a request of an endpoint only when the previous one is done, and measure that.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from functools import partial
from typing import Final

from nodepool.nats.wire.client import BusClient
from nodepool.nats.wire.library import Msg

PREFIX: Final = "$SRV"
_KIND: Final = "io.nats.micro.v1.{}_response"


@dataclass(slots=True)
class Endpoint:
    """An endpoint and its use.

    subject, queue_group: where it subscribes; each request reaches one member of the group.
    processing_time: how long all requests together took, in nanoseconds.
    data: returns what `STATS` says in addition, as a JSON value; None for nothing.
    """

    name: str
    subject: str
    queue_group: str
    num_requests: int = 0
    num_errors: int = 0
    last_error: str = ""
    processing_time: int = 0
    data: Callable[[], object] | None = None

    def count(self, seconds: float, error: str = "") -> None:
        """Count a request, which took so many seconds and ended with an error or without."""
        self.num_requests += 1
        self.processing_time += int(seconds * 1e9)
        if error:
            self.num_errors += 1
            self.last_error = error

    def info(self) -> dict[str, object]:
        """Return what `INFO` says about the endpoint."""
        shown = ("name", "subject", "queue_group")
        return {**{name: getattr(self, name) for name in shown}, "metadata": {}}

    def stats(self) -> dict[str, object]:
        """Return what `STATS` says about the endpoint."""
        average = self.processing_time // self.num_requests if self.num_requests else 0
        shown = {each.name: getattr(self, each.name) for each in fields(self)}
        shown["data"] = self.data() if self.data is not None else None
        return {**shown, "average_processing_time": average}


class NatsService:
    """One instance of a service, which may have others of the same name.

    id: tells the instance from others of the service.
    version: a version as of https://semver.org.
    """

    def __init__(
        self, name: str, id: str, version: str, about: str, endpoints: Sequence[Endpoint]
    ) -> None:
        self._identity = {"name": name, "id": id, "version": version, "metadata": {}}
        self._about = about
        self._endpoints = endpoints
        self._started = datetime.now(UTC)

    async def serve(self, client: BusClient) -> None:
        """Answer PING, INFO and STATS on a connection until it is closed."""
        name, id = self._identity["name"], self._identity["id"]
        for verb in ("PING", "INFO", "STATS"):
            for subject in (verb, f"{verb}.{name}", f"{verb}.{name}.{id}"):
                await client.subscribe(f"{PREFIX}.{subject}", cb=partial(self._reply, client, verb))

    async def _reply(self, client: BusClient, verb: str, message: Msg) -> None:
        if message.reply:
            await client.publish(message.reply, json.dumps(self.describe(verb)).encode())

    def describe(self, verb: str) -> dict[str, object]:
        """Return the reply to a request: PING, INFO or STATS."""
        reply: dict[str, object] = {"type": _KIND.format(verb.lower()), **self._identity}
        if verb == "INFO":
            reply["description"] = self._about
            reply["endpoints"] = [each.info() for each in self._endpoints]
        elif verb == "STATS":
            reply["started"] = self._started.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            reply["endpoints"] = [each.stats() for each in self._endpoints]
        return reply
