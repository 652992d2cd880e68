"""Limit what each organisation may send per second, and store per hour."""

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from nodepool.state.bucket import Bucket

ORGS_MAX: Final = 10_000
"""How many organisations are remembered; the least recently active is forgotten first."""
HOUR_S: Final = 3_600.0
SLOTS: Final = 60
"""Into how many parts the hour is divided, each of which is counted as a whole."""

T = TypeVar("T")


SHOWN_MAX: Final = 1_000
"""How many organisations the statistics of the service show."""


class Recent(OrderedDict[str, T], Generic[T]):
    """Values by organisation, of which the least recently used are forgotten."""

    def use(self, org: str, value: T) -> None:
        """Store the value of an organisation as the most recently used."""
        self[org] = value
        self.move_to_end(org)
        if len(self) > ORGS_MAX:
            self.popitem(last=False)


class Rate:
    """A token bucket per organisation.

    per_second: how many tokens an organisation gets per second.
    burst: the most tokens that an organisation can have.
    """

    def __init__(self, per_second: float, burst: float) -> None:
        self.per_second, self.burst = per_second, burst
        self._buckets: Recent[Bucket] = Recent()

    def take(self, org: str, now: float, tokens: float = 1.0) -> float:
        """Take tokens; return 0, or in how many seconds there are enough, and take none.

        now: seconds of any monotonic clock.
        """
        return self._bucket(org, now).take(now, tokens)

    def owe(self, org: str, now: float, tokens: float) -> None:
        """Take tokens that an organisation need not have: it gets new ones once that is paid."""
        self._bucket(org, now).owe(now, tokens)

    def _bucket(self, org: str, now: float) -> Bucket:
        bucket = self._buckets.get(org) or Bucket(self.per_second, self.burst, now)
        self._buckets.use(org, bucket)
        return bucket


@dataclass(slots=True)
class _Hour:
    """The bytes of the last hour: by slot, oldest first, and their sum."""

    slots: deque[tuple[int, int]] = field(default_factory=deque)
    sum: int = 0


class Storage:
    """How many bytes each organisation may have stored within any hour."""

    def __init__(self, per_hour: int) -> None:
        self.per_hour = per_hour
        self._hours: Recent[_Hour] = Recent()

    def take(self, org: str, now: float, size: int) -> float:
        """Count bytes; return 0, or in how many seconds they fit, and count none.

        A message that is larger than the whole budget never fits; it waits for an hour.
        """
        hour = self._hours.get(org) or _Hour()
        slot = int(now * SLOTS / HOUR_S)
        while hour.slots and hour.slots[0][0] <= slot - SLOTS:
            hour.sum -= hour.slots.popleft()[1]
        self._hours.use(org, hour)
        if hour.sum + size > self.per_hour:
            return self._wait_s(hour, now, size)
        last = hour.slots.pop()[1] if hour.slots and hour.slots[-1][0] == slot else 0
        hour.slots.append((slot, last + size))
        hour.sum += size
        return 0.0

    def note(self, org: str, now: float, at: float, size: int) -> None:
        """Count bytes that were stored at an earlier moment, also if they exceed the budget."""
        hour, slot = self._hours.get(org) or _Hour(), int(at * SLOTS / HOUR_S)
        if slot <= int(now * SLOTS / HOUR_S) - SLOTS:
            return
        sizes = dict(hour.slots)
        sizes[slot] = sizes.get(slot, 0) + size
        hour.slots = deque(sorted(sizes.items()))
        hour.sum += size
        self._hours.use(org, hour)

    def used(self, now: float) -> dict[str, int]:
        """Return how many bytes each organisation has stored within the last hour.

        Another thread may call this while messages are counted.
        """
        first = int(now * SLOTS / HOUR_S) - SLOTS + 1
        hours = [(org, tuple(hour.slots)) for org, hour in tuple(self._hours.items())]
        return {org: sum(size for slot, size in slots if slot >= first) for org, slots in hours}

    def largest(self, now: float) -> dict[str, object]:
        """Return the budget, and the bytes of the organisations that have stored most."""
        used = sorted(self.used(now).items(), key=lambda each: -each[1])
        return {"bytesPerHour": self.per_hour, "storedBytes": dict(used[:SHOWN_MAX])}

    def _wait_s(self, hour: _Hour, now: float, size: int) -> float:
        free = self.per_hour - hour.sum
        for slot, used in hour.slots:
            free += used
            if free >= size:
                return (slot + SLOTS) * HOUR_S / SLOTS - now
        return HOUR_S
