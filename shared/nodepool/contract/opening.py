"""A command taken apart, in whichever of the three ways it was sent.

As a CloudEvent in structured JSON, in the binary mode of CloudEvents, or as bare JSON.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from pydantic_core import from_json

from nodepool.contract.messages import ACTOR_MAX, ID_MAX
from nodepool.contract.tracing import traceparent_of, tracestate_of

COMMAND_BYTES_MAX: Final = 256 << 10
"""The largest command that is accepted; what follows from it is larger and must fit the bus too."""


class Opened(NamedTuple):
    """A command whose data is not looked at yet.

    headers: those of the message, by their names in small letters.
    attributes: those of the CloudEvent; empty for bare JSON.
    data: what is to be done. id: what its sender waits for, or its position in the log.
    fault: why there is no data, as one sentence; empty where there is.
    """

    headers: Mapping[str, str]
    attributes: Mapping[str, object]
    data: object
    id: str
    fault: str = ""

    def attribute(self, name: str, default: object = None) -> object:
        """Return an attribute, which is a header in the binary mode of CloudEvents."""
        return self.attributes.get(name, self.headers.get(f"ce-{name}", default))

    @property
    def source(self) -> str:
        """The program that has sent it, as it says."""
        source = self.attributes.get("source") or self.headers.get("ce-source")
        return source if isinstance(source, str) else "unknown"

    @property
    def actor(self) -> str | None:
        """The actor that the gateway has written into the CloudEvent; None if there is none."""
        actor = self.attributes.get("actor")
        return actor if isinstance(actor, str) and len(actor) <= ACTOR_MAX else None

    @property
    def trace(self) -> tuple[str | None, str | None]:
        """The `traceparent` and `tracestate` of the command; None if missing or malformed.

        The headers have the names of W3C, or the names of the binary mode.
        """
        parent = traceparent_of(self._find_attribute("traceparent"))
        return parent, tracestate_of(self._find_attribute("tracestate")) if parent else None

    def _find_attribute(self, name: str) -> object:
        header = self.headers.get(name) or self.headers.get(f"ce-{name}")
        return self.attributes.get(name, header)


def open_command(content: bytes, headers: Mapping[str, str], position: int) -> Opened:
    """Return the parts of a command; a command that cannot be parsed has a `fault`."""
    header = {name.lower(): value for name, value in headers.items() if _is_text(value)}
    id = header.get("ce-id") or header.get("nats-msg-id") or ""
    if not 0 < len(id) <= ID_MAX:
        id = str(position)
    if too_large := size_fault(content):
        return Opened(header, {}, None, id, too_large)
    try:
        outer = from_json(content)
    except ValueError as error:
        return Opened(header, {}, None, id, f"the content is not JSON: {error}")
    if not isinstance(outer, dict):
        return Opened(header, {}, None, id, "the content is not a JSON object")
    if "specversion" not in outer:
        return Opened(header, {}, outer, id)
    given = outer.get("id")
    if isinstance(given, str) and len(given) > ID_MAX:
        fault = f"the id has {len(given)} characters; at most {ID_MAX} are taken"
        return Opened(header, outer, None, id, fault)
    id = given if isinstance(given, str) and given else id
    return Opened(header, outer, outer.get("data", {}), id)


def size_fault(content: bytes) -> str | None:
    """Return why a command is refused for its size; None if its size is allowed."""
    if len(content) <= COMMAND_BYTES_MAX:
        return None
    return f"the command has {len(content)} bytes; at most {COMMAND_BYTES_MAX} are taken"


def _is_text(value: str) -> bool:
    """Return whether UTF-8 can encode the value."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
