"""Imports nats-py, without aiohttp, for all other modules: they import from here what they use."""

import sys
from importlib import import_module
from types import ModuleType


class _AioHttp(ModuleType):
    """The module aiohttp, which is loaded when it is used."""

    def __getattr__(self, name: str) -> object:
        return getattr(import_module("aiohttp"), name)


def _import_without_aiohttp() -> None:
    """Import nats-py without aiohttp, which is a third of its import time and 8 MB of memory.

    nats-py needs aiohttp for a WebSocket transport of its own, which is not used here. Another
    client in the same process can still use that transport.
    """
    if {"nats", "aiohttp"} & sys.modules.keys():
        return
    sys.modules["aiohttp"] = None  # type: ignore[assignment]  # None makes its import fail.
    try:
        library = import_module("nats.aio.transport")
    finally:
        del sys.modules["aiohttp"]
    vars(library)["aiohttp"] = _AioHttp("aiohttp")


_import_without_aiohttp()

from nats.aio import transport  # noqa: E402
from nats.aio.client import DEFAULT_BUFFER_SIZE, Client, Srv  # noqa: E402
from nats.aio.msg import Msg  # noqa: E402
from nats.aio.transport import Transport  # noqa: E402
from nats.errors import (  # noqa: E402
    ConnectionReconnectingError,
    MaxPayloadError,
    ProtocolError,
    StaleConnectionError,
    UnexpectedEOF,
)
from nats.errors import Error as NatsError  # noqa: E402
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
    "Transport",
    "UnexpectedEOF",
    "transport",
]
