"""Since when a NodePool waits for each machine that it lacks."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from nodepool.state.values import replace


class Run(NamedTuple):
    """Positions of a NodePool whose wait started at the same moment."""

    since: datetime
    nodes: int


@dataclass(frozen=True, slots=True)
class Wait:
    """The wait of one NodePool.

    granted: how many Nodes quota granted for its newest version, capped by each target since then.
    since: the start of its wait, which is kept after the wait ends; None before the first grant.
    runs: a position for each granted Node that it lacks, earliest first.
    """

    granted: int = 0
    since: datetime | None = None
    runs: tuple[Run, ...] = ()

    @property
    def lacks(self) -> int:
        """Return how many positions it has."""
        return sum(run.nodes for run in self.runs)

    def has_position(self, since: datetime) -> bool:
        """Return whether one of its positions started at this moment."""
        return any(run.since == since for run in self.runs)

    @property
    def first(self) -> datetime | None:
        """Return the start of the position that its next machine fills; None before a grant.

        A machine that was assigned for an earlier, higher target fills no position. It gets the
        start of the last wait.
        """
        return self.runs[0].since if self.runs else self.since

    def with_grant(self, granted: int, held: int, now: datetime) -> "Wait":
        """Return the wait after a grant; a grant that raises the shortfall starts it again."""
        lacks = max(0, granted - held)
        if lacks > self.lacks:
            return Wait(granted, now, (Run(now, lacks),))
        return replace(self, granted=granted, since=self.since or now).trim(lacks)

    def with_target(self, target: int, held: int) -> "Wait":
        """Return the wait of a NodePool with a new target.

        A surplus Node that leaves is no loss: until another grant, the NodePool waits for no Node
        in its place.
        """
        if target >= self.granted:
            return self
        return replace(self, granted=target).trim(max(0, target - held))

    def after_loss(self, held: int, now: datetime, late: datetime | None = None) -> "Wait":
        """Return the wait after the loss of a Node; a NodePool that waits keeps its start.

        late: the earliest position that was filled only after the loss was stored, if any.
        """
        if self.granted - held <= self.lacks:
            return self
        waiting = [run.since for run in self.runs[:1]]
        if late is not None:
            waiting.append(late)
        if not waiting:
            return replace(self, since=now, runs=(Run(now, 1),))
        return self.with_position(min(waiting))

    def after_gain(self, held: int) -> "Wait":
        """Return the wait after a Node came back that fills no position."""
        return self.trim(max(0, self.granted - held))

    def after_leaving(
        self, held: int, since: datetime | None, now: datetime, late: datetime | None = None
    ) -> "Wait":
        """Return the wait after a Node has left.

        since: when the position began that the machine filled, if it never joined; None otherwise.
        late: as for `after_loss`.
        """
        if since is None:
            return self.after_loss(held, now, late)
        if self.granted - held <= self.lacks:
            return self
        waits = bool(self.runs) or late is not None
        start = self.since if waits and self.since is not None else since
        return replace(self, since=min(start, since)).with_position(since)

    def with_position(self, since: datetime) -> "Wait":
        """Return the wait with one position more."""
        counts = {run.since: run.nodes for run in self.runs}
        counts[since] = counts.get(since, 0) + 1
        return replace(self, runs=tuple(Run(*each) for each in sorted(counts.items())))

    def fill_position(self, since: datetime) -> "Wait":
        """Return the wait with one position less: that of this moment, or else the first."""
        if not self.has_position(since):
            since = self.runs[0].since if self.runs else since
        runs = (run._replace(nodes=run.nodes - (run.since == since)) for run in self.runs)
        return replace(self, runs=tuple(run for run in runs if run.nodes))

    def exchange_position(self, since: datetime, other: datetime) -> "Wait":
        """Return the wait with another position instead of that of `since`, where it has this."""
        if not self.has_position(since):
            return self
        return self.fill_position(since).with_position(other)

    def trim(self, lacks: int) -> "Wait":
        """Return the wait with at most `lacks` positions, the earliest."""
        if self.lacks <= lacks:
            return self
        runs: list[Run] = []
        for run in self.runs:
            if lacks > 0:
                runs.append(run._replace(nodes=min(run.nodes, lacks)))
            lacks -= run.nodes
        return replace(self, runs=tuple(runs))


NO_WAIT: Final = Wait()
