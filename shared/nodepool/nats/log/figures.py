"""The size and the copies of the log, as the server gives them to any client."""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from nodepool.nats.log.api import Json, request
from nodepool.nats.log.streams import STREAM
from nodepool.nats.wire.client import BusClient

State = Literal["current", "lagging", "offline"]


class LogFigures(NamedTuple):
    """What the server says about the log and its storage.

    messages, bytes: the number of messages in the log, and their total size.
    last: the position of the newest message.
    copies: the number of copies by state: a `current` copy has all messages, a `lagging` copy is
        behind, and an `offline` copy does not respond to the leader.
    storage_used: the bytes of all streams of the account together.
    storage_limit: the most bytes that these streams may have; None if the account has no limit. The
        limit of the whole server, `max_file_store`, is visible only to the server's operator.
    """

    messages: int
    bytes: int
    last: int
    copies: Mapping[State, int]
    storage_used: int
    storage_limit: int | None


async def log_figures(client: BusClient) -> LogFigures:
    """Return the current figures, by two requests; raise as `api.request` does."""
    info = await request(client, f"$JS.API.STREAM.INFO.{STREAM}")
    account = await request(client, "$JS.API.INFO")
    state = _object(info, "state")
    storage = storage_of(account, int(str(_object(info, "config").get("num_replicas", 1))))
    return LogFigures(
        messages=int(str(state["messages"])),
        bytes=int(str(state["bytes"])),
        last=int(str(state["last_seq"])),
        copies=copies(_object(info, "cluster")),
        storage_used=storage.used,
        storage_limit=storage.limit,
    )


class Storage(NamedTuple):
    """How many bytes an account has stored, and how many it may store; None if it has no limit."""

    used: int
    limit: int | None


def storage_of(account: Json, copies: int) -> Storage:
    """Return the storage and its limit for streams with `copies` copies, by an account's info.

    An account may have limits per number of copies, its tiers; then it has no limits of its own.
    """
    tier = _object(_object(account, "tiers"), f"R{copies}")
    limits = tier or account
    limit = int(str(_object(limits, "limits").get("max_storage", -1)))
    return Storage(int(str(limits.get("storage", 0))), limit if limit > 0 else None)


class Copy(NamedTuple):
    """A copy of a stream that follows its leader.

    server: the name of the server that keeps it.
    state: `current` if the copy has all messages, `lagging` if it is behind, or `offline`.
    lag: how many operations the copy is behind.
    """

    server: str
    state: State
    lag: int


def followers(cluster: Json) -> Sequence[Copy]:
    """Return the copies of a stream except the leader's, by the `cluster` of its info."""
    replicas = cluster.get("replicas")
    return [
        Copy(str(each.get("name")), _state(each), int(each.get("lag", 0)))
        for each in (replicas if isinstance(replicas, list) else ())
    ]


def _state(replica: Json) -> State:
    if replica.get("offline"):
        return "offline"
    return "current" if replica.get("current") else "lagging"


def copies(cluster: Json) -> Mapping[State, int]:
    """Return how many copies are in each state, by the `cluster` of a stream's info.

    A server outside a cluster lists no copies, and has the only copy.
    """
    states: dict[State, int] = {"current": 1, "lagging": 0, "offline": 0}
    for copy in followers(cluster):
        states[copy.state] += 1
    return states


def _object(reply: Json, name: str) -> Json:
    part = reply.get(name)
    return part if isinstance(part, dict) else {}
