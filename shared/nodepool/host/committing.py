"""Processing the inputs of a replica: propose, commit, and apply the result of the commit."""

import asyncio
from collections.abc import Awaitable, Callable
from time import thread_time
from typing import Generic

from nodepool.contract.events import Wake
from nodepool.contract.log import Entry
from nodepool.engine.proposal import Processed, Proposal
from nodepool.engine.replica import Replica
from nodepool.host.host import Host
from nodepool.host.leadership import Leadership
from nodepool.host.projector import Projector
from nodepool.host.timers import Timers
from nodepool.nats.log.commits import MARK
from nodepool.nats.wire.errors import Conflict, InDoubt, ServerRefusal
from nodepool.service import I, O, S

Commit = Callable[[Proposal[S, I]], Awaitable[int]]
"""Stores a proposal and returns the position of its commit record.

Raises Conflict, InDoubt or ServerRefusal.
"""
QUIET_S = 0.2
"""How long inputs without an output may wait for a commit that moves the cursor past them."""
BACK_OFF_S = 0.25
"""The pause after a commit that the server refused for a reason of its own."""


class Stale(Exception):
    """A commit met a conflict, but the log contains no other commit that explains the conflict."""


class Committing(Generic[S, I, O]):
    """Commits the open inputs of the replica when it may do so.

    `clock` is the monotonic clock, in seconds, that `leadership` uses.

    may_store: whether the log is known to be the one that the replica has read.
    """

    def __init__(
        self,
        replica: Replica[S, I, O],
        commit: Commit[S, I],
        leadership: Leadership,
        projector: Projector[S, I],
        host: Host[S, I, O],
        clock: Callable[[], float],
        timers: Timers,
    ) -> None:
        self.may_store: Callable[[], bool] = lambda: True
        self._replica = replica
        self._commit = commit
        self._leadership = leadership
        self._projector = projector
        self._telemetry = host.telemetry
        self._doubts = host.doubts
        self._on_stored = host.on_stored
        self._snapshots = host.snapshots
        self._clock = clock
        self._timers = timers
        self._size = host.size
        self._quiet_since = 0.0
        self._processed = 0
        self._in_flight = False
        self._fault = ""

    @property
    def fault(self) -> str:
        """Return why the last commit was not stored, as one line; empty if it was."""
        return self._fault

    @property
    def in_flight(self) -> bool:
        """Return whether a commit is in flight."""
        return self._in_flight

    def handle_unknown_commit(self, record: Entry, now: float, *, caught_up: bool) -> None:
        """Handle an unknown commit that the replica has read; restart the wait for quiet inputs.

        If another replica made the commit, work that has failed here is left to that replica. If
        it is an own commit that was in doubt, its inputs are counted now. While this replica is
        not `caught_up`, the commit is history.
        """
        replica = self._replica
        self._quiet_since, self._fault = now, ""
        self._timers.note_success()
        own = self._doubts.resolve_commit(record, replica.log, replica.committed)
        if own is not None:
            self._telemetry.log.info("commit in doubt was stored", committed=own.position)
            self._note_stored(self._telemetry.trace_proposal(own))
        if own is not None and caught_up:
            self._lead()
        else:
            leader = record.headers.get(MARK, "")
            self._leadership.note_foreign_commit(now, caught_up=caught_up, leader=leader)
            self._projector.suspend()

    def seconds_left(self, now: float) -> float | None:
        """Return the seconds until a commit may be due, unless a message arrives first."""
        replica, leadership = self._replica, self._leadership
        waits = []
        if replica.quiet:
            waits.append(self._quiet_since + QUIET_S - now)
        if leadership.following and (replica.open or replica.quiet):
            waits.append(leadership.takeover_at - now)
        return min(waits, default=None)

    async def run(self) -> int:
        """Process and commit the open inputs; return how many inputs were processed.

        Returns early if a commit was not stored. After a conflict the next message read decides.
        After a refusal (a full disk, a limit of the account, a sealed stream) it pauses BACK_OFF_S,
        and the next turn of `ReplicaSession` tries one input, however often. One input is never
        refused for its size: an output over a megabyte has failed it (`engine.bounds.Unstorable`),
        and its outputs are bounded. A replica that has nothing to process, and has met no other for
        a while, makes an empty commit. Raises Stale.
        """
        replica, leadership = self._replica, self._leadership
        before, now = self._processed, self._clock()
        if replica.is_behind:
            if leadership.is_stale(now):
                raise Stale("a commit met a conflict, and the commit before it is not in the log")
            return 0
        if not leadership.may_commit(now):
            return 0
        while replica.open and self.may_store():
            if not await self._commit_batch(even_if_quiet=leadership.following):
                return self._processed - before
        if replica.open:
            return self._processed - before
        if replica.quiet and self._clock() >= self._quiet_since + QUIET_S:
            await self._commit_batch(even_if_quiet=True)
        if leadership.claim_is_due(self._clock()):
            await self.claim()
        return self._processed - before

    async def claim(self) -> None:
        """Make an empty commit if the replica is idle, does not follow, and may store."""
        replica = self._replica
        idle = not (replica.open or replica.quiet or replica.is_behind)
        if idle and not self._leadership.following and self.may_store():
            await self._store(replica.claim())

    async def finish(self) -> None:
        """Commit inputs without an output, so that no replica processes them again."""
        if self._replica.quiet and not self._leadership.following:
            await self._commit_batch(even_if_quiet=True)

    async def _commit_batch(self, *, even_if_quiet: bool) -> bool:
        """Process a batch of open inputs; return False if the batch must be tried again later."""
        was_quiet, most = self._replica.quiet, self._size.most
        even_if_quiet = even_if_quiet or self._replica.open > most
        self._telemetry.begin(self._replica.log)
        began = thread_time()
        proposal = self._replica.propose(
            even_if_quiet=even_if_quiet, most=most, is_old=self._is_old
        )
        self._snapshots.note_work(thread_time() - began)
        if proposal is None:
            return False
        self._size.grow()
        if proposal.worth_storing:
            return await self._store(proposal)
        if not was_quiet:
            self._quiet_since = self._clock()
        self._note_processed(proposal, "quiet")
        return True

    def _is_old(self, wake: Entry) -> bool:
        return self._timers.is_old(wake.position, self._clock())

    async def _store(self, plain: Proposal[S, I]) -> bool:
        proposal = self._telemetry.trace_proposal(plain)
        began, self._in_flight = self._clock(), True
        try:
            position = await self._commit(proposal)
        except Conflict:
            result = "conflict"
            self._after_conflict()
        except InDoubt as error:
            result = "in_doubt"
            self._doubts.add(plain)
            self._after_doubt(error)
        except ServerRefusal as refusal:
            result = "failed"
            await self._after_refusal(refusal)
        else:
            result = "stored"
            self._after_commit(proposal, position)
        finally:
            self._in_flight = False
        self._telemetry.count_commit(proposal, self._clock() - began, result)
        return result == "stored"

    def _after_commit(self, proposal: Proposal[S, I], position: int) -> None:
        self._fault = ""
        self._doubts.clear()
        self._replica.confirm_proposal(proposal, position)
        self._lead()
        self._note_stored(proposal)

    def _lead(self) -> None:
        if self._leadership.note_own_commit():
            self._projector.invalidate()

    def _after_conflict(self) -> None:
        self._fault = ""
        self._replica.note_conflict()
        self._leadership.note_conflict(self._clock())
        self._projector.suspend()

    def _after_doubt(self, error: InDoubt) -> None:
        self._fault = f"a commit is in doubt: {error}"
        self._replica.undo_proposal()
        # The server may have lost writes of the read model for the same reason as the reply.
        self._projector.invalidate()
        self._telemetry.log.warning("commit in doubt", cause=str(error))

    async def _after_refusal(self, refusal: ServerRefusal) -> None:
        self._fault = f"a commit is refused: {refusal}"
        self._replica.undo_proposal()
        self._size.note_refusal()
        self._telemetry.log.error("commit failed", cause=str(refusal))
        await asyncio.sleep(BACK_OFF_S)

    def _note_stored(self, proposal: Proposal[S, I]) -> None:
        self._note_processed(proposal, "stored")
        for hear in self._on_stored:
            hear(proposal)

    def _note_processed(self, proposal: Proposal[S, I], outcome: str) -> None:
        self._processed += len(proposal.processed)
        for item in proposal.processed:
            if isinstance(item.input.message, Wake):
                self._note_wake(item)
        self._projector.update(self._replica.state, proposal)
        self._telemetry.count_processed(proposal.processed, outcome)

    def _note_wake(self, item: Processed[I]) -> None:
        due = self._replica.due()
        if item.failure is not None and due is not None and due <= item.input.entry.time:
            self._timers.note_failure(self._clock(), f"what is due fails: {item.failure.cause}")
        else:
            self._timers.note_success()
