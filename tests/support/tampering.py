"""Makes a right log wrong, so that tests can see what an audit finds.

In every function, `name` is the name of a message, and `about` the NodePool or the machine in its
subject; without `about` it is the first message of this name, whatever it is about.
"""

import json
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import reduce
from typing import Any

from nodepool.contract.log import Entry

Log = tuple[Entry, ...]
Change = Callable[[Log], Log]


def is_of(entry: Entry, name: str, about: str) -> bool:
    """Whether an entry holds a message of this name, about this or anything."""
    return entry.subject.endswith(f".{name}") and (not about or f".{about}." in entry.subject)


def first(log: Log, name: str, about: str) -> int:
    """The index of the first such message."""
    return next(index for index, entry in enumerate(log) if is_of(entry, name, about))


def with_data(entry: Entry, data: Mapping[str, object], id: str = "") -> Entry:
    """An entry with other fields in its data, and with another id where one is given.

    Its subject names the NodePool or the machine that its data names then.
    """
    envelope: dict[str, Any] = json.loads(entry.content)
    subject = entry.subject
    for field in ("pool", "machine"):
        if field in data:
            subject = subject.replace(f".{envelope['data'][field]}.", f".{data[field]}.")
    envelope["data"] |= data
    envelope["id"] = id or envelope["id"]
    return entry._replace(subject=subject, content=json.dumps(envelope).encode())


def without(name: str, about: str = "") -> Change:
    """Leaves out all such messages."""
    return lambda log: tuple(entry for entry in log if not is_of(entry, name, about))


def changed(name: str, about: str = "", **data: object) -> Change:
    """Changes fields of the first such message."""

    def change(log: Log) -> Log:
        index = first(log, name, about)
        return (*log[:index], with_data(log[index], data), *log[index + 1 :])

    return change


def repeated(name: str, about: str = "", id: str = "repeated", **data: object) -> Change:
    """Stores the first such message again, right after it, with these fields."""

    def change(log: Log) -> Log:
        index = first(log, name, about) + 1
        return (*log[:index], with_data(log[index - 1], data, id), *log[index:])

    return change


def last_changed(name: str, about: str, **data: object) -> Change:
    """Changes fields of the last such message."""
    return lambda log: changed(name, about, **data)(log[::-1])[::-1]


def moved_before(name: str, about: str, other: str) -> Change:
    """Moves the first such message right before the first `other` about the same."""

    def change(log: Log) -> Log:
        entry = log[first(log, name, about)]
        rest = tuple(each for each in log if each != entry)
        index = first(rest, other, about)
        moved = entry._replace(position=rest[index].position)
        return (*rest[:index], moved, *rest[index:])

    return change


def caused_earlier(name: str, seconds: float, about: str = "") -> Change:
    """Stores the cause of the first such message so much earlier."""

    def change(log: Log) -> Log:
        cause = json.loads(log[first(log, name, about)].content)["causeposition"]
        earlier = timedelta(seconds=seconds)
        return tuple(
            entry._replace(time=entry.time - earlier) if entry.position == cause else entry
            for entry in log
        )

    return change


def record_changed(subject: str, **fields: object) -> Change:
    """Changes fields of the last commit record on a subject that names outputs."""

    def change(log: Log) -> Log:
        index, content = next(
            (index, json.loads(log[index].content))
            for index in reversed(range(len(log)))
            if log[index].subject == subject and json.loads(log[index].content)["outputs"]
        )
        entry = log[index]._replace(content=json.dumps(content | fields).encode())
        return (*log[:index], entry, *log[index + 1 :])

    return change


def appended(subject: str, content: bytes) -> Change:
    """Stores a message at the end."""
    return lambda log: (*log, log[-1]._replace(subject=subject, content=content))


def all_of(*changes: Change) -> Change:
    """Makes several changes."""
    return lambda log: reduce(lambda changed, change: change(changed), changes, log)
