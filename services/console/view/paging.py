"""Pages of a long list: which rows a page has."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

PAGES_MAX: Final = 10_000
ROWS_MAX: Final = 100
"""The most rows of one page of a list, which a browser lays out before it shows any of them."""
FILTER_MAX: Final = 200
"""The most characters of a filter."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The rows from `start` up to `end`, counted from 0: `page` of `pages`, of `count` rows."""

    start: int
    end: int
    page: int
    pages: int
    count: int


def read_page(query: Mapping[str, str]) -> int:
    """Return the page that an address asks for; the first one is 1."""
    text = query.get("page", "")
    is_number = text.isascii() and text.isdecimal() and len(text) <= len(str(PAGES_MAX))
    return max(1, int(text)) if is_number else 1


def read_filter(query: Mapping[str, str]) -> str:
    """Return the words that rows must have."""
    return query.get("q", "").strip()[:FILTER_MAX]


def cut(count: int, page: int) -> Cut:
    """Return a page of a list with `count` rows; the last page if there are fewer."""
    pages = max(1, -(-count // ROWS_MAX))
    page = min(page, pages)
    return Cut((page - 1) * ROWS_MAX, min(page * ROWS_MAX, count), page, pages, count)


def has_words(asked: str, words: tuple[str, ...]) -> bool:
    """Return whether each part of a filter is in the words of a row."""
    whole = " ".join(words).lower()
    return all(part in whole for part in asked.lower().split())
