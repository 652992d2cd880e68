"""How errors of an archive become errors of a client."""

from collections.abc import Iterator
from contextlib import contextmanager

from nodepool.archive.storage.errors import ArchiveError, StoreError
from nodepool.client.errors import ClientError, Refused, Unreachable


@contextmanager
def translate_archive_errors() -> Iterator[None]:
    """Turn what the store or the archive raises inside the context into errors of a client."""
    try:
        yield
    except StoreError as error:
        raise Unreachable(str(error)) from None
    except ArchiveError as error:
        raise ClientError(str(error)) from None


def refuse(what: str) -> Refused:
    """Return the error for what cannot be done with the past: a verb and its object."""
    text = f"nobody can {what} as of a past moment: only objects and events are shown of it"
    return Refused("", "Forbidden", text)
