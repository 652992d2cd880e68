"""Reads pages over HTTP, and leaves no response open, whatever its status."""

from urllib.error import HTTPError
from urllib.request import urlopen

PAGE_S = 10.0
"""The time limit for a page, in seconds."""


class PageFailure(OSError):
    """A response whose status says that the page could not be had."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text}")
        self.status, self.text = status, text


def fetch(url: str, timeout_s: float = PAGE_S) -> tuple[int, str]:
    """Return the status and the text of a response; raise OSError if no server replies."""
    try:
        with urlopen(url, timeout=timeout_s) as response:
            return response.status, response.read().decode()
    except HTTPError as failure:
        with failure:
            return failure.code, failure.read().decode()


def page(url: str, timeout_s: float = PAGE_S) -> str:
    """Return the text of a page; raise PageFailure for another status, OSError without response."""
    status, text = fetch(url, timeout_s)
    if status >= 400:
        raise PageFailure(status, text)
    return text
