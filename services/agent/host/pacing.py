"""Limits how often evictions, Events and reports of Pods are repeated; pure."""

from typing import Final

from agent.host.keys import Key

REFUSED_S: Final = 5.0
"""The pause before retrying the eviction of a Pod that a PodDisruptionBudget protects."""
TAKEN_S: Final = 30.0
"""The pause before evicting a Pod again after its eviction was accepted."""
REPORT_S: Final = 2.0
"""The pause between two reports of a Node if only its Pods have changed, and between two
comparisons of the waiting Pods."""
EVENT_S: Final = 3_600.0
"""For how long the API server keeps an Event by default (`--event-ttl`). If the cause of an Event
still exists after that, the Event is recorded again."""
NODES_MAX: Final = 20_000
PODS_MAX: Final = 20_000
EVENTS_MAX: Final = 4_096
"""How many Nodes, Pods and Events are remembered; beyond each limit, the oldest are forgotten."""


class Pacing:
    """The recent requests; every `now` is in seconds of one monotonic clock."""

    def __init__(self) -> None:
        self._evicted: dict[str, tuple[float, str]] = {}
        self._reports: dict[Key, float] = {}
        self._recorded: dict[str, float] = {}

    def may_evict(self, uid: str, now: float) -> bool:
        """Whether a Pod may be evicted again."""
        return now >= self.evict_at(uid)

    def evict_at(self, uid: str) -> float:
        """Return when a Pod may be evicted again."""
        return self._evicted.get(uid, (float("-inf"), ""))[0]

    def refused(self, uid: str) -> str:
        """Why the last eviction of a Pod was refused; empty where it was not."""
        return self._evicted.get(uid, (0.0, ""))[1]

    def evicted(self, uid: str, now: float, refusal: str = "") -> None:
        """Note that a Pod was evicted, or that its eviction was refused."""
        self._evicted.pop(uid, None)
        self._evicted[uid] = (now + (REFUSED_S if refusal else TAKEN_S), refusal)
        if len(self._evicted) > PODS_MAX:
            del self._evicted[next(iter(self._evicted))]

    def forget(self, uid: str) -> None:
        """Forget a Pod that is gone."""
        self._evicted.pop(uid, None)

    def may_report(self, key: Key, now: float) -> bool:
        """Whether a Node may be reported again for its Pods alone, or what waits looked at."""
        return now >= self.report_at(key)

    def report_at(self, key: Key) -> float:
        """Return when a Node may be reported again, or the waiting Pods compared."""
        return self._reports.get(key, float("-inf"))

    def reported(self, key: Key, now: float) -> None:
        """Note that a Node was reported, or that the waiting Pods were compared."""
        self._reports.pop(key, None)
        self._reports[key] = now + REPORT_S
        if len(self._reports) > NODES_MAX:
            del self._reports[next(iter(self._reports))]

    def is_recorded(self, name: str, now: float) -> bool:
        """Whether the Event of this name was recorded, and is still there."""
        return now < self._recorded.get(name, float("-inf"))

    def recorded(self, name: str, now: float) -> None:
        """Note that the Event of this name was recorded."""
        self._recorded.pop(name, None)
        self._recorded[name] = now + EVENT_S
        if len(self._recorded) > EVENTS_MAX:
            del self._recorded[next(iter(self._recorded))]
