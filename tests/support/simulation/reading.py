"""Services that decode each entry of the log once for all replicas, as messages never change."""

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any

from nodepool.contract.decode import Unreadable
from nodepool.contract.log import Entry
from nodepool.contract.messages import Envelope
from nodepool.service import AnyService, Service

Decoded = Envelope[Any] | Unreadable | None


@dataclass(frozen=True)
class SharedReading(Service[Any, Any, Any]):
    """A service whose replicas, and those of the others, share what was decoded.

    decoded: each entry that a service hears, by position.
    wanted, heard: whether this service reads a subject, and whether it hears it.
    """

    decoded: dict[int, Decoded] = field(default_factory=dict)
    wanted: dict[str, bool] = field(default_factory=dict)
    heard: dict[str, bool] = field(default_factory=dict)

    def read(self, entry: Entry) -> Decoded:
        """The input at an entry; the same object for each service that hears it."""
        if entry.position not in self.decoded:
            self.decoded[entry.position] = super().read(entry)
        return self.decoded[entry.position]

    def wants(self, subject: str) -> bool:
        """Whether a replica reads this subject."""
        if subject not in self.wanted:
            self.wanted[subject] = super().wants(subject)
        return self.wanted[subject]

    def is_input(self, subject: str) -> bool:
        """Whether a message on this subject is an input."""
        if subject not in self.heard:
            self.heard[subject] = super().is_input(subject)
        return self.heard[subject]


def sharing(services: Iterable[AnyService]) -> tuple[AnyService, ...]:
    """The services, which share what they decode."""
    decoded: dict[int, Decoded] = {}
    return tuple(
        SharedReading(
            **{each.name: getattr(service, each.name) for each in fields(service)}, decoded=decoded
        )
        for service in services
    )
