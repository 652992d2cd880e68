"""For how long Nodes were used, idle, lost or not billable, from the JSON of all messages at once.

Each Node is looked at by itself, from its assignment to its end, interval by interval. It shares no
code with the product but names.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from nodepool.contract.log import Entry
from nodepool.contract.node_failures import CORDON_CAUSES, PROBLEMS

Group = tuple[str, str, str, str, str]
"""Organisation, cluster, NodePool, instance type and compute class."""
Counted = Mapping[tuple[Group, str, str], int]
"""Microseconds by group, use, and the cause if they are lost."""
SAYS = {
    "allocator": {"CWNodeAssigned"},
    "lifecycle": {
        "CWNodeRegistered",
        "NodeUpdated",
        "NodeActivityChanged",
        "NodeReservationChanged",
        "CWNodeCordoned",
        "CWNodeUncordoned",
        "CWDrainNode",
        "CWNodeDeleted",
        "CWNodeRegistrationFailed",
    },
}
ENDS = ("CWNodeDeleted", "CWNodeRegistrationFailed")

Event = tuple[datetime, str, dict[str, Any]]


def count_usage(entries: Sequence[Entry], since: datetime, until: datetime) -> Counted:
    """What the time from `since` up to `until` was used for."""
    lives = defaultdict[tuple[str, str, str, int], list[Event]](list)
    for entry in entries:
        if entry.time < until:
            for name, data in _said(entry):
                key = data["org"], data["cluster"], data["node"], data["assignment"]
                lives[key].append((entry.time, name, data))
    counted = defaultdict[tuple[Group, str, str], int](int)
    for life in lives.values():
        for group, use, cause, began, ended in _intervals(life, until):
            overlap = min(ended, until) - max(began, since)
            if overlap > timedelta(0):
                counted[group, use, cause] += overlap // timedelta(microseconds=1)
    return dict(counted)


def _said(entry: Entry) -> Iterator[tuple[str, dict[str, Any]]]:
    parts = entry.subject.split(".")
    if parts[1] == "evt" and parts[-1] in SAYS.get(parts[2], ()):
        with suppress(ValueError):  # Anybody may have said what cannot be read.
            found = json.loads(entry.content)
            data = found.get("data") if isinstance(found, dict) else None
            # The subject is the only authority.
            path = [part.replace("~", ".") for part in parts[3:6]]
            if data and [data.get(field) for field in ("org", "cluster", "pool")] == path:
                yield parts[-1], data


def _intervals(
    life: Sequence[Event], until: datetime
) -> Iterator[tuple[Group, str, str, datetime, datetime]]:
    """The intervals between two events of a Node, each with its use and the cause of a loss."""
    _, name, data = life[0]
    if name != "CWNodeAssigned":
        return  # There is no such Node.
    group = (
        *(data["org"], data["cluster"], data["pool"]),
        *(data["instanceType"], data["computeClass"]),
    )
    first_cause = ""
    for number in range(1, len(life) + 1):
        past, began = life[:number], life[number - 1][0]
        if past[-1][1] in ENDS:
            return
        ended = life[number][0] if number < len(life) else until
        if any(name == "CWNodeRegistered" for _, name, _ in past):
            cause = _cause(past)
            first_cause = (first_cause or cause) if cause else ""
        yield group, *_use(past, first_cause), began, ended


def _last(past: Sequence[Event], field: str, *names: str) -> Any:
    """The newest value of a field in one of these messages; None if there is none."""
    return next(
        (data.get(field) for _, name, data in reversed(past) if name in names),
        None,
    )


def _phase(past: Sequence[Event]) -> str:
    for _, name, data in reversed(past):
        if name == "CWDrainNode":
            return "draining"
        if name in ("NodeUpdated", "CWNodeRegistered"):
            return str(data.get("phase", "production"))
    return "booting"


def _cause(past: Sequence[Event]) -> str:
    own = ("CWNodeCordoned", "CWNodeUncordoned")
    cordons = [(name, data) for _, name, data in past if name in own]
    if cordons and cordons[-1][0] == "CWNodeCordoned":
        first = cordons[-1][1]["cause"].split(",")[0].split(" ")[0]
        return first if first in PROBLEMS or first in CORDON_CAUSES else "Other"
    if _last(past, "removal", "NodeUpdated") == "Preempted":
        return "Preempted"
    return {"rebooting": "AdminReboot", "verifying": "Verification"}.get(_phase(past), "")


def _use(past: Sequence[Event], cause: str) -> tuple[str, str]:
    names = [name for _, name, _ in past]
    if "CWNodeRegistered" not in names:
        return "joining", ""
    if _last(past, "usable", "NodeReservationChanged") is False:
        return "reserved", ""
    if _last(past, "active", "NodeActivityChanged") and _phase(past) != "rebooting":
        return "used", ""
    return ("lost", cause) if cause else ("idle", "")
