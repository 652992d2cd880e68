"""What did both sides of a NodePool last agree on, and what has each side changed since?

A NodePool has two writers: people in the cluster and commands on the bus. Its object carries the
last agreed state, so a three-way comparison tells which side has made a new change.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from agent.pools.objects import Log, PoolObject, WantedPool, fields_of
from agent.reading import digest, version_number

AGREED: Final = "compute.coreweave.com/agreed"
"""The annotation of a NodePool object that holds the last agreed state, as JSON."""

Fields = Mapping[str, str]
"""The digest of each non-empty field, by the name of the field."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """The last state of a NodePool in which both sides were equal.

    log: the identity of the log of the bus.
    object: the uid of the object; empty if the agent creates the object and does not know its uid.
    uid, of, version: the uid, the generation and the `resourceVersion` of the NodePool on the bus.
    generation: the generation of the object.
    fields: the digests of its fields.
    """

    log: str
    object: str
    uid: str
    of: int
    version: int
    generation: int
    fields: Fields

    def text(self) -> str:
        """Return the agreement as JSON text for its annotation."""
        return json.dumps(
            {
                "log": self.log,
                "object": self.object,
                "uid": self.uid,
                "of": self.of,
                "version": self.version,
                "generation": self.generation,
                "fields": dict(self.fields),
            },
            separators=(",", ":"),
        )


@dataclass(frozen=True, slots=True)
class Differences:
    """The fields that differ, by the side that has changed them since the agreement."""

    bus: frozenset[str]
    cluster: frozenset[str]
    both: frozenset[str]


def agreement_of(found: PoolObject) -> Agreement | None:
    """Return the agreement that an object carries; None if the object has no agreement of its own.

    An agreement that was copied from another object with its manifest is not its own.
    """
    try:
        value = json.loads(found.annotations.get(AGREED, found.agreed))
    except (ValueError, RecursionError):
        return None
    agreement = _read(value)
    if agreement is None or agreement.object not in ("", found.uid):
        return None
    return agreement


def agreed_position(found: PoolObject | None, log: Log) -> int | None:
    """Return the position in this log of the agreement of an object; None without one."""
    agreement = None if found is None else agreement_of(found)
    return agreement.version if agreement is not None and agreement.log == log.id else None


def _read(value: object) -> Agreement | None:
    if not isinstance(value, dict) or not isinstance(value.get("fields"), dict):
        return None
    texts = [value.get(name) for name in ("log", "object", "uid")]
    numbers = [value.get(name) for name in ("of", "version", "generation")]
    fields = value["fields"].items()
    if not all(isinstance(text, str) for text in texts):
        return None
    if not all(type(number) is int for number in numbers):
        return None
    if not all(isinstance(digest, str) for _, digest in fields):
        return None
    log, item, uid = map(str, texts)
    of, version, generation = (int(str(number)) for number in numbers)
    return Agreement(log, item, uid, of, version, generation, dict(fields))


def agreed(wanted: WantedPool, found: PoolObject | None, log: Log) -> Agreement:
    """Return the agreement on what the bus says; without an object, for the object to create."""
    return Agreement(
        log=log.id,
        object=found.uid if found is not None else "",
        uid=wanted.uid,
        of=wanted.generation,
        version=version_number(wanted.version),
        generation=found.generation if found is not None else 1,
        fields=digests(fields_of(wanted.spec, wanted.labels)),
    )


def digests(fields: Mapping[str, object]) -> dict[str, str]:
    """Return the digest of each field."""
    return {name: digest(value) for name, value in fields.items()}


def differences(base: Fields | None, wanted: Fields, found: Fields) -> Differences:
    """Return the fields that differ, by who changed them since `base`; both sides if it is None."""
    bus, cluster, both = set(), set(), set()
    for name in wanted.keys() | found.keys():
        value, other = wanted.get(name), found.get(name)
        if value == other:
            continue
        if base is not None and other == base.get(name):
            bus.add(name)
        elif base is not None and value == base.get(name):
            cluster.add(name)
        else:
            both.add(name)
    return Differences(frozenset(bus), frozenset(cluster), frozenset(both))


def merge_patch(before: Mapping[str, object], after: Mapping[str, object]) -> dict[str, object]:
    """Return the JSON merge patch (RFC 7386) that turns `before` into `after`."""
    patch: dict[str, object] = {name: None for name in before if name not in after}
    for name, value in after.items():
        old = before.get(name)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            if inner := merge_patch(old, value):
                patch[name] = inner
        elif old != value or type(old) is not type(value):
            patch[name] = value
    return patch


def taken(
    raw: Mapping[str, object], other: Mapping[str, object], names: Iterable[str]
) -> dict[str, object]:
    """Return the fields of `raw`, with the named fields taken from `other`."""
    result = dict(raw)
    for name in names:
        result.pop(name, None)
        if name in other:
            result[name] = other[name]
    return result
