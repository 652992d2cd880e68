"""A place for objects: a folder, or a bucket of S3, Google Cloud Storage or Azure.

Every call has an end. Nothing that is stored is changed or removed.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import unquote, urlsplit

from nodepool.archive.storage.errors import StoreError
from nodepool.archive.storage.folder import Folder

if TYPE_CHECKING:
    from nodepool.archive.storage.bucket import Bucket

T = TypeVar("T")
BUCKETS: Final = ("s3", "gs", "az")
"""The schemes of the URLs of buckets."""
PATIENCE_S: Final = 60.0
"""How long a call may take, in seconds; an upload has up to some ten megabytes."""
CAUSE_MAX: Final = 300
_REFUSAL: Final = re.compile(r"<Code>([^<]+)</Code>\s*<Message>([^<]+)</Message>")
"""Code and message of a refusal: https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html"""


class Store:
    """The objects below a URL: a path, `file://`, or a URL with one of BUCKETS.

    Each method raises StoreError if the store does not do it in `patience_s` seconds. Raises
    StoreError if the URL cannot be used, or the package lacks its extra `archive`.
    """

    def __init__(self, url: str, patience_s: float = PATIENCE_S) -> None:
        self.url = url
        self._patience_s = patience_s
        try:
            self._objects = _open(url, patience_s)
        except ImportError as error:
            text = f"needs the package {error.name}: pip install 'nodepool[archive]'"
            raise StoreError(f"archive {self}: {text}") from None
        except Exception as error:  # obstore has an error of its own for each store and key.
            raise StoreError(f"archive {self}: {_cause(error)}") from None

    @property
    def folder(self) -> Path | None:
        """The folder whose files are the objects; None for a bucket."""
        return self._objects.path if isinstance(self._objects, Folder) else None

    def __str__(self) -> str:
        return re.sub(r"//[^/@]*@", "//", self.url).partition("?")[0]

    async def get(self, name: str) -> bytes | None:
        """Return the content of an object; None if there is no such object."""
        return await self._call(f"read {name}", self._objects.get(name))

    async def create(self, name: str, content: bytes) -> bool:
        """Store an object; return False, and change nothing, if there is one of this name."""
        return await self._call(f"write {name}", self._objects.create(name, content))

    async def list(self, folder: str) -> AsyncIterator[tuple[str, int]]:
        """Yield the name and the size of each object in a folder, and in the folders there."""
        found = self._objects.list(folder)
        while (chunk := await self._call(f"list {folder}", anext(found, None))) is not None:
            for each in chunk:
                yield each

    async def close(self) -> None:
        """End the use of the store; a program does so before it ends."""
        await self._objects.close()

    async def _call(self, what: str, work: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(self._patience_s):
                return await work
        except TimeoutError:
            cause = f"no answer within {self._patience_s:g} s"
        except Exception as error:  # obstore raises errors of its own, of Python, and of Rust.
            cause = _cause(error)
        raise StoreError(f"archive {self}: cannot {what}: {cause}")


def _open(url: str, patience_s: float) -> "Folder | Bucket":
    parts = urlsplit(url)
    if "://" not in url:
        return Folder(Path(url).absolute())
    if parts.scheme == "file":
        return Folder(Path(unquote(parts.path)))
    if parts.scheme not in BUCKETS:
        schemes = "://, ".join(("file", *BUCKETS))
        raise ValueError(f"name a folder, or a URL that begins with {schemes}://")
    from nodepool.archive.storage.bucket import Bucket

    return Bucket(url, patience_s)


def _cause(error: Exception) -> str:
    """Return why a store refuses; else the first line of an error.

    The query of a URL is left out: it may hold a secret.
    """
    text = str(getattr(error, "strerror", None) or str(error).strip() or type(error).__name__)
    refusal = _REFUSAL.search(text)
    line = ": ".join(refusal.groups()) if refusal else text.splitlines()[0]
    return re.sub(r"\?[^\s)]*", "", line)[:CAUSE_MAX]
