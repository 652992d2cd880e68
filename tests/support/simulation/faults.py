"""Services and logs with a fault put in on purpose, and the search for what it breaks."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from nodepool.contract.events import CommandAccepted, CommandRefused
from nodepool.contract.outcomes import CommandOutcome
from nodepool.engine.proposal import Proposal
from nodepool.engine.world import Log
from nodepool.service import AnyService, Context, I, K, O, Reconciler, S, Service
from support.services import services
from support.simulation.driver import Simulation
from support.simulation.profile import Profile

SEEDS_MAX = 25
"""How many simulations are run to find a fault; most are found by one of the first two."""


def first_violation(
    *broken: AnyService,
    text: str = "",
    profile: Profile | None = None,
    log: Callable[[], Log] = Log,
    seeds: int = SEEDS_MAX,
) -> str:
    """The first violation with this text that a simulation finds; else all that it finds instead.

    broken: they take the place of the services with their names.
    profile: what is likely, for all seeds; None for that of each seed.
    """
    instead = {service.name: service for service in broken}
    simulated = tuple(instead.get(service.name, service) for service in services())
    others: list[str] = []
    for seed in range(seeds):
        try:
            Simulation(seed, simulated, profile, log()).run()
        except AssertionError as violation:
            if text in str(violation):
                return str(violation)
            others.append(str(violation))
    return "\n".join(others)


def with_events(
    service: Service[S, I, O], change: Callable[[S, O, Context], Iterable[O]]
) -> Service[S, I, O]:
    """The service with each of its events replaced by those that `change` makes of it."""

    def decide(state: S, message: I, context: Context) -> Iterator[O | CommandOutcome]:
        for output in service.decide(state, message, context):
            if isinstance(output, CommandAccepted | CommandRefused):
                yield output
            else:
                yield from change(state, output, context)

    reconciler = service.reconciler
    if reconciler is None:
        return replace(service, decide=decide)

    def reconcile(state: S, key: K, context: Context) -> Iterator[O]:
        for event in reconciler.reconcile(state, key, context):
            yield from change(state, event, context)

    return replace(service, decide=decide, reconciler=replace(reconciler, reconcile=reconcile))


def without_reconciler(service: Service[S, I, O]) -> Service[S, I, O]:
    """The service with a work queue of which nothing is ever done."""

    def reconcile(_state: S, _key: str, _context: Context) -> Iterable[O]:
        return ()

    return replace(service, reconciler=Reconciler(reconcile))


@dataclass
class UnconditionalLog(Log):
    """A log that stores every proposal, whatever sequence it expects."""

    def commit(self, proposal: Proposal[Any, Any]) -> int | None:
        self.last_commits[proposal.service] = proposal.expected_sequence
        return super().commit(proposal)


@dataclass
class LossyLog(Log):
    """A log that loses the last output of every seventh commit."""

    commits: Iterator[int] = field(default_factory=count)

    def commit(self, proposal: Proposal[Any, Any]) -> int | None:
        position = super().commit(proposal)
        if position is not None and next(self.commits) % 7 == 6:
            lost = self.entries[-2]
            self.entries[-2] = lost._replace(subject="np.lost")
        return position
