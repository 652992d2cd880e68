"""Replicas that act one small step at a time, and fail between any two: the faults inside."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from typing import Any

from nodepool.engine.proposal import Proposal
from nodepool.engine.replica import Replica
from nodepool.engine.snapshot import dump, load
from nodepool.engine.wakes import wake, wake_subject
from nodepool.engine.world import Host, World

SECOND_REPLICA_PACES = (0.05, 0.2, 0.8)
"""How often the second replica of a service acts, where the first acts once."""
PAUSE_TURNS = (5, 20, 60)
"""How many turns of its replicas a paused service misses."""
LAGS = (timedelta(minutes=1), timedelta(minutes=3), timedelta(minutes=10))
"""How long a service lags behind."""


@dataclass
class Actor:
    """One replica, and how far its commit is.

    pace: how often it acts, compared with others.
    proposal: what it is about to store.
    stored: the position at which its proposal was stored, 0 for a conflict; None while neither is
        known to the log.
    """

    host: Host
    pace: float
    proposal: Proposal[Any, Any] | None = None
    stored: int | None = None

    @property
    def replica(self) -> Replica[Any, Any, Any]:
        """Its replica; another one after each crash."""
        return self.host.replica


@dataclass
class Snapshot:
    """The state of a replica as it was written down, and the place in the log it belongs to."""

    lines: list[bytes]
    committed: int
    expected_sequence: int


@dataclass
class Replicas:
    """Two replicas of each service of a world.

    reads: how many entries a replica may read in one step.
    pauses: how many turns each paused service still misses, by name.
    lags: until when each service that lags behind does nothing, by name.
    """

    random: Random
    world: World
    reads: tuple[int, ...]
    pauses: dict[str, int] = field(default_factory=dict)
    lags: dict[str, datetime] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.actors = [
            Actor(host, self.random.choice(SECOND_REPLICA_PACES) if number % 2 else 1.0)
            for number, host in enumerate(self.world.hosts)
        ]
        self._paces = [actor.pace for actor in self.actors]
        self._snapshots: dict[str, list[Snapshot]] = {}

    def pause(self) -> None:
        """Pauses a service."""
        service = self.random.choice(self.world.services)
        self.pauses[service.name] = self.random.choice(PAUSE_TURNS)

    def lag(self) -> None:
        """Stops a service for some minutes of the log's time."""
        service = self.random.choice(self.world.services)
        self.lags[service.name] = self.world.log.clock + self.random.choice(LAGS)

    def step(self) -> None:
        """Lets a replica do the next small thing, unless its service is paused."""
        (actor,) = self.random.choices(self.actors, self._paces)
        name = actor.host.service.name
        if self.pauses.get(name, 0):
            self.pauses[name] -= 1
        elif name not in self.lags or self.lags[name] <= self.world.log.clock:
            self._act(actor)

    def catch_up(self) -> None:
        """Lets every replica process all there is, in whichever state it is."""
        self.stop_faults()
        self.world.run_until_idle()

    def hurry(self, late: Sequence[str]) -> None:
        """Lets all services catch up but one of these, which then is far behind; or all of them."""
        name = self.random.choice(("", *late))
        hosts = self.world.hosts
        self.world.hosts = [host for host in hosts if host.service.name != name]
        self.catch_up()
        self.world.hosts = hosts

    def stop_faults(self) -> None:
        """Every proposal that is under way is given up; what was stored of it is read later."""
        for actor in self.actors:
            if actor.proposal is not None:
                actor.replica.undo_proposal()
                actor.proposal = actor.stored = None

    def _act(self, actor: Actor) -> None:
        log = self.world.log
        if self.random.random() < 0.005:
            self._crash(actor)
        elif actor.stored is not None:
            self._learn(actor)
        elif actor.proposal is not None:
            self._store(actor)
        elif self.random.random() < 0.3:
            self._fire(actor)
        elif actor.host.cursor < len(log.entries) and self.random.random() < 0.6:
            self.world.read(actor.host, self.random.choice(self.reads))
        else:
            self._propose(actor)

    def _propose(self, actor: Actor) -> None:
        proposal = actor.replica.propose(
            even_if_quiet=self.random.random() < 0.2, is_old=self.world.log.is_old
        )
        if proposal is not None and proposal.worth_storing:
            actor.proposal = proposal

    def _store(self, actor: Actor) -> None:
        assert actor.proposal is not None
        # A commit is lost on its way to the server, or the host never sends it: it stores what it
        # proposes without a pause.
        is_old = any(map(self.world.log.is_old, actor.proposal.wakes))
        if self.random.random() < 0.05 or is_old:
            actor.proposal = None
            actor.replica.undo_proposal()
        else:
            actor.stored = self.world.log.commit(actor.proposal) or 0

    def _learn(self, actor: Actor) -> None:
        assert actor.proposal is not None
        proposal, stored = actor.proposal, actor.stored
        actor.proposal = actor.stored = None
        if self.random.random() < 0.08:  # The server's response is lost on its way back.
            actor.replica.undo_proposal()
        elif stored:
            actor.replica.confirm_proposal(proposal, stored)
            if self.random.random() < 0.06:
                self._write_snapshot(actor)
        else:
            actor.replica.note_conflict()

    def _write_snapshot(self, actor: Actor) -> None:
        replica = actor.replica
        snapshot = Snapshot(list(dump(replica.safe)), replica.committed, replica.expected_sequence)
        self._snapshots.setdefault(actor.host.service.name, []).append(snapshot)

    def _crash(self, actor: Actor) -> None:
        """Starts the replica again, from the beginning of the log or from a recent snapshot."""
        service, log = actor.host.service, self.world.log.id
        actor.proposal = actor.stored = None
        snapshots = self._snapshots.get(service.name)
        if snapshots and self.random.random() < 0.8:
            snapshot = self.random.choice(snapshots[-3:])
            state = load(type(service.initial), snapshot.lines)
            actor.host.replica = Replica(
                service, state, snapshot.committed, snapshot.expected_sequence, log=log
            )
            actor.host.cursor = snapshot.committed
        else:
            actor.host.replica = Replica(service, log=log)
            actor.host.cursor = 0

    def _fire(self, actor: Actor) -> None:
        """Wakes a replica for which something is due; sometimes too early for the log's clock."""
        replica, log = actor.replica, self.world.log
        due = replica.due()
        if due is None or replica.open or replica.is_behind:
            return
        if due <= log.clock or self.random.random() < 0.1:
            name = actor.host.service.name
            message, subject = wake(name, due, replica.read_to), wake_subject(name)
            last = log.last.get(subject, 0)
            if last <= replica.read_to:  # It is not read again after a start at a snapshot.
                replica.last_wake = last
            log.append_after(replica.last_wake, subject, message.encode())
