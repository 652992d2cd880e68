"""Imports nats-py for all other modules: they import from here what they use."""

import sys
from enum import StrEnum
from importlib import import_module

from nodepool.nats.wire.postponed import Postponed, postpone


def _import_what_is_used() -> None:
    """Import nats-py without aiohttp and without its API of JetStream, which are not used here.

    aiohttp is a third of its import time and 8 MB of memory, and the API is a fifth of the rest.
    nats-py needs aiohttp for a WebSocket transport of its own. Another client in the same process
    can still use both.
    """
    if "nats" in sys.modules:
        return
    with postpone("aiohttp", "nats.js"):
        library = import_module("nats")
        jetstream = sys.modules["nats.js"]
    # nats-py reads these names of headers in each reply.
    api = Postponed("nats.js.api")
    vars(api)["Header"] = StrEnum("Header", {"STATUS": "Status", "DESCRIPTION": "Description"})
    vars(jetstream)["api"] = api
    vars(library)["js"] = jetstream


_import_what_is_used()

from nats.aio import transport  # noqa: E402
from nats.aio.client import DEFAULT_BUFFER_SIZE, Client, Srv  # noqa: E402
from nats.aio.msg import Msg  # noqa: E402
from nats.aio.subscription import Subscription  # noqa: E402
from nats.aio.transport import Transport  # noqa: E402
from nats.errors import (  # noqa: E402
    ConnectionReconnectingError,
    MaxPayloadError,
    ProtocolError,
    StaleConnectionError,
    UnexpectedEOF,
)
from nats.errors import Error as NatsError  # noqa: E402
from nats.protocol.command import hpub_cmd as format_publish  # noqa: E402
from nats.protocol.parser import Parser as ClientParser  # noqa: E402

__all__ = [
    "DEFAULT_BUFFER_SIZE",
    "Client",
    "ClientParser",
    "ConnectionReconnectingError",
    "MaxPayloadError",
    "Msg",
    "NatsError",
    "ProtocolError",
    "Srv",
    "StaleConnectionError",
    "Subscription",
    "Transport",
    "UnexpectedEOF",
    "format_publish",
    "transport",
]
