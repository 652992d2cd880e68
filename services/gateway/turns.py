"""Whose turn it is: what waits is taken from one organisation after the other."""

from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class Turns(Generic[T]):
    """What waits, by organisation.

    most: how much may wait for each organisation.

    An organisation that sends more than others delays what it sends itself.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: dict[str, deque[T]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def put(self, org: str, item: T) -> bool:
        """Add what an organisation has sent; return whether there was room for it."""
        queue = self._waiting.setdefault(org, deque())
        if len(queue) >= self._most:
            return False
        queue.append(item)
        return True

    def next(self) -> T | None:
        """Remove and return the oldest of the organisation whose turn it is; None if nothing is."""
        org = next(iter(self._waiting), None)
        if org is None:
            return None
        queue = self._waiting.pop(org)
        item = queue.popleft()
        if queue:
            self._waiting[org] = queue  # Now it is the turn of all others first.
        return item
