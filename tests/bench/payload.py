"""The messages of the bare pipeline: of the sizes of the control plane's own, and nothing more."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from nats.aio.msg import Msg
from pydantic import BaseModel


class Sample(NamedTuple):
    """A message that a service of the control plane publishes for one NodePool."""

    subject: str
    content: bytes


class Received(NamedTuple):
    """What a hop knows of a message: its id, its NodePool, and the id of the command behind it."""

    id: str
    pool: str
    cause: str


class Codec(Protocol):
    """How a hop reads what it hears, and makes what it says; made of samples of the latter."""

    def __init__(self, samples: Sequence[Sample]) -> None: ...

    def read(self, message: Msg) -> Received: ...

    def write(self, index: int, received: Received) -> Sample: ...


class Payload(BaseModel):
    """A message of the bare pipeline; `pad` brings it to the size of the control plane's own."""

    id: str
    type: str
    pool: str
    cause: str
    pad: str


EMPTY_BYTES = len(
    Payload(
        id="c00000-0", type="Event", pool="pool-00000", cause="c00000", pad=""
    ).model_dump_json()
)


class Padding:
    """Small messages with five fields, one of which only pads."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        self._outputs = [
            (*sample.subject.rsplit(".", 2), "x" * max(0, len(sample.content) - EMPTY_BYTES))
            for sample in samples
        ]

    def read(self, message: Msg) -> Received:
        """Return what a message says."""
        payload = Payload.model_validate_json(message.data)
        return Received(payload.id, payload.pool, payload.cause)

    def write(self, index: int, received: Received) -> Sample:
        """Return the output with this number to a message."""
        prefix, _, name, pad = self._outputs[index]
        id, pool = f"{received.id}-{index}", received.pool
        output = Payload(id=id, type="Event", pool=pool, cause=received.cause, pad=pad)
        return Sample(f"{prefix}.{pool}.{name}", output.model_dump_json().encode())
