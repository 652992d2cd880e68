"""What a session of a replica gets: the objects that outlive it, and the log at its start."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, NamedTuple

from nodepool.contract.log import LogId
from nodepool.engine.proposal import Proposal
from nodepool.host.batch_size import BatchSize
from nodepool.host.doubts import Doubts
from nodepool.host.log_clock import LogClock
from nodepool.host.projector import Projector, writer_for
from nodepool.host.settings import Settings
from nodepool.host.snapshots import Snapshots
from nodepool.host.telemetry import Telemetry
from nodepool.nats.log.feed import Feed
from nodepool.nats.log.publisher import Bus
from nodepool.service import I, O, S, Service


@dataclass(frozen=True, slots=True)
class Host(Generic[S, I, O]):
    """The objects that outlive a connection.

    ready: set while a session has caught up with the log.
    size: how many inputs a commit may have.
    doubts: the commits that may or may not be stored.
    feed: what reads the log for all services of the process; None for a service alone.
    on_stored: called with each commit of this process once it is known to be stored.
    log_clock: the time of the log.
    """

    service: Service[S, I, O]
    settings: Settings
    telemetry: Telemetry
    snapshots: Snapshots
    ready: asyncio.Event
    size: BatchSize
    doubts: Doubts[S, I]
    feed: Feed | None = None
    on_stored: list[Callable[[Proposal[S, I]], None]] = field(default_factory=list)
    log_clock: LogClock = field(default_factory=LogClock)


class Start(NamedTuple):
    """The log when a session begins.

    log: the identity of the log.
    committed: the position of the last commit record of the service; 0 if there is none.
    end: the position of the newest message.
    """

    log: LogId
    committed: int
    end: int


def projector_of(host: Host[S, I, O], bus: Bus) -> Projector[S, I]:
    """Return the projector that writes the read model of a session."""
    settings, telemetry = host.settings, host.telemetry
    return Projector(
        writer_for(
            host.service,
            bus,
            show_deprecated=settings.deprecated_conditions == "show",
            on_parked=telemetry.count_parked_object,
            on_wrong=telemetry.count_repairs,
        )
    )
