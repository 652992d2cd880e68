"""The record of what the control plane has set on a Node object, kept in its annotation."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.nodes.objects import NodeObject
from nodepool.contract.log import LogId
from nodepool.contract.well_known import MANAGED


@dataclass(frozen=True, slots=True)
class Managed:
    """What the control plane has set on a Node object.

    log: the log from which the control plane took these values.
    assignment: the number of the machine's stay; 0 if it cannot be read any more.
    version: a position in that log at which the Node was in this stay; 0 if it is not known.
    labels, annotations: the keys that the control plane has set.
    taints: the taints that the control plane has set, each as `key:effect`.
    unschedulable: the value that the control plane set last; None if it has set no value yet.
    asked: the value that a person set instead, while the bus is asked for it; None otherwise.
    cordon, lock: the numbers of the cordon and of the lock that the Node has received.
    conditions: the problems on which the Node and the bus last agreed: their status by type.
    """

    log: LogId
    assignment: int = 0
    version: int = 0
    labels: tuple[str, ...] = ()
    annotations: tuple[str, ...] = ()
    taints: tuple[str, ...] = ()
    unschedulable: bool | None = None
    asked: bool | None = None
    cordon: int = 0
    lock: int = 0
    conditions: Mapping[str, str] = field(default_factory=dict)

    def text(self) -> str:
        """Return the annotation text: compact JSON without empty values."""
        names = self.__dataclass_fields__
        found = {name: getattr(self, name) for name in names}
        kept = {name: value for name, value in found.items() if value or value is False}
        return json.dumps(kept, separators=(",", ":"), sort_keys=True)


def read_record(found: NodeObject) -> Managed | None:
    """Return what the control plane has made of a Node; None if it does not manage the Node.

    A part that cannot be read, because somebody has changed it, counts as missing.
    """
    written = found.annotations.get(MANAGED)
    if written is None:
        return None
    try:
        document = json.loads(written)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        return Managed(LogId(""))
    conditions = document.get("conditions")
    log = document.get("log")
    return Managed(
        log=LogId(log if isinstance(log, str) else ""),
        assignment=_number(document, "assignment"),
        version=_number(document, "version"),
        labels=_names(document, "labels"),
        annotations=_names(document, "annotations"),
        taints=_names(document, "taints"),
        unschedulable=_truth(document, "unschedulable"),
        asked=_truth(document, "asked"),
        cordon=_number(document, "cordon"),
        lock=_number(document, "lock"),
        conditions={
            key: value
            for key, value in (conditions if isinstance(conditions, dict) else {}).items()
            if isinstance(value, str)
        },
    )


def _number(document: Mapping[str, object], name: str) -> int:
    value = document.get(name)
    return value if type(value) is int and value > 0 else 0


def _truth(document: Mapping[str, object], name: str) -> bool | None:
    value = document.get(name)
    return value if isinstance(value, bool) else None


def _names(document: Mapping[str, object], name: str) -> tuple[str, ...]:
    value = document.get(name)
    return tuple(each for each in value if isinstance(each, str)) if isinstance(value, list) else ()
