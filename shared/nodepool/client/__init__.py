"""A client of the control plane, for the command line and for people's own programs.

async with Client("nats://127.0.0.1:4222") as client:
    await client.scale("training", 12)
    await client.wait("training", "AtTarget", timeout_s=600)
"""

from nodepool.client.events import ObjectEvent
from nodepool.client.outcomes import (
    ClientError,
    NoOutcome,
    NotFound,
    Outcome,
    Refused,
    TimedOut,
    Unreachable,
)
from nodepool.client.session import Bucket, Client, Document, Fault, Listed, Row

__all__ = [
    "Bucket",
    "Client",
    "ClientError",
    "Document",
    "Fault",
    "Listed",
    "NoOutcome",
    "NotFound",
    "ObjectEvent",
    "Outcome",
    "Refused",
    "Row",
    "TimedOut",
    "Unreachable",
]
