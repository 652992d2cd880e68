"""The revisions of the answers of the gateway, whose replicas may show different states; pure."""

from typing import Final, NamedTuple


class Revisions(NamedTuple):
    """The revisions of the pages of a list, which replicas at different states may have answered.

    oldest: from where to watch, so that no change is missed that one of the pages lacks.
    newest: a reader of the pages has seen a part of this state.
    """

    oldest: str = ""
    newest: str = ""

    def include(self, revision: str) -> "Revisions":
        """Return the revisions with that of one more page.

        The revision of another epoch cannot be compared. A watch from a list with both expires.
        """
        if not self.oldest:
            return Revisions(revision, revision)
        if revision.rpartition("-")[0] != self.oldest.rpartition("-")[0]:
            return EXPIRED
        return Revisions(
            min(self.oldest, revision, key=position_in), max(self.newest, revision, key=position_in)
        )


EXPIRED: Final = Revisions("expired-0", "expired-0")
"""The revisions of a list that has to be read again: of an epoch that no bucket has."""


def position_in(revision: str) -> int:
    """Return the position in the stream of a bucket that a revision names; 0 if it names none."""
    number = revision.rpartition("-")[2]
    return int(number) if number.isdecimal() else 0
