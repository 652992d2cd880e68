"""Rules for commits: each follows the one before it, names what it holds, and nothing is twice."""

import json
from typing import NamedTuple

from nodepool.contract.log import Entry
from support.audit.facts import Violation

SUBJECT = "np.commit."


class _Record(NamedTuple):
    """What a commit record says, see `nodepool.engine.records`."""

    position: int
    outputs: int
    follows: int


class Commits:
    """The commit records of each service, what it has stored since, and the ids of all events."""

    def __init__(self) -> None:
        self._positions: dict[str, int] = {}
        self._ids: set[str] = set()
        self._last: dict[str, int] = {}
        self._uncommitted: dict[str, int] = {}
        self._speaker = ""
        self._since = 0

    def note(self, entry: Entry, *, is_noise: bool) -> None:
        """Takes note of where an entry lies that has been checked, or is noise."""
        kind, service = entry.subject.split(".")[1:3]
        if kind == "commit":
            self._last[entry.subject] = entry.position
        if kind == "evt" and not is_noise:
            self._uncommitted.setdefault(service, entry.position)
        speaker = service if kind in ("evt", "dead") and not is_noise else ""
        if speaker != self._speaker:
            self._speaker, self._since = speaker, entry.position

    def check_record(self, entry: Entry) -> None:
        """Checks a commit record: its position, what it follows, and what lies in its batch."""
        subject, service = entry.subject, entry.subject.removeprefix(SUBJECT)
        position, last = _field(entry, "position"), self._last.get(entry.subject, 0)
        if position < self._positions.get(subject, 0):
            raise Violation(f"{subject} goes back to {position}")
        self._positions[subject] = position
        record = _Record(position, _field(entry, "outputs"), _field(entry, "follows"))
        first = entry.position - record.outputs
        uncommitted = self._uncommitted.pop(service, first)
        if record.follows != last:
            raise Violation(f"{subject} follows {record.follows}, but the last lies at {last}")
        if record.outputs and (self._speaker != service or self._since > first):
            raise Violation(f"{subject} names {record.outputs} outputs that are not before it")
        if uncommitted < first:
            raise Violation(f"{subject} does not name the output at {uncommitted}")

    def check_id(self, id: str) -> None:
        """Checks the id of an event."""
        if id in self._ids:
            raise Violation(f"the event {id} is stored twice")
        self._ids.add(id)


def _field(entry: Entry, name: str) -> int:
    try:
        return int(json.loads(entry.content)[name])
    except (ValueError, TypeError, KeyError):
        raise Violation(f"{entry.subject} holds {entry.content!r}, not a commit record") from None
