"""The services after the log of a run, and what has to hold once they have come to rest."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from nodepool.contract.log import Entry, LogId
from nodepool.engine.world import Log, World
from nodepool.service import AnyService
from support.audit.auditor import Auditor
from support.audit.facts import Violation
from support.simulation.final_checks import FinalChecks
from support.simulation.quiet import run_until_quiet
from support.simulation.sender import SentCommand


def replayed(services: Sequence[AnyService], entries: Iterable[Entry], id: LogId) -> World:
    """A world in which each service has read this log; it writes to a copy of it."""
    copy = list(entries)
    last = {entry.subject: entry.position for entry in copy}
    world = World(services, log=Log(copy[-1].time, copy, last, id))
    for host in world.hosts:
        world.read(host)
    return world


def faults_at_rest(world: World, sent: Sequence[SentCommand]) -> Iterator[str]:
    """Yield what is wrong with a world once all is over that takes minutes, such as a preemption.

    A run ends as soon as nothing is said for some seconds, so what was due later happens here.
    The log of the world is audited from its beginning. The auditor of the run may know later
    entries, at positions where the world now stores entries of its own.
    """
    auditor = Auditor()
    for entry in tuple(world.log.entries):
        with suppress(Violation):  # The audit of the run has reported it.
            auditor.read(entry)

    def audit() -> None:
        for entry in world.log.entries[auditor.position :]:
            auditor.read(entry)

    try:
        run_until_quiet(world, audit)
        FinalChecks(world, auditor.facts, auditor.history).check(sent)
    except Violation as violation:
        yield str(violation)
