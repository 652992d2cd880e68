"""The errors of an archive; the text of each is one line that names the place and the remedy."""


class StoreError(Exception):
    """The store does not do what it is asked to do; trying again later may help."""


class ArchiveError(Exception):
    """The archive cannot be used as it is: it holds another log, or is damaged."""


class Damaged(ArchiveError):
    """The store does not return an object as it was stored."""
