"""Commits without a reply: what each has stored, once the log says that it holds it."""

import os
from dataclasses import replace
from typing import Generic

from nodepool.contract.log import Entry, LogId
from nodepool.engine.proposal import Processed, Proposal
from nodepool.nats.committer import MARK
from nodepool.service import I, S


class Doubts(Generic[S, I]):
    """The commits of this process of which it is not known that they are stored.

    mark: what each commit record of the process carries, so that it is known again. Another replica
        that processes the same inputs makes the same record, but for this.

    Of commits that follow the same one at most one is stored, and all of them process the same
    inputs in the same way, some fewer than others. So what is kept are the inputs of one commit.
    """

    def __init__(self) -> None:
        self.mark = os.urandom(8).hex()
        self._proposal: Proposal[S, I] | None = None
        self._processed: dict[int, Processed[I]] = {}

    def add(self, proposal: Proposal[S, I]) -> None:
        """Add a commit that may or may not be stored."""
        before = self._proposal
        if before is None or (before.log, before.expected_sequence) != (
            proposal.log,
            proposal.expected_sequence,
        ):
            self._processed = {}
        self._proposal = proposal
        self._processed |= {item.input.entry.position: item for item in proposal.processed}

    def clear(self) -> None:
        """Forget the commits in doubt: a later commit is stored, so they no longer can be."""
        if self._proposal is not None:
            self._proposal, self._processed = None, {}

    def resolved(self, record: Entry, log: LogId, committed: int) -> Proposal[S, I] | None:
        """Return what a commit record has stored of the commit in doubt; None for a foreign record.

        log: the identity of the log. committed: the position that the record names. Any record
        after the one that a commit had to follow says what has become of the commit.
        """
        proposal, processed = self._proposal, self._processed
        if proposal is None or record.position <= proposal.expected_sequence:
            return None
        self.clear()
        if log != proposal.log or record.headers.get(MARK) != self.mark:
            return None
        positions = sorted(position for position in processed if position <= committed)
        stored = tuple(processed[position] for position in positions)
        return replace(proposal, processed=stored, position=committed)
