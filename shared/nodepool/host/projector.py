"""When a replica updates the read model, compares it with its state, or leaves it alone."""

from collections.abc import Callable, Coroutine, Iterable
from dataclasses import replace
from typing import Generic

from nodepool.contract.events import Wake
from nodepool.contract.messages import Message
from nodepool.engine.proposal import Processed, Proposal
from nodepool.engine.replica import Replica
from nodepool.nats.log.publisher import Bus
from nodepool.nats.objects.inspection import Inspection
from nodepool.nats.objects.parking import Parking
from nodepool.nats.objects.read_model import ReadModelWriter
from nodepool.nats.objects.stored_objects import ObjectKey, Report
from nodepool.nats.objects.unwritten import Lag
from nodepool.service import I, O, Projection, S, Service

SWEEP_AFTER_S = 10.0
"""How long a leader is silent until a follower compares the read model in its place."""


class Projector(Generic[S, I]):
    """The read model of one replica; without a `writer`, the service has none and nothing happens.

    Only the leader writes. A follower sweeps: once the leader has been silent for long, the
    follower compares the read model with its own state, and writes what the leader left unwritten.
    """

    def __init__(self, writer: ReadModelWriter[S, I] | None) -> None:
        self._writer = writer

    def update(self, state: S, proposal: Proposal[S, I]) -> None:
        """Take the state after a proposal; soon write the objects that its inputs changed."""
        if self._writer is not None:
            self._writer.update(state, _messages(proposal.processed), proposal.position)

    def suspend(self) -> None:
        """Stop writing, as another replica has committed and writes instead."""
        if self._writer is not None:
            self._writer.suspend()

    def invalidate(self) -> None:
        """Read the stored objects again before the next write, as they may have changed unseen."""
        if self._writer is not None:
            self._writer.invalidate()

    def compare(self, replica: Replica[S, I, O]) -> None:
        """Compare the stored objects with the replica's state: either may be behind the other."""
        if self._writer is not None:
            self._writer.update(replica.state, (), replica.committed)
            self._writer.invalidate()

    def sweep(self, replica: Replica[S, I, O], leader_silent_s: float) -> None:
        """Compare on behalf of a silent leader, unless there are inputs to process first."""
        writer = self._writer
        if writer is None or not writer.suspended or replica.open:
            return
        if leader_silent_s > SWEEP_AFTER_S:
            self.compare(replica)

    @property
    def fault(self) -> str:
        """Return why the read model is not written, as one line; empty if any replica writes it."""
        writer = self._writer
        if writer is None or writer.suspended or not writer.unwritten.fault:
            return ""
        return f"the read model is not written: {writer.unwritten.fault}"

    @property
    def lag(self) -> Lag | None:
        """How far the read model is behind; None if another replica writes it, or there is none."""
        writer = self._writer
        return None if writer is None or writer.suspended else writer.unwritten.lag()

    def tasks(self) -> Iterable[Coroutine[None, None, None]]:
        """Return the coroutines that must run in the background."""
        writer = self._writer
        return () if writer is None else (writer.run(), Inspection(writer).run())

    async def finish(self) -> None:
        """Write the objects not written yet; raise as `ReadModelWriter.flush` does."""
        if self._writer is not None:
            await self._writer.flush()


def writer_for(
    service: Service[S, I, O],
    bus: Bus,
    *,
    show_deprecated: bool,
    on_parked: Callable[[ObjectKey, str], None],
    on_wrong: Report,
) -> ReadModelWriter[S, I] | None:
    """Return the writer of a service's projection; None if the service has no projection.

    `on_parked` is called with each object that cannot be stored, and why; `on_wrong` with objects
    that another program has changed or removed.
    """
    projection = service.projection
    if projection is None:
        return None
    parking = Parking(service.name, bus.publisher, on_parked)
    return ReadModelWriter(bus, _choose_rendering(projection, show_deprecated), parking, on_wrong)


def _choose_rendering(projection: Projection[S, I], show_deprecated: bool) -> Projection[S, I]:
    if show_deprecated and projection.render_deprecated is not None:
        rendering = f"{projection.rendering} with deprecated conditions"
        return replace(projection, render=projection.render_deprecated, rendering=rendering)
    return projection


def _messages(processed: Iterable[Processed[I]]) -> Iterable[I]:
    for item in processed:
        message = item.input.message
        if isinstance(message, Message) and not isinstance(message, Wake):
            yield message
