"""A client of the control plane, for the command line and for your own programs.

async with Client("nats://127.0.0.1:4222") as client:
    await client.scale("training", 12)
    await client.wait("training", "AtTarget", timeout_s=600)
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
    from nodepool.client.outcomes import Outcome
    from nodepool.client.preemptions import Preemption
    from nodepool.client.read_model import Document, Listed, Object
    from nodepool.client.reading import ReadingClient
    from nodepool.contract.buckets import Bucket
    from nodepool.contract.commands import MachineFault
    from nodepool.nats.access import Access

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
    "ReadingClient",
    "Refused",
    "Released",
    "TimedOut",
    "Unreachable",
]

_MODULES = {
    "Access": "nodepool.nats.access",
    "Bucket": "nodepool.contract.buckets",
    "Client": "nodepool.client.client",
    "Document": "nodepool.client.read_model",
    "Listed": "nodepool.client.read_model",
    "MachineFault": "nodepool.contract.commands",
    "Object": "nodepool.client.read_model",
    "ObjectEvent": "nodepool.client.events",
    "Outcome": "nodepool.client.outcomes",
    "Preemption": "nodepool.client.preemptions",
    "ReadingClient": "nodepool.client.reading",
}
"""The module of each name above; all other names are in `nodepool.client.errors`."""


def __getattr__(name: str) -> object:
    """Import a name at its first use, because reading needs no models of messages."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES.get(name, "nodepool.client.errors")), name)
