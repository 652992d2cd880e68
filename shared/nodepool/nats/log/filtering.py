"""When the server filters for a reader, and when the reader reads everything and drops the rest.

The following costs were measured with nats-server 2.15 on a log of 47,000 messages on 29,000
subjects. `make bench ARGS="--only reading"` measures them on the current machine:

- Without filters: the server takes 6 microseconds per message, and the reader some 20 microseconds
  per message that it drops. To begin takes 1 ms. The distance to the end makes no difference.
- With filters, near the end: the server takes 6 microseconds per message that matches, and almost
  nothing for other messages.
- With filters, far from the end: if more positions are left in a block of the stream than half its
  number of subjects, the server goes through all subjects of the block for each message. That takes
  0.1 to 0.4 microseconds per subject, or 0.5 to 4 ms per message with the 3,000 to 9,000 subjects
  of a full block.
- To begin with several filters takes 0.7 microseconds per subject of the whole stream: 20 ms on
  the log above, 370 ms with 500,000 subjects.
"""

BEHIND = 500
"""A reader no further than this behind the end may have filters, however many messages match.

The server then goes through at most twice as many subjects to find a message.
"""
MATCHES = 64
"""With more matches than this ahead, a reader with filters asks how far away the end is."""
POSITIONS_PER_SEARCH = 40
"""How many positions can be read without filters at the cost of finding one match."""
SUBJECTS_PER_POSITION = 40
"""For how many subjects beginning with filters costs as much as reading one position without."""


class Filtering:
    """Whether a reader has filters, and whether it should add or remove them.

    filtered: whether the reader has filters.

    A reader adds filters near the end of the stream, once dropping messages has cost as much as
    beginning with filters. So traffic cannot make it switch back and forth.
    """

    def __init__(self) -> None:
        self.filtered = False
        self._dropped = 0
        self._subjects = 0

    def begins(self, behind: int, subjects: int, filtered: bool | None = None) -> bool:
        """Return whether to begin with filters, `behind` positions before the end of the stream.

        subjects: how many subjects the stream has.
        filtered: the earlier decision; None if only the cost counts. Only a consumer with filters
            shows how many matches there are; then `keeps` decides.
        """
        self._dropped, self._subjects = 0, subjects
        is_far = behind * SUBJECTS_PER_POSITION > subjects
        self.filtered = is_far if filtered is None else filtered
        return self.filtered

    def keeps(self, behind: int, matches: int) -> bool:
        """Return whether to stay with filters; drop them if searching the matches costs more."""
        self.filtered = _is_cheap(behind, matches)
        return self.filtered

    def count_drop(self) -> None:
        """Count a message that the reader has dropped."""
        self._dropped += 1

    def asks(self, remaining: int) -> bool:
        """Return whether the reader must ask how far away the end of the stream is.

        remaining: how many matches lie before the end, or how many messages if it has no filters.
        """
        return remaining > MATCHES if self.filtered else not remaining and self._is_paid_for

    def changes(self, behind: int, subjects: int, remaining: int) -> bool:
        """Return whether the reader should give up its filters, or take them up."""
        self._subjects = subjects
        if self.filtered:
            return not _is_cheap(behind, remaining)
        return behind <= BEHIND and self._is_paid_for

    @property
    def _is_paid_for(self) -> bool:
        return self._dropped > 0 and self._dropped * SUBJECTS_PER_POSITION >= self._subjects


def _is_cheap(behind: int, matches: int) -> bool:
    """Return whether finding the matches costs the server no more than reading all messages."""
    return behind <= BEHIND or matches * POSITIONS_PER_SEARCH <= behind
