"""A client of the control plane, for the command line and for your own programs.

async with Client("nats://127.0.0.1:4222") as client:
    await client.nodepools.scale("training", 12)
    await client.nodepools.wait("training", "AtTarget", timeout_s=600)

client.nodepools   get, list, watch, wait, apply, scale, delete
client.nodes       get, list, watch, wait, cordon, uncordon, drain, reboot, preempt, lock, unlock
client.quotas      get, list, watch, set, delete
client.capacity    get, list, watch, find, reclaim, give_back
client.clusters    get, list, watch, register, zone
client.events      read (and follow), recent, preemptions
client.commands    send, send_many, send_each: commands of any kind
client.fleet       machines and Pods of the simulated data centre
client.machines    real machines: their power, and whether people work on them
client.admin       dead_letters, replays, backup, restore, skip, versions: for operators
client.objects(bucket)   get, list, watch, wait for a bucket that a user names, also `machines`
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nodepool.client.client import Client
    from nodepool.client.errors import (
        ClientError,
        NoOutcome,
        NotFound,
        Refused,
        Released,
        TimedOut,
        Unreachable,
    )
    from nodepool.client.events import ObjectEvent
    from nodepool.client.objects import Document, Listed, Object
    from nodepool.client.preemptions import Preemption
    from nodepool.client.sender import Outcome
    from nodepool.client.trim_gap import TrimGap
    from nodepool.contract.buckets import Bucket
    from nodepool.contract.commands import MachineFault
    from nodepool.nats.wire.access import Access

__all__ = [
    "Access",
    "Bucket",
    "Client",
    "ClientError",
    "Document",
    "Listed",
    "MachineFault",
    "NoOutcome",
    "NotFound",
    "Object",
    "ObjectEvent",
    "Outcome",
    "Preemption",
    "Refused",
    "Released",
    "TimedOut",
    "TrimGap",
    "Unreachable",
]

_MODULES = {
    "Access": "nodepool.nats.wire.access",
    "Bucket": "nodepool.contract.buckets",
    "Client": "nodepool.client.client",
    "Document": "nodepool.client.objects",
    "Listed": "nodepool.client.objects",
    "MachineFault": "nodepool.contract.commands",
    "Object": "nodepool.client.objects",
    "ObjectEvent": "nodepool.client.events",
    "Outcome": "nodepool.client.sender",
    "Preemption": "nodepool.client.preemptions",
    "TrimGap": "nodepool.client.trim_gap",
}
"""The module of each name above; all other names are in `nodepool.client.errors`."""


def __getattr__(name: str) -> object:
    """Import a name at its first use, because reading needs no models of messages."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES.get(name, "nodepool.client.errors")), name)
