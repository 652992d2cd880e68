"""What the pages of events and of commands have in common."""

from collections.abc import Sequence


def page_of(items: Sequence[bytes], *, end: int, after: int, at_end: bool) -> bytes:
    """Return a page.

    end: the position of the newest message of the log.
    after: where the next page begins.
    at_end: whether the log has no more.
    """
    is_last = b"true" if at_end else b"false"
    page = b",".join(items)
    return b'{"position":%d,"after":%d,"atEnd":%b,"items":[%b]}' % (end, after, is_last, page)
