"""Which pages and entries of a log are read if the log has more than a reading takes.

The newest entries are first in some logs and last in others, so both ends of a log are read.
"""

import re
from collections.abc import Sequence
from typing import Final

from metal.documents import Document, at

START_MAX: Final = 1_000_000_000
_SKIP: Final = re.compile(r"((?:\$|%24)skip=)([0-9]{1,9})(?![0-9])", re.ASCII | re.IGNORECASE)
_LAST_NUMBER: Final = re.compile(r"([0-9]{1,18})[^0-9/]*/?$", re.ASCII)


def both_ends(document: Document, most: int) -> Sequence[Document]:
    """Return at most so many members of a collection: its first and its last ones."""
    value = at(document, "Members")
    listed = value if isinstance(value, list) else []
    if len(listed) > most:
        first = most // 2
        listed = [*listed[:first], *listed[first - most :]]
    return [each for each in listed if isinstance(each, dict)]


def skip_to_last(page: str, first: Document, pages: int) -> str:
    """Return the path from which on so many pages lead to the end of a collection.

    page, first: the path of the second page, and the first page. The path stays as it is if the
    controller does not tell how many members there are, or does not count pages by `$skip`.
    """
    found, count = _SKIP.search(page), at(first, "Members@odata.count")
    if found is None or not isinstance(count, int):
        return page
    size = int(found[2])
    start = count - pages * size
    if not 0 < size < start <= START_MAX:
        return page
    return f"{page[: found.start(2)]}{start}{page[found.end(2) :]}"


def newest_paths(paths: Sequence[str], most: int) -> Sequence[str]:
    """Return the paths of at most so many entries with the highest numbers, in order.

    Controllers number the entries of a log; entries without a number count in the listed order.
    """
    ordered = sorted((path for path in paths if path), key=_number)
    return ordered[-most:]


def _number(path: str) -> int:
    found = _LAST_NUMBER.search(path)
    return int(found[1]) if found else 0
