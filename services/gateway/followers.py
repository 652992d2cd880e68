"""Which agents follow their cluster through a replica of the gateway; no I/O."""

from collections.abc import Mapping
from typing import Final

FORGET_S: Final = 30.0
"""After this many seconds without a question, an agent is gone; one at work asks each ten."""
Place = tuple[str, str]
"""An organisation, and a cluster of it."""


class Followers:
    """The agents that have asked lately, at most one of each cluster that has an agent."""

    def __init__(self) -> None:
        self._seen: dict[Place, tuple[str, float]] = {}

    def note(self, place: Place, release: str, now: float) -> None:
        """Note that the agent of a cluster has asked; an empty release is not an agent's."""
        if not release:
            return
        self._seen.pop(place, None)
        self._seen[place] = release, now
        # Those that have been silent for longest come first.
        while now - self._seen[oldest := next(iter(self._seen))][1] > FORGET_S:
            del self._seen[oldest]

    def at_work(self, now: float) -> Mapping[Place, str]:
        """Return the release of the agent of each cluster, and forget those that are gone."""
        seen = self._seen.items()
        self._seen = {place: each for place, each in seen if now - each[1] <= FORGET_S}
        return {place: release for place, (release, _) in self._seen.items()}
