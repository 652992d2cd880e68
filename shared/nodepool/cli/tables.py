"""The columns that `get` prints for each type of object."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from nodepool.cli.event_table import ACTOR, last_seen
from nodepool.cli.layout import Heading, Table
from nodepool.cli.names import (
    CAPACITY,
    CLUSTER,
    EVENT,
    INSTANCE_TYPE,
    MACHINE,
    NODE,
    NODEPOOL,
    POD,
    PREEMPTION,
    QUOTA,
    ZONE,
    Kind,
)
from nodepool.cli.preemption_table import after, lateness
from nodepool.cli.terminal import RED, YELLOW, colour_text, screen
from nodepool.cli.times import age
from nodepool.contract.columns import NODEPOOL_COLUMNS
from nodepool.contract.conditions import LOOKS, Capacity, Look, Quota, Validated
from nodepool.contract.documents import Document, condition, field, items, label
from nodepool.contract.documents import text as text_at

ABSENT = "-"
TERMINATING = "Terminating"
"""The status that kubectl prints for an object that is being deleted."""
POOL_LABEL = "compute.coreweave.com/node-pool"
TYPE_LABEL = "node.kubernetes.io/instance-type"
ZONE_LABEL = "topology.kubernetes.io/zone"

Cell = Callable[[Document], str]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    cell: returns the text of a cell from an object.
    wide: whether the column is printed only with `-o wide`.
    usual: the usual text of a cell; see `Heading`.
    rare: whether the column is printed only with `-o wide`, and only if an object has a value.
    is_date: whether the text is a moment, which is printed as its age.
    """

    title: str
    cell: Cell
    wide: bool = False
    usual: str = ""
    rare: bool = False
    is_date: bool = False


def _at(*path: str) -> Cell:
    return lambda document: text_at(document, *path)


def _flag(*path: str) -> Cell:
    return lambda document: str(field(document, *path)).lower()


def _condition(kind: str, name: str) -> Cell:
    return lambda document: condition(document, kind, name)


def _verdict(kind: str, deleting: str) -> Cell:
    """Return a cell with the reason of a condition.

    The cell shows `deleting` for a NodePool that is being deleted, because it is no longer checked.
    """
    return lambda document: (
        deleting if is_deleting(document) else condition(document, kind, "reason")
    )


def _label(key: str) -> Cell:
    return lambda document: label(document, key)


def _build_list_cell(*path: str) -> Cell:
    return lambda document: ",".join(map(str, items(document, *path)))


def is_deleting(document: Document) -> bool:
    """Return whether an object is being deleted."""
    return field(document, "metadata", "deletionTimestamp") is not None


def _target(document: Document) -> str:
    from nodepool.explanation.documents import target_of

    in_racks = field(document, "spec", "targetRacks") is not None
    return str(target_of(document)) if in_racks else text_at(document, "spec", "targetNodes")


def _node_status(document: Document) -> str:
    is_up = condition(document, "Ready", "status") in ("", "True")
    is_up = is_up and field(document, "status", "phase") != "rebooting"
    ready = is_up and condition(document, "CWRegistered", "status") == "True"
    cordoned = field(document, "spec", "unschedulable") is True
    return ("Ready" if ready else "NotReady") + (",SchedulingDisabled" if cordoned else "")


def _node_removal(document: Document) -> str:
    is_leaving = condition(document, "CWNodeRemoval", "status") == "True"
    return condition(document, "CWNodeRemoval", "reason") if is_leaving else ""


def _quota_left(document: Document) -> str:
    limit, used = field(document, "limit"), field(document, "used")
    if not isinstance(limit, int) or not isinstance(used, int):
        return ""
    return str(max(limit - used, 0))


def _event_object(document: Document) -> str:
    regarded = field(document, "involvedObject")
    return f"{text_at(regarded, 'kind')}/{text_at(regarded, 'name')}"


LAST_SEEN = "LAST SEEN"
_NAME = Column("NAME", _at("metadata", "name"))
_AGE = Column("AGE", _at("metadata", "creationTimestamp"), is_date=True)
_ZONE = Column("ZONE", _at("zone"))
_TYPE = Column("INSTANCE TYPE", _at("instanceType"))

_OWN_CELLS: Mapping[str, Cell] = {
    "Target": _target,
    "Validated": _verdict("Validated", TERMINATING),
    "Capacity": _verdict("Capacity", ""),
    "Quota": _verdict("Quota", ""),
}
"""The cells that show more than the field of their column, by the name of the column."""
_USUAL: Mapping[str, str] = {
    "InProgress": "0",
    "Validated": Validated.VALID,
    "Capacity": Capacity.SUFFICIENT,
    "Quota": Quota.UNDER,
}
"""The usual texts of cells, by the name of their column; see `Heading`."""


def _nodepool_columns() -> Iterator[Column]:
    """Yield the columns that kubectl prints too, and the place in the queue before the age."""
    yield _NAME
    for each in NODEPOOL_COLUMNS:
        if each.name == "Age":
            yield Column("QUEUEPOSITION", _at("status", "queuePosition"), wide=True, rare=True)
        usual = _condition(each.condition, *each.path) if each.condition else _at(*each.path)
        cell = _OWN_CELLS.get(each.name, usual)
        yield Column(
            each.name.upper(),
            cell,
            each.is_wide,
            _USUAL.get(each.name, ""),
            is_date=each.type == "date",
        )


COLUMNS: dict[Kind, Sequence[Column]] = {
    NODEPOOL: tuple(_nodepool_columns()),
    NODE: (
        _NAME,
        Column("STATUS", _node_status),
        Column("NODEPOOL", _label(POOL_LABEL)),
        Column("INSTANCE TYPE", _label(TYPE_LABEL)),
        Column("ACTIVE", _condition("CWActive", "status")),
        Column("PHASE", _at("status", "phase"), wide=True),
        Column("REMOVAL", _node_removal, wide=True),
        Column("ZONE", _label(ZONE_LABEL), wide=True),
        _AGE,
    ),
    QUOTA: (
        Column("ORG", _at("org"), wide=True),
        _ZONE,
        _TYPE,
        Column("LIMIT", _at("limit")),
        Column("USED", _at("used")),
        Column("LEFT", _quota_left),
    ),
    CAPACITY: (
        _ZONE,
        _TYPE,
        Column("FREE", _at("free")),
        Column("ASSIGNED", _at("assigned")),
        Column("TRIAGE", _at("triage")),
        Column("RECLAIMED", _at("reclaimed")),
        Column("ZAP", _at("zap"), wide=True, rare=True),
    ),
    CLUSTER: (
        _NAME,
        Column("ORG", _at("spec", "org"), wide=True),
        Column("ZONE", _at("spec", "zone")),
        _AGE,
    ),
    MACHINE: (
        _NAME,
        Column("ZONE", _at("spec", "zone")),
        Column("INSTANCE TYPE", _at("spec", "instanceType")),
        Column("STATE", _at("status", "state")),
        Column("POWER", _at("status", "power"), wide=True, rare=True),
        Column("NODEPOOL", _at("status", "nodePool")),
        Column("FAULT", _at("status", "fault")),
        Column("CAUSE", _at("status", "cause"), wide=True),
    ),
    ZONE: (
        _NAME,
        Column("REGION", _at("spec", "region")),
        Column("ACCESS", _at("spec", "access")),
        Column("TYPES", _at("status", "types")),
        Column("FREE", _at("status", "free")),
        Column("ASSIGNED", _at("status", "assigned")),
        Column("TRIAGE", _at("status", "triage")),
    ),
    INSTANCE_TYPE: (
        _NAME,
        Column("CLASS", _at("spec", "class")),
        Column("GPU", _at("spec", "gpuModel")),
        Column("GPUS", _at("spec", "gpus")),
        Column("VCPU", _at("spec", "vcpu")),
        Column("FREE", _at("status", "free")),
        Column("RACK SIZE", _at("spec", "rackSize"), wide=True),
        Column("SUPERCHIP", _flag("spec", "superchip"), wide=True),
        Column("ZONES", _build_list_cell("spec", "zones"), wide=True),
    ),
    PREEMPTION: (
        Column("NODE", _at("spec", "node")),
        Column("NODEPOOL", _at("spec", "nodePool")),
        Column("PHASE", _at("status", "phase")),
        Column("CAUSE", _at("spec", "cause")),
        Column("REQUESTED FOR", _at("spec", "beneficiary")),
        Column("WARNED", _at("status", "pending")),
        Column("DRAINED AFTER", lambda document: after(document, "inProgress")),
        Column("GONE AFTER", lambda document: after(document, "deleted")),
        Column("LATE BY", lateness),
        Column("PODS LOST", _at("status", "lostPods")),
    ),
    POD: (
        _NAME,
        Column("STATUS", _at("status", "phase")),
        Column("NODE", _at("spec", "nodeName")),
        Column("NODEPOOL", _label(POOL_LABEL)),
        Column("GPUS", _at("spec", "gpus")),
        Column("ACCELERATORS", _at("spec", "accelerators"), wide=True),
        Column("GRACE PERIOD", _at("spec", "terminationGracePeriodSeconds"), wide=True),
        Column("REASON", _at("status", "reason"), wide=True),
        _AGE,
    ),
    EVENT: (
        Column(LAST_SEEN, _at("lastTimestamp")),
        Column("TYPE", _at("type")),
        Column("REASON", _at("reason")),
        Column("OBJECT", _event_object),
        Column("ACTOR", _at("metadata", "annotations", ACTOR), wide=True),
        Column("MESSAGE", _at("message")),
    ),
}

_RED = frozenset((Look.BLOCKED, Look.WRONG, Look.UNKNOWN))
_YELLOW = frozenset((Look.SHORT, TERMINATING, "Warning"))
_PAINTED = frozenset(("VALIDATED", "CAPACITY", "QUOTA", "TYPE", "STATUS", "STATE"))
_NOT_READY = ("NotReady", "Triage")


def paint(title: str, text: str) -> str:
    """Return a cell in its colour: red for a fault, yellow for a warning, otherwise none."""
    if title not in _PAINTED:
        return text
    look = LOOKS.get(text, text)
    if look in _RED or text.startswith(_NOT_READY):
        return colour_text(text, RED)
    if look in _YELLOW or text.endswith(",SchedulingDisabled"):
        return colour_text(text, YELLOW)
    return text


def pools_table(documents: Sequence[Document]) -> str:
    """Return NodePools as the text that `get nodepools` prints."""
    now = datetime.now(UTC)
    rows = [row(NODEPOOL, document, now, wide=False) for document in documents]
    return "\n".join(new_table(header(NODEPOOL, wide=False)).lines(rows))


def new_table(headings: Sequence[Heading | str]) -> Table:
    """Return an empty table for standard output."""
    return Table(headings, screen(paint))


def header(kind: Kind, *, wide: bool, rare: bool = False) -> list[Heading | str]:
    """Return the headings of the columns; with `wide`, no column may be left out."""
    return [
        column.title if wide else Heading(column.title, column.usual)
        for column in _columns(kind, wide=wide, rare=rare)
    ]


def has_rare(kind: Kind, document: Document) -> bool:
    """Return whether an object has a value for a column that is rare."""
    return any(column.rare and column.cell(document) for column in COLUMNS[kind])


def row(
    kind: Kind, document: Document, now: datetime, *, wide: bool, rare: bool = False
) -> list[str]:
    """Return the cells of an object; `-` for a value that is missing."""
    cells = []
    for column in _columns(kind, wide=wide, rare=rare):
        text = column.cell(document)
        if column.is_date:
            text = age(text, now) if text else ""
        elif column.title == LAST_SEEN:
            text = last_seen(document, now)
        cells.append(text or ABSENT)
    return cells


def _columns(kind: Kind, *, wide: bool, rare: bool) -> list[Column]:
    columns = COLUMNS[kind]
    return [each for each in columns if wide >= each.wide and rare >= each.rare]
