"""Consumers of a stream that acknowledge nothing: how one is set up, and what it delivers."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_INACTIVE_NS = 60_000_000_000
"""The server forgets a consumer from which nothing was requested for so long."""


class Delivery(NamedTuple):
    """How a message of a consumer came.

    consumer: the consumer's name.
    position: where the message lies in the stream.
    number: how many the consumer has delivered with this one.
    nanoseconds: when the server stored it, since 1970.
    remaining: how many more match the consumer's filters.
    """

    consumer: str
    position: int
    number: int
    nanoseconds: int
    remaining: int

    @property
    def time(self) -> datetime:
        """When the server stored it; Python reads microseconds."""
        return _EPOCH + timedelta(microseconds=self.nanoseconds // 1000)


def delivery_of(reply: str) -> Delivery:
    """What the reply subject of a delivered message says.

    $JS.ACK[.<domain>.<account>].<stream>.<consumer>.<deliveries>.<position>.<number>.<time>
    .<remaining> has nine tokens, or more with the domain.
    """
    tokens = reply.split(".")
    first = 5 if len(tokens) == 9 else 7
    position, number, nanoseconds, remaining = map(int, tokens[first : first + 4])
    return Delivery(tokens[first - 2], position, number, nanoseconds, remaining)


def consumer_config(
    name: str, filters: Sequence[str], start: int, *, newest: bool
) -> dict[str, object]:
    """The configuration of a consumer from position `start` on.

    newest: from the start of the stream, the newest message of each subject only.
    """
    if start > 1:
        policy = {"deliver_policy": "by_start_sequence", "opt_start_seq": start}
    else:
        policy = {"deliver_policy": "last_per_subject" if newest else "all"}
    return {
        "name": name,
        "filter_subjects": filters,
        **policy,
        "ack_policy": "none",
        "mem_storage": True,
        "num_replicas": 1,
        "inactive_threshold": _INACTIVE_NS,
    }
