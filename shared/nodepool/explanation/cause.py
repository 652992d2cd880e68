"""What a cause is: something that keeps a NodePool from its target, with its proof in the log."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from nodepool.explanation.leaving import since
from nodepool.explanation.remedies import Remedy, StartService

Kind = Literal[
    "Validated",
    "Deletion",
    "Quota",
    "Capacity",
    "Booting",
    "Removal",
    "Preemption",
    "Health",
    "Cordon",
    "Reservation",
    "InternalError",
    "Service",
    "Progress",
]
"""What a cause is about."""


@dataclass(frozen=True, slots=True)
class Proof:
    """A log position that proves a cause, and the object that the cause is about."""

    position: int
    about: str


@dataclass(frozen=True, slots=True)
class Cause:
    """Something that keeps a NodePool from its target.

    title: the cause in a few words; `message` may say more.
    since: the start of the cause; None if unknown.
    status: the status of a condition that `since` dates, as its reason may be newer; else empty.
    details: further facts, each one sentence without a full stop.
    remedies: the changes that would end the cause, smallest first.
    proofs: the log positions that prove it.
    """

    kind: Kind
    title: str
    message: str = ""
    since: datetime | None = None
    status: str = ""
    details: tuple[str, ...] = ()
    remedies: tuple[Remedy, ...] = ()
    proofs: tuple[Proof, ...] = ()

    @property
    def helps(self) -> tuple[str, ...]:
        """Return what would help, each an instruction without a full stop."""
        return tuple(remedy.text for remedy in self.remedies)

    @property
    def clause(self) -> str:
        """The cause without its start, as part of a sentence."""
        return f"{self.title}: {self.message}" if self.message else self.title

    @property
    def dated(self) -> str:
        """The cause with its start, as part of a sentence."""
        status = f", {self.status}" if self.status and self.since is not None else ""
        dated = f"{self.title}{status}{since(self.since)}"
        return f"{dated}: {self.message}" if self.message else dated


def blame(
    services: tuple[str, ...], message: str, since: datetime | None, evidence: tuple[Proof, ...]
) -> Cause:
    """Return the cause that one of these services does not answer."""
    return Cause(
        "Service",
        f"the {' or the '.join(services)} service does not answer",
        message,
        since=since,
        remedies=tuple(map(start_service, services)),
        proofs=evidence,
    )


def proofs(pairs: Iterable[tuple[int, str]]) -> tuple[Proof, ...]:
    """Return the proofs with a known position, each position once."""
    known: dict[int, str] = {}
    for position, about in pairs:
        if position > 0:
            known.setdefault(position, about)
    return tuple(Proof(position, about) for position, about in known.items())


def start_service(service: str) -> Remedy:
    """Return the advice to look after a service that does not answer."""
    text = f"see that the {service} service runs: 'nodepool doctor' says what is wrong with it"
    return Remedy(text, StartService(service))
