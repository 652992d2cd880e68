"""The moments that were rebuilt last, each as one organisation sees it."""

import json
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from gateway.host.past.frames import Kept
from gateway.model import Held, ReadModel
from gateway.peers import Peers
from nodepool.contract.buckets import BUCKETS

KEPT_MAX: Final = 32
"""How many moments are kept; the one that was not used for longest is forgotten first."""
BYTES_MAX: Final = 64 << 20
"""How many bytes the objects of all moments that are kept may have."""
OBJECT_BYTES: Final = 1_000
"""What an object counts besides its content."""
TIMES_MAX: Final = 1_000
"""Of how many times the position is kept."""
SETTLED: Final = timedelta(minutes=1)
"""No message is stored any more with a time that lies so far back."""
At = int | datetime


@dataclass(frozen=True, slots=True)
class Moment:
    """A position of the log, and the moment that is shown."""

    position: int
    time: datetime

    @staticmethod
    def of(frame: bytes) -> "Moment":
        """Return the moment in a frame."""
        about = json.loads(frame)
        return Moment(about["position"], datetime.fromisoformat(about["time"]))


@dataclass(slots=True)
class Rebuilt:
    """The objects of a moment. bytes: what they count."""

    model: ReadModel = field(default_factory=ReadModel)
    peers: Peers = field(default_factory=Peers)
    bytes: int = 0

    def begin(self, position: int) -> None:
        """Name the position, so that revisions of other moments mean nothing here."""
        for bucket in BUCKETS:
            self.model.begin(bucket, f"at{position}")

    def take(self, kept: Kept, time: datetime) -> None:
        """Take an object."""
        held = Held(kept.version, kept.version, kept.content, kept.group)
        self.model.take(kept.bucket, kept.owner, kept.key, held, time)
        self.bytes += len(kept.content) + OBJECT_BYTES


class Moments:
    """Keeps a bounded number of moments. now: returns the time."""

    def __init__(self, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._now = now
        self._times: OrderedDict[At, Moment] = OrderedDict()
        self._kept: OrderedDict[tuple[str, int], Rebuilt] = OrderedDict()

    def find(self, at: At) -> Moment | None:
        """Return which moment a position or a time is, if that is known."""
        return self._times.get(at)

    def note(self, at: At, moment: Moment) -> None:
        """Note which moment a position or a time is, if that cannot change any more."""
        if isinstance(at, int) or at < self._now() - SETTLED:
            self._times[at] = moment
            if len(self._times) > TIMES_MAX:
                self._times.popitem(last=False)

    def get(self, org: str, position: int) -> Rebuilt | None:
        """Return the objects of an organisation at a position, if they are kept."""
        found = self._kept.get((org, position))
        if found is not None:
            self._kept.move_to_end((org, position))
        return found

    def put(self, org: str, position: int, rebuilt: Rebuilt) -> None:
        """Keep objects; forget others if they are too many."""
        self._kept[org, position] = rebuilt
        self._kept.move_to_end((org, position))
        while len(self._kept) > KEPT_MAX or self.bytes > BYTES_MAX:
            self._kept.popitem(last=False)

    @property
    def bytes(self) -> int:
        """Return what all objects count."""
        return sum(each.bytes for each in self._kept.values())
