"""Consumers without acknowledgements: how a consumer is configured, and what it delivers."""

import json
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

SERVICE, VERSION, REPLICA = "nodepool.service", "nodepool.version", "nodepool.replica"
"""The metadata keys of a replica's consumer: its service, its release and its process."""
AGENT = "nodepool.agent"
"""The metadata key of an agent's consumer, in addition to VERSION: its `<org>/<cluster>`."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_OPEN_NS = 30_000_000_000
_INACTIVE_NS = 60_000_000_000
"""How long a consumer may go without a request until the server removes it."""


class Delivery(NamedTuple):
    """How a consumer delivered a message.

    consumer: the consumer's name.
    position: the position of the message in the stream.
    number: how many messages the consumer has delivered, including this message.
    nanoseconds: when the server stored the message, since 1970.
    remaining: how many more messages match the consumer's filters.
    """

    consumer: str
    position: int
    number: int
    nanoseconds: int
    remaining: int

    @property
    def time(self) -> datetime:
        """When the server stored the message, truncated to microseconds."""
        return _EPOCH + timedelta(microseconds=self.nanoseconds // 1000)


def new_name() -> str:
    """Return the name of a new consumer."""
    return f"r{os.urandom(8).hex()}"


def delivery_of(reply: str) -> Delivery:
    """Return the Delivery that the reply subject of a delivered message describes.

    $JS.ACK[.<domain>.<account>].<stream>.<consumer>.<deliveries>.<position>.<number>.<time>
    .<remaining> has nine tokens, or more with the domain.
    """
    tokens = reply.split(".")
    first = 5 if len(tokens) == 9 else 7
    position, number, nanoseconds, remaining = map(int, tokens[first : first + 4])
    return Delivery(tokens[first - 2], position, number, nanoseconds, remaining)


def pull_request(batch: int, heartbeat_s: float) -> bytes:
    """Return the body of a pull request for up to `batch` messages, with heartbeats when idle.

    The request stays open for 30 seconds.
    """
    heartbeat = int(heartbeat_s * 1e9)
    return json.dumps({"batch": batch, "expires": _OPEN_NS, "idle_heartbeat": heartbeat}).encode()


def missing_of(headers: Mapping[str, str]) -> int | None:
    """Return how many messages a pull request will no longer bring, by a status message.

    0 for a heartbeat; None if the pull request cannot be relied on.
    """
    match headers.get("Status"):
        case "100":
            return 0
        case "408" | "409" if "Nats-Pending-Messages" in headers:
            return int(headers["Nats-Pending-Messages"])
    return None


def kept_of(info: Mapping[str, object]) -> dict[str, object]:
    """Return the configuration in the server's description of a consumer, without metadata.

    The metadata names the release of the server, which changes with an upgrade.
    """
    config = info.get("config")
    return {k: v for k, v in config.items() if k != "metadata"} if isinstance(config, dict) else {}


def consumer_config(
    name: str, filters: Sequence[str], start: int, *, newest: bool
) -> dict[str, object]:
    """Return the configuration of a consumer that reads from position `start` on.

    newest: if `start` is the start of the stream, deliver only the newest message per subject.
    """
    if start > 1:
        policy = {"deliver_policy": "by_start_sequence", "opt_start_seq": start}
    else:
        policy = {"deliver_policy": "last_per_subject" if newest else "all"}
    chosen = {"filter_subject": filters[0]} if len(filters) == 1 else {"filter_subjects": filters}
    return {
        "name": name,
        **chosen,
        **policy,
        "ack_policy": "none",
        "mem_storage": True,
        "num_replicas": 1,
        "inactive_threshold": _INACTIVE_NS,
    }
