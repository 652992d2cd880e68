"""Services and logs with a fault put in on purpose, and the search for what it breaks."""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, TypeVar

import pytest

from nodepool.contract.events import CommandAccepted, CommandRefused
from nodepool.contract.messages import Message
from nodepool.contract.outcomes import CommandOutcome
from nodepool.engine.folded import Folded, with_work
from nodepool.engine.proposal import Proposal
from nodepool.engine.world import Log
from nodepool.service import AnyService, Context, I, K, O, Reconciler, S, Service
from nodepool.state.work import WorkQueue
from support.services import services
from support.simulation.driver import Simulation
from support.simulation.profile import Profile

M = TypeVar("M", bound=Message)
FOUND: list[tuple[int, Profile | None]] = []
"""The seeds and profiles of the simulations in which the test that runs found a violation."""
SEEDS_MAX = 25
"""How many simulations are run to find a fault; most are found by one of the first two."""


def first_violation(
    *broken: AnyService,
    text: str = "",
    profile: Profile | None = None,
    log: Callable[[], Log] = Log,
    first: int = 0,
    seeds: int = SEEDS_MAX,
) -> str:
    """The first violation with this text that a simulation finds; else all that it finds instead.

    broken: they take the place of the services with their names.
    profile: what is likely, for all seeds; None for that of each seed.
    first, seeds: the seed to begin with, and how many are tried.
    """
    instead = {service.name: service for service in broken}
    simulated = tuple(instead.get(service.name, service) for service in services())
    others: list[str] = []
    for seed in range(first, first + seeds):
        try:
            Simulation(seed, simulated, profile, log()).run()
        except AssertionError as violation:
            if text in str(violation):
                FOUND.append((seed, profile))
                return str(violation)
            others.append(str(violation))
    return "\n".join(others)


def with_events(
    service: Service[S, I, O], change: Callable[[S, O, Context], Iterable[O]]
) -> Service[S, I, O]:
    """The service with each of its events replaced by those that `change` makes of it."""

    def changed(
        state: S, output: O | CommandOutcome, context: Context
    ) -> Iterable[O | CommandOutcome]:
        if isinstance(output, (CommandAccepted, CommandRefused)):
            return (output,)
        return change(state, output, context)

    def decide(state: S, message: I, context: Context) -> Generator[O | CommandOutcome, S, None]:
        return _changed(service.decide(state, message, context), state, changed, context)

    reconciler = service.reconciler
    if reconciler is None:
        return replace(service, decide=decide)

    def reconcile(state: S, key: K, context: Context) -> Generator[O, S, None]:
        return _changed(reconciler.reconcile(state, key, context), state, change, context)

    return replace(service, decide=decide, reconciler=replace(reconciler, reconcile=reconcile))


def _changed(
    events: Generator[M, S, None],
    state: S,
    change: Callable[[S, M, Context], Iterable[M]],
    context: Context,
) -> Generator[M, S, None]:
    """Yield what `change` makes of each event; send the state after that back."""
    before, event = state, next(events, None)
    while event is not None:
        for each in change(before, event, context):
            state = yield each
        try:
            event = events.send(state)
        except StopIteration:
            return


def without_reconciler(service: Service[S, I, O]) -> Service[S, I, O]:
    """The service with a work queue of which nothing is ever done."""

    def reconcile(_state: S, _key: str, _context: Context) -> Generator[O, S, None]:
        yield from ()

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
        self.last[proposal.subject] = proposal.expected_sequence
        return super().commit(proposal)


@dataclass
class LossyLog(Log):
    """A log that loses the last output of every seventh commit."""

    commits: Iterator[int] = field(default_factory=count)

    def commit(self, proposal: Proposal[Any, Any]) -> int | None:
        position = super().commit(proposal)
        if position is not None and next(self.commits) % 7 == 6:
            lost = self.entries[-2]
            self.entries[-2] = lost._replace(subject="np.cmd.lost.lost.lost.Lost")
        return position


@dataclass(frozen=True)
class Plant:
    """A fault that is put into the services on purpose.

    text: what the violation that it causes says.
    profile: in which it shows soon.
    services: they take the place of those with their names.
    functions: they take the place of functions and methods, by their dotted names.
    seed: one that showed it; the search begins there, as the draws change with the simulation.
    """

    text: str
    profile: Profile
    services: tuple[AnyService, ...] = ()
    functions: Mapping[str, object] = field(default_factory=dict)
    seed: int = 0


def violation_of(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> str:
    """The first violation that the fault causes once it is put in; else what is found instead."""
    for function, instead in plant.functions.items():
        monkeypatch.setattr(function, instead)
    return first_violation(
        *plant.services, text=plant.text, profile=plant.profile, first=plant.seed
    )


def hearing(service: AnyService, change: Callable[[Any, Any], Any]) -> AnyService:
    """The service, which folds what `change` makes of the state and a message; None for nothing."""

    def evolve(state: Any, message: Any, context: Context) -> Any:
        changed = change(state, message)
        return state if changed is None else service.evolve(state, changed, context)

    return replace(service, evolve=evolve)


def saying(service: AnyService, keep: Callable[[Any, Any], bool]) -> AnyService:
    """The service, which says an event only if `keep` says so of the state and the event."""

    def change(state: Any, event: Any, _context: Context) -> Iterator[Any]:
        if keep(state, event):
            yield event

    return with_events(service, change)


def unconcerned(service: AnyService, *kinds: type[Message]) -> AnyService:
    """The service, which reconciles nothing because of messages of these classes."""
    reconciler = service.reconciler
    assert reconciler is not None

    def concerns(state: Any, message: Any) -> Any:
        return None if isinstance(message, kinds) else reconciler.concerns(state, message)

    return replace(service, reconciler=replace(reconciler, concerns=concerns))
