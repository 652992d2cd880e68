"""The messages of the control plane itself, for a bare pipeline that decodes and encodes them."""

from collections.abc import Sequence

from nats.aio.msg import Msg

from bench.payload import Received, Sample
from nodepool.contract import commands, events
from nodepool.contract.decode import Unreadable, decode
from nodepool.contract.messages import Envelope, Message, OfPool, wrap


class Decoding:
    """The product's own messages, decoded and encoded as the product does it."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        self._outputs = [(sample.subject.rsplit(".", 2), _decode(*sample)) for sample in samples]

    def read(self, message: Msg) -> Received:
        """Return what a message says."""
        envelope = _decode(message.subject, message.data, message.headers)
        id, (_, _, pool) = envelope.id, envelope.data.path
        return Received(id, pool, envelope.correlationid or id)

    def write(self, index: int, received: Received) -> Sample:
        """Return the output with this number to a message."""
        (prefix, _, name), sample = self._outputs[index]
        assert isinstance(sample.data, OfPool)
        output = wrap(
            sample.data.model_copy(update={"pool": received.pool}),
            id=f"{received.id}-{index}",
            source=sample.source,
            time=sample.time,
            traceparent=sample.traceparent,
            tracestate=sample.tracestate,
            correlationid=received.cause,
            causationid=received.id,
            causeposition=sample.causeposition,
        )
        return Sample(f"{prefix}.{received.pool}.{name}", output.encode())


def _decode(
    subject: str, content: bytes, headers: dict[str, str] | None = None
) -> Envelope[Message]:
    name = subject.rpartition(".")[2]
    kind: type[Message] = getattr(events, name, None) or getattr(commands, name)
    envelope = decode(kind, subject, content, headers or {}, 0)
    if isinstance(envelope, Unreadable):
        raise ValueError(f"{subject}: {envelope.field} {envelope.cause}")
    return envelope
