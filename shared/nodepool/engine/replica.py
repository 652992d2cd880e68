"""One replica of a service: it follows the log and proposes commits, without any I/O.

Its driver is the runtime on NATS or the in-memory world. The driver passes the entries of the log
to the replica, stores its proposals, and reports the result: `confirm_proposal`, `note_conflict`,
or `undo_proposal` if the commit is refused or in doubt. If a commit was not stored, the replica
returns to the state before the commit. Inputs are processed in the order of the log, so the
committed position separates the inputs that are done from the inputs that are open.
"""

from collections import deque
from collections.abc import Callable
from datetime import datetime
from typing import Generic

from nodepool.contract.events import Wake
from nodepool.contract.log import NO_ID, Entry, LogId
from nodepool.contract.messages import Command, Envelope
from nodepool.engine import step as engine
from nodepool.engine.bounds import Size, size_of
from nodepool.engine.correlation import Correlations, correlation_of
from nodepool.engine.failures import mark_retry
from nodepool.engine.folded import Folded, due
from nodepool.engine.proposal import Input, Processed, Proposal, envelopes_of
from nodepool.engine.records import Followed, follow, outputs_by_cause
from nodepool.engine.step import Step
from nodepool.engine.waiting import WAITING_MAX, Waiting, too_many, was_too_many
from nodepool.engine.wakes import is_never_old, wake_subject
from nodepool.service import Failure, I, O, S, Service, commit_subject

BATCH_MAX = 1_000
"""The most messages, including the commit record, that the server accepts in an atomic batch."""
INPUTS_MAX = 400
"""The most inputs of one commit: enough to share the cost of an fsync, few enough to stay quick."""
QUIET_MAX = 1_000
"""The most inputs without an output that a replica processes before it commits its position."""


class Replica(Generic[S, I, O]):
    """A service and its progress in the log.

    committed: the position up to which all inputs are processed and stored.
    expected_sequence: the position of the service's last commit record.
    read_to: the position of the last entry read.
    safe: the folded value at `committed`.
    last_wake: the position of the last `Wake` for the service; 0 for none. A replica that starts
        at a snapshot does not know the position until it reads a `Wake`.
    failures: how many inputs were replayed with a recorded output that could not be folded.
    is_behind: whether a commit met a conflict, and the other commit is not read yet.
    is_chained: whether the last commit record says which record it follows. A snapshot may be taken
        only then, because a replica that starts at a snapshot trusts no other records.
    """

    def __init__(
        self,
        service: Service[S, I, O],
        folded: Folded[S] | None = None,
        committed: int = 0,
        expected_sequence: int = 0,
        *,
        log: LogId = NO_ID,
        waiting_max: int = WAITING_MAX,
    ) -> None:
        """Start at a snapshot or at the beginning of the log, whose identity is `log`.

        waiting_max: the most commands of one organisation that may wait.
        """
        self.service = service
        self.log = log
        self.is_chained = folded is not None
        self.safe = Folded(service.initial) if folded is None else folded
        self.committed = committed
        self.expected_sequence = expected_sequence
        self.read_to = committed
        self.last_wake = 0
        self.failures = 0
        self._folded = self.safe
        self._open: deque[Input[I]] = deque()
        self._waiting_max = waiting_max
        self._waiting = Waiting(waiting_max)
        self._passed = 0
        self._recorded: deque[Entry] = deque(maxlen=BATCH_MAX)
        self.is_behind = False
        self._correlations = Correlations()
        # It only decides which failures get a dead letter, so it is not part of the state.
        self._wake_failure: Failure | None = None
        self._own = f"np.evt.{service.name}."
        self._commit = commit_subject(service.name)
        self._wake = wake_subject(service.name)

    @property
    def state(self) -> S:
        """The state of the service, including proposed changes that are not stored yet."""
        return self._folded.state

    @property
    def open(self) -> int:
        """Return how many inputs are read but not processed yet."""
        return len(self._open) - self._passed

    @property
    def oldest(self) -> datetime | None:
        """When the log stored the oldest input that is not committed yet; None if there is none."""
        try:
            return self._open[0].entry.time
        except IndexError:
            return None

    @property
    def quiet(self) -> int:
        """How many inputs were processed beyond the committed position, all without an output."""
        return self._passed

    def read(self, entry: Entry) -> bool:
        """Read the next entry of the log; return True for a commit that another replica made.

        The caller must pass a service's own messages without a gap, because its commit records
        count them.
        """
        self.read_to = entry.position
        if entry.subject == self._commit:
            return self._follow_commit(entry)
        if entry.subject.startswith(self._own):
            if entry.position > self.expected_sequence:
                self._recorded.append(entry)
        elif entry.position > self.committed:
            self._open_input(entry)
        return False

    def _open_input(self, entry: Entry) -> None:
        """Open an entry if the service hears it."""
        kind = self.service.kind_at(entry.subject)
        if kind is None and not self.service.is_unknown_command(entry.subject):
            return
        if entry.subject == self._wake:
            self.last_wake = entry.position
        is_excess = self._waiting.is_excess(entry.position, entry.subject, len(entry.content))
        self._open.append(Input(entry, kind, is_excess=is_excess))

    def _follow_commit(self, record: Entry) -> bool:
        if record.position <= self.expected_sequence:
            self._waiting.record_read(record.position)
            return False
        followed = follow(
            record,
            self.log,
            committed=self.committed,
            before=self.expected_sequence,
            is_chained=self.is_chained,
        )
        if followed is not None:
            self._fold_recorded(followed)
            self._waiting.release_commands(followed.position)
        # A record that is not trusted commits nothing, but the next commit must still follow it.
        self.expected_sequence = record.position
        self._recorded.clear()
        self.undo_proposal()
        self.is_behind = False
        return followed is not None

    def _fold_recorded(self, followed: Followed) -> None:
        recorded = outputs_by_cause(self.service, self._recorded, followed.first)
        folded = self.safe
        while self._open and self._open[0].entry.position <= followed.position:
            item = self._open.popleft()
            is_skipped = followed.skipped and item.entry.position == followed.position
            outputs = recorded.get(item.entry.position, ())
            if is_skipped or was_too_many(outputs):
                continue
            self._note(item)
            context = item.context_after(self.expected_sequence)
            folded, failure = engine.replay(self.service, folded, item.message, outputs, context)
            self.failures += failure is not None
        self.committed, self.safe = followed.position, folded
        self.is_chained = followed.is_chained

    def propose(
        self,
        *,
        even_if_quiet: bool = False,
        most: int = INPUTS_MAX,
        is_old: Callable[[Entry], bool] = is_never_old,
    ) -> Proposal[S, I] | None:
        """Process as many open inputs as one commit holds; return None if that is not possible.

        A `Wake` that is too old ends the proposal, and the commit record says that the `Wake` is
        passed over. Keys that are due stay due until the next `Wake`, which is fired for them.

        even_if_quiet: whether a proposal that only moves the committed position is worth storing.
        most: the most inputs of the proposal.
        is_old: whether a `Wake` is older than `FRESH` by now.
        """
        if self.is_behind or not self._open:
            return None
        batch: list[Processed[I]] = []
        size, is_passed_over = Size(), False
        while self._passed < len(self._open) and len(batch) < most:
            item = self._open[self._passed]
            if item.entry.subject == self._wake and is_old(item.entry):
                self._passed += 1
                is_passed_over = True
                break
            item, result = self._refuse_excess(item) if item.is_excess else (item, self._step(item))
            outputs = size_of(result.outputs)
            if size.messages and not size.fits(outputs):
                break
            self._folded = result.folded
            self._passed += 1
            batch.append(self._build_processed(item, result))
            letters = batch[-1].parked is not None
            size = Size(size.messages + outputs.messages + letters, size.bytes + outputs.bytes)
        position = self._open[self._passed - 1].entry.position
        is_due = even_if_quiet or self._passed >= QUIET_MAX
        is_worth_storing = bool(size.messages) or is_passed_over or is_due
        return self._proposal(tuple(batch), position, is_worth_storing, skips=is_passed_over)

    def claim(self) -> Proposal[S, I]:
        """Return a proposal without inputs, which moves the committed position to what is read.

        Its commit record shows other replicas that this replica is at work. The replica must have
        no open or quiet inputs.
        """
        assert not self._open, "what is open or quiet has to be processed"
        return self._proposal((), self.read_to, True)

    def _proposal(
        self,
        processed: tuple[Processed[I], ...],
        position: int,
        worth_storing: bool,
        *,
        skips: bool = False,
    ) -> Proposal[S, I]:
        return Proposal(
            service=self.service.name,
            processed=processed,
            position=position,
            expected_sequence=self.expected_sequence,
            folded=self._folded,
            worth_storing=worth_storing,
            log=self.log,
            skips=skips,
        )

    def _refuse_excess(self, item: Input[I]) -> tuple[Input[I], Step[S, O]]:
        """Return an excess command with only its id read, and the outcome that it had or gets."""
        unread, command = item.read_id_only()
        address = command.address
        before = self._folded.receipts.outcome_at(address.path, address.name, command.id)
        return unread, Step(self._folded, (before or too_many(command, self._waiting_max),))

    def _step(self, item: Input[I]) -> Step[S, O]:
        self._note(item)
        context = item.context_after(self.expected_sequence)
        return engine.step(self.service, self._folded, item.message, context)

    def _build_processed(self, item: Input[I], result: Step[S, O]) -> Processed[I]:
        outputs, failure = result.outputs, result.failure
        envelopes = envelopes_of(self.service, item, outputs, self._correlations) if outputs else ()
        if isinstance(item.message, Wake):
            failure, self._wake_failure = mark_retry(failure, self._wake_failure), failure
        return Processed(item, envelopes, failure)

    def _note(self, item: Input[I]) -> None:
        envelope = item.envelope
        if self.service.reconciler is not None and isinstance(envelope, Envelope):
            self._correlations.note(envelope.data, correlation_of(envelope))

    def _note_commands(self, proposal: Proposal[S, I]) -> None:
        """Remember the trace of each command, for what follows from the command at a `Wake`."""
        for processed in proposal.processed:
            message = processed.input.message
            if isinstance(message, Command) and processed.envelopes:
                self._correlations.note_command(message, correlation_of(processed.envelopes[0]))

    def confirm_proposal(self, proposal: Proposal[S, I], position: int) -> None:
        """Note that the proposal is stored, with its commit record at `position`."""
        self._note_commands(proposal)
        while self._open and self._open[0].entry.position <= proposal.position:
            self._open.popleft()
        self.committed, self.expected_sequence = proposal.position, position
        self._waiting.note_commit(position, proposal.position)
        self.is_chained = True
        self.safe = self._folded = proposal.folded
        self._passed = 0
        self._recorded.clear()

    def note_conflict(self) -> None:
        """Undo the proposal: another replica committed first, and its commit is not read yet."""
        self.undo_proposal()
        self.is_behind = True

    def undo_proposal(self) -> None:
        """Undo the proposal; if it was stored all the same, it is read from the log."""
        self._folded = self.safe
        self._passed = 0
        self._wake_failure = None

    def due(self) -> datetime | None:
        """Return the next moment at which the service must wake; None if there is none."""
        return due(self.service, self.state)
