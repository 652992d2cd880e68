"""Services that look at each subject of the log once for all replicas."""

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any

from nodepool.service import AnyService, Service


@dataclass(frozen=True)
class SharedReading(Service[Any, Any, Any]):
    """A service whose replicas share what a subject is to it.

    wanted, heard: whether this service reads a subject, and the class of the message that it hears.
    """

    wanted: dict[str, bool] = field(default_factory=dict)
    heard: dict[str, type[Any] | None] = field(default_factory=dict)

    def wants(self, subject: str) -> bool:
        """Whether a replica reads this subject."""
        if subject not in self.wanted:
            self.wanted[subject] = super().wants(subject)
        return self.wanted[subject]

    def kind_at(self, subject: str) -> type[Any] | None:
        """The class of the input on this subject, if the service hears one there."""
        if subject not in self.heard:
            self.heard[subject] = super().kind_at(subject)
        return self.heard[subject]


def sharing(services: Iterable[AnyService]) -> tuple[AnyService, ...]:
    """The services, whose replicas share what they know of subjects."""
    return tuple(
        SharedReading(**{each.name: getattr(service, each.name) for each in fields(service)})
        for service in services
    )
