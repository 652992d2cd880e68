"""A client of the control plane, for the command line and for your own programs.

async with Client("nats://127.0.0.1:4222") as client:
    await client.scale("training", 12)
    await client.wait("training", "AtTarget", timeout_s=600)
"""

from nodepool.client.client import Client
from nodepool.client.errors import (
    ClientError,
    NoOutcome,
    NotFound,
    Refused,
    TimedOut,
    Unreachable,
)
from nodepool.client.events import ObjectEvent
from nodepool.client.outcomes import Outcome
from nodepool.client.read_model import Document, Listed, Object
from nodepool.contract.buckets import Bucket
from nodepool.contract.commands import MachineFault

__all__ = [
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
    "Refused",
    "TimedOut",
    "Unreachable",
]
