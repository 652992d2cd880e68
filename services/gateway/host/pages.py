"""What the pages of events and of commands have in common."""

from collections.abc import Sequence
from typing import NamedTuple


class Extent(NamedTuple):
    """Where the log begins and ends: the positions of its oldest and of its newest message."""

    first: int
    end: int


def page_of(items: Sequence[bytes], log: Extent, *, start: int, after: int, at_end: bool) -> bytes:
    """Return a page.

    start: the position after which it begins; earlier messages may have been trimmed.
    after: where the next page begins.
    at_end: whether the log has no more.
    """
    is_last = b"true" if at_end else b"false"
    page, begin = b",".join(items), b'{"first":%d,"position":%d,' % log
    if start < log.first > 1:
        begin += b'"trimmed":true,'
    return begin + b'"after":%d,"atEnd":%b,"items":[%b]}' % (after, is_last, page)
