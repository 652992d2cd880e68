"""Services and logs with a fault put in on purpose, and the search for what it breaks."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from nodepool.contract.events import CommandAccepted, CommandRefused
from nodepool.contract.outcomes import CommandOutcome
from nodepool.engine.folded import Folded, with_work
from nodepool.engine.proposal import Proposal
from nodepool.engine.world import Log
from nodepool.service import Context, I, K, O, Reconciler, S, Service
from nodepool.state.work import WorkQueue
from support.services import services
from support.simulation.driver import Simulation

SEEDS_MAX = 100
"""How many simulations are run to find a fault; most are found by one of the first two."""


def first_violation(
    broken: Service[S, I, O] | None = None,
    log: Callable[[], Log] = Log,
    seeds: int = SEEDS_MAX,
) -> str:
    """The text of the first violation that a simulation finds; empty where none finds any.

    broken: takes the place of the service with its name.
    """
    simulated = tuple(
        broken if broken is not None and broken.name == service.name else service
        for service in services()
    )
    for seed in range(seeds):
        try:
            Simulation(seed, simulated, log=log()).run()
        except AssertionError as violation:
            return str(violation)
    return ""


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


def without_wakes(service: Service[S, I, O]) -> Service[S, I, O]:
    """The service with a work queue that stays empty; it reconciles what an input concerns."""

    def evolve(state: S, message: I | O, context: Context) -> S:
        after = service.evolve(state, message, context)
        return with_work(Folded(after), WorkQueue()).state

    return replace(service, evolve=evolve)


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
