"""Rules for commits: positions never go back, and no event is stored twice."""

import json

from nodepool.contract.log import Entry
from support.audit.facts import Violation

SUBJECT = "np.commit."


class Commits:
    """The commit record of each service, and the ids of all events."""

    def __init__(self) -> None:
        self._positions: dict[str, int] = {}
        self._ids: set[str] = set()

    def check_record(self, entry: Entry) -> None:
        """Checks a commit record."""
        position = _position(entry)
        if position < self._positions.get(entry.subject, 0):
            raise Violation(f"{entry.subject} goes back to {position}")
        self._positions[entry.subject] = position

    def check_id(self, id: str) -> None:
        """Checks the id of an event."""
        if id in self._ids:
            raise Violation(f"the event {id} is stored twice")
        self._ids.add(id)


def _position(entry: Entry) -> int:
    try:
        return int(json.loads(entry.content)["position"])
    except (ValueError, TypeError, KeyError):
        raise Violation(f"{entry.subject} holds {entry.content!r}, not a commit record") from None
