"""The streams of the control plane: the log, the snapshots, and the buckets of the read model."""

from collections.abc import Mapping

from nats.aio.client import Client

from nodepool.contract.buckets import BUCKETS
from nodepool.nats.api import request
from nodepool.nats.errors import ServerRefusal

STREAM = "NODEPOOL"
"""The log."""
SNAPSHOTS = "NODEPOOL_SNAPSHOTS"

Config = Mapping[str, object]
"""A stream's configuration as the JetStream API takes it."""

_OTHER_SETTINGS = 10058
"""The API's code for a stream that is there under this name with other settings."""


def streams(replicas: int = 1) -> dict[str, Config]:
    """The configuration of every stream, by name; `replicas` is how many copies of each are kept.

    The log never loses a message. The other streams can be made again from it, so while there is
    one copy of each they need no fsync of their own.
    """
    rebuildable: dict[str, object] = {"persist_mode": "async"} if replicas == 1 else {}
    buckets = {f"KV_{bucket}": _bucket(bucket, replicas) | rebuildable for bucket in BUCKETS}
    return {
        STREAM: _log(replicas),
        SNAPSHOTS: _snapshots(replicas) | rebuildable,
        **buckets,
    }


def _log(replicas: int) -> dict[str, object]:
    return {
        "name": STREAM,
        "subjects": ["np.>"],
        "storage": "file",
        "num_replicas": replicas,
        "allow_atomic": True,
        "allow_direct": True,
        "deny_delete": True,
        "deny_purge": True,
        "discard": "new",
        "duplicate_window": 120_000_000_000,
    }


def _snapshots(replicas: int) -> dict[str, object]:
    return {
        "name": SNAPSHOTS,
        "subjects": ["np-snapshot.>"],
        "storage": "file",
        "num_replicas": replicas,
        "max_msgs_per_subject": 1,
        "allow_direct": True,
    }


def _bucket(bucket: str, replicas: int) -> dict[str, object]:
    return {
        "name": f"KV_{bucket}",
        "subjects": [f"$KV.{bucket}.>"],
        "storage": "file",
        "num_replicas": replicas,
        "max_msgs_per_subject": 1,
        "allow_direct": True,
        "allow_rollup_hdrs": True,
        "allow_msg_ttl": True,
        "deny_delete": True,
        "discard": "new",
    }


async def provision(client: Client, replicas: int = 1) -> None:
    """Creates every stream that is missing, and updates one that has other settings.

    Any number of programs may do so at the same time; nothing that is stored is lost.
    """
    for name, config in streams(replicas).items():
        try:
            await request(client, f"$JS.API.STREAM.CREATE.{name}", config)
        except ServerRefusal as refusal:
            if refusal.code != _OTHER_SETTINGS:
                raise
            await request(client, f"$JS.API.STREAM.UPDATE.{name}", config)
