"""Objects in a bucket of S3, Google Cloud Storage or Azure, through obstore."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Final

from obstore.exceptions import AlreadyExistsError
from obstore.store import from_url

from nodepool.archive.manifests import OBJECT_BYTES_MAX

END_S: Final = 0.1
"""How long the threads of obstore need at most to let go of Python, in seconds."""
CONNECT_S: Final = 5.0
RETRIES: Final = 2
"""How often obstore itself tries again; whoever waits for the store wants to know why soon."""
LISTED: Final = 1_000
"""How many names are read at a time."""


class Bucket:
    """The objects below a URL. Credentials are found as the vendor's tools find them.

    Raises errors of obstore, of Python and of Rust, as obstore does.
    """

    def __init__(self, url: str, patience_s: float) -> None:
        seconds = timedelta(seconds=patience_s)
        self._store = from_url(
            url,
            client_options={
                "timeout": seconds,
                "connect_timeout": timedelta(seconds=CONNECT_S),
                # For an endpoint that begins with http://, as of a store on the same machine.
                "allow_http": True,
            },
            retry_config={"max_retries": RETRIES, "retry_timeout": seconds},
        )

    async def get(self, name: str) -> bytes | None:
        """Return the content of an object; None if there is no such object."""
        try:
            result = await self._store.get_async(name)
        except FileNotFoundError:
            return None
        if (size := result.meta["size"]) > OBJECT_BYTES_MAX:
            raise ValueError(f"it has {size} bytes")
        return bytes(await result.bytes_async())

    async def create(self, name: str, content: bytes) -> bool:
        """Store an object; return False, and change nothing, if there is one of this name."""
        try:
            # An upload in several parts cannot be made to fail where there is an object already.
            await self._store.put_async(name, content, mode="create", use_multipart=False)
        except AlreadyExistsError:
            return False
        return True

    async def close(self) -> None:
        """Wait until the threads of obstore have let go of Python.

        One that has not, when the interpreter ends, aborts the process.
        """
        await asyncio.sleep(END_S)

    async def list(self, folder: str) -> AsyncIterator[list[tuple[str, int]]]:
        """Yield the names and sizes of the objects in a folder, and in the folders there."""
        found = self._store.list(folder, chunk_size=LISTED)
        while (chunk := await anext(found, None)) is not None:
            yield [(each["path"], each["size"]) for each in chunk]
