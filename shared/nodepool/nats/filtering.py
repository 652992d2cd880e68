"""When a reader leaves it to the server to filter, and when it reads everything and drops the rest.

What reading costs, measured with nats-server 2.15 on a log of 47,000 messages on 29,000 subjects;
`make bench ARGS="--only reading"` measures it where it runs:

- Without filters: 6 microseconds of the server for each message, and for each that is dropped some
  20 of the reader. To begin costs 1 ms. It is the same near the end and far from it.
- With filters, near the end: 6 microseconds of the server for each message that matches, and next
  to nothing for the others.
- With filters, and further from the end of a block of the stream than half as many positions as the
  block has subjects: the server goes through all of these for each message, 0.1 to 0.4 microseconds
  a subject. That is 0.5 to 4 ms a message with the 3,000 to 9,000 subjects of a full block.
- To begin with several filters costs 0.7 microseconds for each subject of the whole stream: 20 ms
  there, 370 ms with 500,000 subjects.
"""

BEHIND = 500
"""The most positions that a reader with filters may be behind the end, whatever it finds there.

The server then searches among no more than twice as many subjects for a message.
"""
MATCHES = 64
"""A reader with filters that has more matches before it learns how far the end is."""
POSITIONS_PER_SEARCH = 40
"""To search for one match costs as much as to read so many positions without filters."""
SUBJECTS_PER_POSITION = 40
"""To begin with filters costs as much for so many subjects as to read one position without."""


class Filtering:
    """Whether a reader has filters, and whether it had better change that.

    filtered: whether it has.

    It takes them up at the end of the stream, once it has dropped so many messages that beginning
    with filters would have cost no more. So traffic cannot make it change to and fro.
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

    def dropped(self) -> None:
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
