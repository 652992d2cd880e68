"""The users of an organisation, as the gateway knows them, kept for a while."""

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from console.view.organisation import Users, read_users
from nodepool.client import ClientError
from nodepool.client.asking import Reply

KEPT_S: Final = 10.0
"""For how long the users are kept, in seconds: the page is made again with every change."""


class Roster:
    """Asks for the users. fault: why they are not known; empty if they are."""

    def __init__(self, ask: Callable[[str, Mapping[str, object]], Awaitable[Reply]]) -> None:
        self._ask = ask
        self._read_at = float("-inf")
        self._users: Users | None = None
        self.fault = ""

    async def users(self) -> Users | None:
        """Return the users; None if the gateway does not tell."""
        if time.monotonic() - self._read_at >= KEPT_S:
            self._read_at = time.monotonic()
            try:
                self._users, self.fault = read_users(await self._ask("Users", {})), ""
            except ClientError as error:
                self._users, self.fault = None, str(error)
        return self._users
