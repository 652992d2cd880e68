"""Commits without a reply: finding out from the log what they have stored."""

import os
from dataclasses import replace
from typing import Generic

from nodepool.contract.log import Entry, LogId
from nodepool.engine.proposal import Processed, Proposal
from nodepool.nats.log.commits import MARK
from nodepool.service import I, S


class Doubts(Generic[S, I]):
    """The commits of this process that may or may not be stored.

    mark: the value in each commit record of the process that identifies the process. Without the
        mark, another replica that processes the same inputs would make an identical record.

    Of several commits that follow the same commit record, at most one is stored. All of them
    process the same inputs in the same way, and differ only in the number of inputs. So it is
    enough to keep the inputs of the largest.
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

    def resolve_commit(self, record: Entry, log: LogId, committed: int) -> Proposal[S, I] | None:
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
